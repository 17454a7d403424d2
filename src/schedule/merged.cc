// SPDX-License-Identifier: Apache-2.0
// Merged 1F1B (Megatron's combined 1F1B for expert-parallel overlap; megatron.md 4.2 and 4.4): one
// more warm-up unit than interleaving, so that every steady forward has a backward to run beside
// it. Warm-up and cool-down units run alone; with p = 1 the first forward and the last backward do
// (fraction uncovered 1/M). What runs beside what inside a pair is lower.cc's business.
#include <algorithm>

#include "schedule/program.h"

namespace trifold::schedule {

void build_merged(const layout::ScheduleShape& shape, Program& out) {
  const int units = shape.microbatches * shape.vpp;
  for (int r = 0; r < shape.pp; ++r) {
    std::vector<Slot>& slots = out.stages[static_cast<std::size_t>(r)];
    const int warmup = std::min(layout::warmup_units(shape, r), units);
    for (int i = 0; i < units + warmup; ++i) {
      const layout::Unit f = layout::forward_unit(shape, std::min(i, units - 1));
      const layout::Unit b = layout::backward_unit(shape, std::max(i - warmup, 0));
      const auto fc = static_cast<std::int16_t>(f.chunk), bc = static_cast<std::int16_t>(b.chunk);
      if (i < warmup)
        slots.push_back({Work::forward, fc, f.microbatch});
      else if (i < units)
        slots.push_back({Work::merged, fc, f.microbatch, bc, b.microbatch});
      else
        slots.push_back({Work::backward, bc, b.microbatch});
    }
  }
}

}  // namespace trifold::schedule

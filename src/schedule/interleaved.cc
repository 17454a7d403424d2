// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B (2104.04473 section 2.2.2; Megatron's group size N, megatron.md 4.2): a stage
// holds v chunks; units go in groups of N micro-batches, all chunks in turn. Warm-up
// 2(p-r-1) + (v-1)N units. Bubble (p-1) forward + (p-1) backward chunk units: fraction (p-1)/(vM)
// of the ideal time; exact for equal chunks, N = p, and M a multiple of p.
#include <algorithm>

#include "schedule/program.h"

namespace trifold::schedule {

void build_interleaved(const layout::ScheduleShape& shape, Program& out) {
  const int units = shape.microbatches * shape.vpp;
  const auto slot = [&](Work work, int i) {
    const layout::Unit u =
        work == Work::forward ? layout::forward_unit(shape, i) : layout::backward_unit(shape, i);
    return Slot{work, static_cast<std::int16_t>(u.chunk), u.microbatch};
  };
  for (int r = 0; r < shape.pp; ++r) {
    std::vector<Slot>& slots = out.stages[static_cast<std::size_t>(r)];
    const int warmup = std::min(layout::warmup_units(shape, r), units);
    for (int i = 0; i < warmup; ++i) slots.push_back(slot(Work::forward, i));
    for (int i = 0; i < units; ++i) {
      if (warmup + i < units) slots.push_back(slot(Work::forward, warmup + i));
      slots.push_back(slot(Work::backward, i));
    }
  }
}

}  // namespace trifold::schedule

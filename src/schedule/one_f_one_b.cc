// SPDX-License-Identifier: Apache-2.0
// 1F1B (PipeDream-Flush; 2104.04473 section 2.2.1): min(p-r-1, M) forwards, then one forward and
// one backward in turn, then the backwards that are left. Bubble (p-1)(F+B), fraction (p-1)/M of
// the ideal time; exact for equal stages and free transfers. A transfer of time c costs 2c in every
// steady pair: the last two stages wait for one another.
#include <algorithm>

#include "schedule/program.h"

namespace trifold::schedule {

void build_one_f_one_b(const layout::ScheduleShape& shape, Program& out) {
  const int m = shape.microbatches;
  for (int r = 0; r < shape.pp; ++r) {
    std::vector<Slot>& slots = out.stages[static_cast<std::size_t>(r)];
    const int warmup = std::min(layout::warmup_units(shape, r), m);
    for (int i = 0; i < warmup; ++i) slots.push_back({Work::forward, 0, i});
    for (int i = 0; i < m; ++i) {
      if (warmup + i < m) slots.push_back({Work::forward, 0, warmup + i});
      slots.push_back({Work::backward, 0, i});
    }
  }
}

}  // namespace trifold::schedule

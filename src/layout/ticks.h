// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which chunks an interleaved stage has in hand at once.

#include "layout/in_flight.h"

namespace trifold::layout {

// In the steady state backward unit k runs with forward unit k + w, w the warm-up. A block of N =
// group_size units has one backward chunk; with w = q N + r, its first N - r units face the forward
// chunk q further on, the others the chunk after that. Calls f(forward chunk, backward chunk,
// begin, end) for ticks [begin, end) of the period of N vpp ticks.
template <class F>
void for_each_tick_run(const ScheduleShape& shape, int stage, F f) {
  const int v = shape.vpp, group = shape.group();
  const int warmup = warmup_units(shape, stage), ahead = warmup / group, rest = warmup % group;
  for (int k = 0; k < v; ++k) {
    const int change = (k + 1) * group - rest;
    f((k + ahead) % v, v - 1 - k, k * group, change);
    if (rest > 0) f((k + ahead + 1) % v, v - 1 - k, change, (k + 1) * group);
  }
}

}  // namespace trifold::layout

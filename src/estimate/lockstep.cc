// SPDX-License-Identifier: Apache-2.0
// In the steady state every stage runs one forward and one backward unit a tick, and neighbours
// hand each other a unit every tick. A group of N micro-batches keeps a chunk for N ticks, so a
// stage whose chunk is long then holds up all the others, who cannot make use of it when theirs is
// long: a tick takes the longest of the stages' units, and the period of N v ticks their sum.
// Without merging a stage is two units ahead of its neighbour, which covers two ticks of every N
// (tests/unit/estimate/lockstep_test.cc runs the units).
#include "estimate/lockstep.h"

#include <algorithm>
#include <numeric>

#include "layout/ticks.h"

namespace trifold::estimate {

namespace {

constexpr double kTicksAhead = 2;

}  // namespace

void lockstep(const job::Job& job, const layout::Pipeline& pipeline, const ChunkTimes& times,
              Lockstep& out) {
  const layout::ScheduleShape shape = job.schedule_shape();
  const int p = pipeline.pp, v = pipeline.vpp;
  const int group = shape.group_size > 0 ? shape.group_size : p;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  out.seconds = 0;
  out.paired.assign(at(p), 1.0);
  if (shape.kind != layout::ScheduleKind::interleaved || v == 1) return;
  out.ticks.assign(at(group * v), 0.0);
  double busiest = 0;
  for (int r = 0; r < p; ++r) {
    double own = 0, saved = 0, possible = 0;
    layout::for_each_tick_run(shape, r, [&](int f, int b, int begin, int end) {
      const std::size_t forward = at(r * v + f), backward = at(r * v + b);
      double tick = times.forward[forward] + times.backward[backward];
      if (shape.ep_overlap) {
        const int n = pipeline.at(r, f).all_layers(), m = pipeline.at(r, b).all_layers();
        const double pairs =
            0.5 * std::min(n, m) * (times.merging[forward] + times.merging[backward]);
        tick -= pairs;
        saved += pairs * (end - begin);
        possible +=
            0.5 * (n * times.merging[forward] + m * times.merging[backward]) * (end - begin);
      }
      own += tick * (end - begin);
      for (int j = begin; j < end; ++j) out.ticks[at(j)] = std::max(out.ticks[at(j)], tick);
    });
    busiest = std::max(busiest, own);
    if (possible > 0) out.paired[at(r)] = saved / possible;
  }
  const double covered = shape.ep_overlap ? 0 : std::min(1.0, kTicksAhead / group);
  const double longest = std::accumulate(out.ticks.begin(), out.ticks.end(), 0.0);
  const double ticks =
      static_cast<double>(job.microbatches()) * v - layout::warmup_units(shape, p / 2);
  out.seconds = (1 - covered) * (longest - busiest) * std::max(0.0, ticks) / (group * v);
}

}  // namespace trifold::estimate

// SPDX-License-Identifier: Apache-2.0
// In the steady state a stage runs one forward and one backward unit a tick. Stage r is at its tick
// k when the last, p-1, is at k + p-1-r: then a unit that leaves a stage in one tick is needed by
// its neighbour, on the ring of stages that chunks make, in the next. Unmerged, forwards go first:
// a forward has the backward of its tick as slack, a backward the forward of the next. Merged, a
// unit is there about when the tick ends (a forward's send runs beside the last layer's A.bwd, a
// backward's beside its delayed A.wgrad), and there is little. A group of N micro-batches keeps a
// chunk for N ticks, so a stage whose chunk is long holds up the others then, who cannot make use
// of it when theirs is long. The recurrence of ends is run for two periods of N vpp ticks; the
// second is what a period costs (tests/property/timeline/agreement_test.cc holds it against the
// simulation). Ends across the ring are taken one tick old, which is exact for N = pp and late for
// larger groups.
#include "estimate/lockstep.h"

#include <algorithm>
#include <limits>

#include "layout/ticks.h"

namespace trifold::estimate {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Ring {
 public:
  Ring(const layout::ScheduleShape& shape, const layout::Pipeline& pipeline,
       const ChunkTimes& times, std::vector<Lockstep::Stage>& stages)
      : pipeline_(pipeline),
        times_(times),
        stages_(stages),
        merged_(shape.ep_overlap),
        group_(shape.group()) {
    layout::ScheduleShape endless = shape;
    endless.microbatches = std::numeric_limits<int>::max();  // no warm-up is cut short
    stages_.resize(at(pipeline.pp));
    for (int r = 0; r < pipeline.pp; ++r) {
      // When the last stage is at its tick 0 this one is at -`behind`.
      const int behind = pipeline.pp - 1 - r;
      const int forward = layout::warmup_units(endless, r) - behind;
      const int backward = period() - behind % period();
      Lockstep::Stage& stage = stages_[at(r)];
      stage = {};
      stage.forward_chunk = forward / group_ % pipeline.vpp;
      stage.forward_left = group_ - forward % group_;
      stage.backward_chunk = pipeline.vpp - 1 - backward / group_ % pipeline.vpp;
      stage.backward_left = group_ - backward % group_;
      take(r, stage);
    }
  }

  int period() const { return group_ * pipeline_.vpp; }

  void tick() {
    const int p = pipeline_.pp;
    for (int r = 0; r < p; ++r) {
      Lockstep::Stage& stage = stages_[at(r)];
      const double above = stages_[at(r == 0 ? p - 1 : r - 1)].forward_end + times_.forward_hop_s,
                   below = stages_[at(r == p - 1 ? 0 : r + 1)].backward_end + times_.backward_hop_s;
      if (merged_) {
        stage.next_forward = stage.next_backward =
            std::max({stage.backward_end, above, below}) + stage.forward_s + stage.backward_s;
      } else {
        stage.next_forward = std::max(stage.backward_end, above) + stage.forward_s;
        stage.next_backward = std::max(stage.next_forward, below) + stage.backward_s;
      }
    }
    for (int r = 0; r < p; ++r) advance(r, stages_[at(r)]);
  }

  double latest() const {
    double end = 0;
    for (const Lockstep::Stage& stage : stages_) end = std::max(end, stage.backward_end);
    return end;
  }

 private:
  void advance(int r, Lockstep::Stage& stage) const {
    stage.forward_end = stage.next_forward, stage.backward_end = stage.next_backward;
    const bool forward = --stage.forward_left == 0, backward = --stage.backward_left == 0;
    const int v = pipeline_.vpp;
    if (forward)
      stage.forward_left = group_,
      stage.forward_chunk = stage.forward_chunk + 1 == v ? 0 : stage.forward_chunk + 1;
    if (backward)
      stage.backward_left = group_,
      stage.backward_chunk = stage.backward_chunk == 0 ? v - 1 : stage.backward_chunk - 1;
    if (forward || backward) take(r, stage);
  }

  // The durations of the chunks in hand.
  void take(int r, Lockstep::Stage& stage) const {
    const std::size_t f = at(r * pipeline_.vpp + stage.forward_chunk),
                      b = at(r * pipeline_.vpp + stage.backward_chunk);
    stage.forward_s = times_.forward[f], stage.backward_s = times_.backward[b];
    if (merged_)
      stage.backward_s -= 0.5 *
                          std::min(pipeline_.at(r, stage.forward_chunk).all_layers(),
                                   pipeline_.at(r, stage.backward_chunk).all_layers()) *
                          (times_.merging[f] + times_.merging[b]);
  }

  const layout::Pipeline& pipeline_;
  const ChunkTimes& times_;
  std::vector<Lockstep::Stage>& stages_;
  bool merged_;
  int group_;
};

// What a period of `stage` saves by merging, of what it could if every layer had a partner.
double paired_share(const layout::ScheduleShape& shape, const layout::Pipeline& pipeline,
                    const ChunkTimes& times, int stage, double& busy) {
  const int v = pipeline.vpp;
  double saved = 0, possible = 0;
  busy = 0;
  layout::for_each_tick_run(shape, stage, [&](int f, int b, int begin, int end) {
    const std::size_t forward = at(stage * v + f), backward = at(stage * v + b);
    const int n = pipeline.at(stage, f).all_layers(), m = pipeline.at(stage, b).all_layers();
    const int ticks = end - begin;
    busy += ticks * (times.forward[forward] + times.backward[backward]);
    if (!shape.ep_overlap) return;
    saved += ticks * 0.5 * std::min(n, m) * (times.merging[forward] + times.merging[backward]);
    possible += ticks * 0.5 * (n * times.merging[forward] + m * times.merging[backward]);
  });
  busy -= saved;
  return possible > 0 ? saved / possible : 1;
}

}  // namespace

void lockstep(const job::Job& job, const layout::Pipeline& pipeline, const ChunkTimes& times,
              Lockstep& out) {
  const layout::ScheduleShape shape = job.schedule_shape();
  out.seconds = 0;
  out.paired.assign(at(pipeline.pp), 1.0);
  if (shape.kind != layout::ScheduleKind::interleaved || pipeline.vpp == 1) return;
  double busiest = 0;
  for (int r = 0; r < pipeline.pp; ++r) {
    double busy = 0;
    out.paired[at(r)] = paired_share(shape, pipeline, times, r, busy);
    busiest = std::max(busiest, busy);
  }
  Ring ring(shape, pipeline, times, out.stages);
  for (int tick = 0; tick < ring.period(); ++tick) ring.tick();
  const double first = ring.latest();
  for (int tick = 0; tick < ring.period(); ++tick) ring.tick();
  const double period = ring.latest() - first;
  const double ticks = static_cast<double>(job.microbatches()) * pipeline.vpp -
                       layout::warmup_units(shape, pipeline.pp / 2);
  out.seconds = std::max(0.0, period - busiest) * std::max(0.0, ticks) / ring.period();
}

}  // namespace trifold::estimate

// SPDX-License-Identifier: Apache-2.0
// Zero bubble (2401.10241): the backward is split into the data gradient B, which the stage before
// waits for, and the weight gradient W, which nobody does; W fills what would be bubbles.
//
//   ZB-H1  peak activations of 1F1B (p units);     bubble (p-1)(F + B - W)
//   ZB-H2  2p - 1 units;                           bubble (p-1)(F + B - 2W)
//   ZB-V   two chunks a rank on a V, 2p half-units (as much as 1F1B's worst stage); bubble 0 for
//          F = B = W
//
// B is the data gradient alone; at F = B = W the bubbles are exact with every M >= 2p - 1 (H2, V)
// or p (H1). The order is found by list scheduling in time: B before F before W, F only under the
// memory limit, W when the stage would idle for at least `patience` x W; of several patiences and
// warm-ups the shortest wins, as the paper's automatic scheduler tries its own (section 4). With
// real times and a limit of p (2p) units this is the paper's ZB-1p (ZB-2p).
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "schedule/program.h"
#include "schedule/unit_graph.h"

namespace trifold::schedule {
namespace {

constexpr double kTiny = 1e-9;
constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct Policy {
  double patience = 0;       // W runs when the next known arrival is at least this many W away
  bool eager_wgrad = false;  // W right after its B once the warm-up is over
  // Forwards that a stage may be ahead of its backwards: slope (p-r-1) + 1, so that the rest of its
  // memory holds weight gradients that wait. 0: as many as memory allows.
  double slope = 0;
  // On a V: which chunk goes first, and the places chunk 0 leaves to chunk 1 beyond r + 1.
  bool deep_forward = true, deep_backward = true, deep_wgrad = true;
  int spare = 0;
};

class ListScheduler {
 public:
  ListScheduler(const UnitTimes& times, int limit, const Policy& policy, Program& out)
      : times_(times), policy_(policy), out_(out), limit_(limit), stages_(at(out.pp)) {
    for (int r = 0; r < out.pp; ++r) {
      out.stages[at(r)].clear();
      for (int c = 0; c < out.chunks; ++c) {
        int a = 0, b = 0;
        Lane& lane = stages_[at(r)].lanes[c];
        lane.forward_ready.assign(at(out.microbatches), out.before(r, c, a, b) ? kNever : 0);
        lane.backward_ready.assign(at(out.microbatches), kNever);
      }
    }
  }

  // Arrival times by stage, chunk and micro-batch, forwards then backwards.
  using Arrivals = std::vector<std::vector<double>>;

  // What an earlier run saw, as a forecast of gaps: units that no neighbour has started yet are
  // expected when they came then.
  void expect(const Arrivals& earlier) {
    std::size_t i = 0;
    for (Stage& s : stages_)
      for (int c = 0; c < out_.chunks; ++c) {
        s.lanes[c].forward_expected = earlier[i++];
        s.lanes[c].backward_expected = earlier[i++];
      }
  }

  Arrivals arrivals() const {
    Arrivals out;
    for (const Stage& s : stages_)
      for (int c = 0; c < out_.chunks; ++c) {
        out.push_back(s.lanes[c].forward_ready);
        out.push_back(s.lanes[c].backward_ready);
      }
    return out;
  }

  // False when the memory limit leaves no order.
  bool run() {
    for (;;) {
      int who = 0;
      for (int r = 1; r < out_.pp; ++r)
        if (stages_[at(r)].now < stages_[at(who)].now) who = r;
      if (stages_[at(who)].now == kNever) break;
      step(who);
    }
    const int all = 3 * out_.microbatches * out_.chunks;
    return std::all_of(stages_.begin(), stages_.end(),
                       [all](const Stage& s) { return s.done == all; });
  }

 private:
  struct Lane {  // one chunk
    std::vector<double> forward_ready, backward_ready, forward_expected, backward_expected;
    int forwards = 0, backwards = 0, wgrads = 0;
    double memory(double share) const {
      return forwards - backwards + share * (backwards - wgrads);
    }
  };
  struct Stage {
    Lane lanes[2];
    double now = 0;   // when it looks for work next
    double free = 0;  // since when it idles
    int done = 0;
  };

  bool may_forward(int r, int c) const {
    const Stage& s = stages_[at(r)];
    double memory = 1;
    for (int k = 0; k < out_.chunks; ++k) memory += s.lanes[k].memory(times_.wgrad_memory);
    if (s.lanes[c].forwards >= out_.microbatches || memory > limit_ + kTiny) return false;
    if (policy_.slope > 0 &&
        s.lanes[c].forwards - s.lanes[c].backwards > std::ceil(policy_.slope * (out_.pp - r - 1)))
      return false;
    // On a V, chunk 0 leaves the places that chunk 1 needs (layout/in_flight.cc).
    return out_.chunks == 1 || c == 1 ||
           s.lanes[0].memory(times_.wgrad_memory) + 1 <= limit_ - (r + 1) - policy_.spare + kTiny;
  }

  double next_arrival(int r) const {
    double next = kNever;
    for (int c = 0; c < out_.chunks; ++c) {
      const Lane& lane = stages_[at(r)].lanes[c];
      if (lane.backwards < out_.microbatches)
        next = std::min(next, lane.backward_ready[at(lane.backwards)]);
      if (may_forward(r, c)) next = std::min(next, lane.forward_ready[at(lane.forwards)]);
    }
    return next;
  }

  // As next_arrival, with the forecast for what is not known yet.
  double next_expected(int r) const {
    double next = next_arrival(r);
    for (int c = 0; c < out_.chunks; ++c) {
      const Lane& lane = stages_[at(r)].lanes[c];
      if (lane.forward_expected.empty()) continue;
      const auto soon = [&](double time) {
        if (time >= stages_[at(r)].now) next = std::min(next, time);
      };
      if (lane.backwards < out_.microbatches) soon(lane.backward_expected[at(lane.backwards)]);
      if (may_forward(r, c)) soon(lane.forward_expected[at(lane.forwards)]);
    }
    return next;
  }

  void arrive(int stage, double& ready, int from, double end) {
    ready = end + (from == stage ? 0 : times_.transfer);
    Stage& s = stages_[at(stage)];
    s.now = std::min(s.now, std::max(s.free, ready));
  }

  void run_slot(int r, Work work, int c) {
    Stage& s = stages_[at(r)];
    Lane& lane = s.lanes[c];
    int& count = work == Work::forward    ? lane.forwards
                 : work == Work::backward ? lane.backwards
                                          : lane.wgrads;
    const int microbatch = count++;
    Slot slot{work, static_cast<std::int16_t>(c), microbatch};
    slot.split = work == Work::backward;
    out_.stages[at(r)].push_back(slot);
    s.free = s.now += work == Work::forward    ? times_.forward
                      : work == Work::backward ? times_.backward
                                               : times_.wgrad;
    ++s.done;
    int stage = 0, chunk = 0;
    if (work == Work::forward && out_.after(r, c, stage, chunk))
      arrive(stage, stages_[at(stage)].lanes[chunk].forward_ready[at(microbatch)], r, s.now);
    else if (work == Work::forward)
      arrive(r, lane.backward_ready[at(microbatch)], r, s.now);
    else if (work == Work::backward && out_.before(r, c, stage, chunk))
      arrive(stage, stages_[at(stage)].lanes[chunk].backward_ready[at(microbatch)], r, s.now);
  }

  int pick(bool deep, int i) const { return deep ? out_.chunks - 1 - i : i; }

  int waiting_wgrad(int r) const {  // chunk whose oldest W waits; -1: none
    const Stage& s = stages_[at(r)];
    for (int i = 0; i < out_.chunks; ++i) {
      const int c = pick(policy_.deep_wgrad, i);
      if (s.lanes[c].wgrads < s.lanes[c].backwards) return c;
    }
    return -1;
  }

  void step(int r) {
    Stage& s = stages_[at(r)];
    for (int i = 0; i < out_.chunks; ++i) {
      const int c = pick(policy_.deep_backward, i);
      Lane& lane = s.lanes[c];
      if (lane.backwards < out_.microbatches && lane.backward_ready[at(lane.backwards)] <= s.now) {
        run_slot(r, Work::backward, c);
        if (policy_.eager_wgrad && lane.forwards == out_.microbatches) run_slot(r, Work::wgrad, c);
        return;
      }
    }
    for (int i = 0; i < out_.chunks; ++i) {
      const int c = pick(policy_.deep_forward, i);
      if (may_forward(r, c) && s.lanes[c].forward_ready[at(s.lanes[c].forwards)] <= s.now)
        return run_slot(r, Work::forward, c);
    }
    const double next = next_arrival(r);
    const int w = waiting_wgrad(r);
    const double gap = std::min(next, next_expected(r)) - s.now;
    if (w >= 0 && gap >= policy_.patience * times_.wgrad) return run_slot(r, Work::wgrad, w);
    if (w >= 0 && next == kNever) return run_slot(r, Work::wgrad, w);
    s.now = std::max(next, s.now);
  }

  UnitTimes times_;
  Policy policy_;
  Program& out_;
  int limit_;
  std::vector<Stage> stages_;
};

// The family of the paper's figures: `slope` (p-r-1) warm-up forwards, then F B W in turn with each
// W as many backwards behind its B as memory allows, so that every stage holds as much as the
// first. Slope 1 is ZB-H1, slope 2 ZB-H2.
void by_hand(const layout::ScheduleShape& shape, double slope, double room, double wgrad_memory,
             Program& out) {
  const int m = shape.microbatches;
  for (int r = 0; r < shape.pp; ++r) {
    std::vector<Slot>& slots = out.stages[at(r)];
    slots.clear();
    const int wanted = static_cast<int>(slope * (shape.pp - r - 1));
    const int warmup = std::min({wanted, static_cast<int>(room) - 1, m});
    const int lag = std::min(m, static_cast<int>((room - 1 - warmup) / wgrad_memory + kTiny));
    for (int i = 0; i < warmup; ++i) slots.push_back({Work::forward, 0, i});
    for (int i = 0; i < m; ++i) {
      if (warmup + i < m) slots.push_back({Work::forward, 0, warmup + i});
      slots.push_back({Work::backward, 0, i});
      slots.back().split = true;
      if (i >= lag) slots.push_back({Work::wgrad, 0, i - lag});
    }
    for (int i = std::max(0, m - lag); i < m; ++i) slots.push_back({Work::wgrad, 0, i});
  }
}

// A step is as long as its longest stage: with the optimizer validated afterwards stages do not
// wait for one another (section 4 of the paper).
double cost_of(const Program& program, const UnitTimes& times) {
  return longest_stage_span(program, times);
}

int limit_of(const layout::ScheduleShape& shape) {
  switch (shape.kind) {
    case layout::ScheduleKind::zb_h1:
      return shape.pp;
    case layout::ScheduleKind::zb_h2:
      return 2 * shape.pp - 1;
    default:
      return 2 * shape.pp;
  }
}

}  // namespace

void build_zero_bubble(const layout::ScheduleShape& shape, const UnitTimes& times,
                       int in_flight_limit, Program& out) {
  const bool vee = shape.kind == layout::ScheduleKind::zb_v;
  if (vee) out.placement = Placement::vee;
  out.chunks = vee ? 2 : 1;
  const int limit = in_flight_limit > 0 ? in_flight_limit : limit_of(shape);
  Program best = out;
  double best_cost = kNever;
  if (!vee && in_flight_limit == 0)  // the paper's two figures
    return by_hand(shape, shape.kind == layout::ScheduleKind::zb_h1 ? 1 : 2, limit, 1, out);
  if (!vee)
    for (double slope = 1; slope <= 2.5; slope += 0.25)
      for (double room = shape.pp; room <= limit; room += std::max(1, shape.pp / 8)) {
        by_hand(shape, slope, room, times.wgrad_memory, out);
        const double cost = cost_of(out, times);
        if (cost < best_cost) best_cost = cost, best = out;
      }
  const auto attempt = [&](const Policy& policy) {
    ListScheduler::Arrivals seen;
    for (int round = 0; round < 4; ++round) {
      ListScheduler scheduler(times, limit, policy, out);
      if (!seen.empty()) scheduler.expect(seen);
      if (!scheduler.run()) return;
      const double cost = cost_of(out, times);
      if (cost < best_cost) best_cost = cost, best = out;
      seen = scheduler.arrivals();
    }
  };
  for (const bool eager : {false, true})
    for (const double patience : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      Policy policy{patience, eager};
      if (!vee)
        for (const double slope : {2.0, 2.05, 2.1, 2.2, 2.3, 2.5}) {
          policy.slope = slope;
          attempt(policy);
        }
      policy.slope = 0;
      for (int i = 0; i < (vee ? 16 : 1); ++i) {
        policy.deep_forward = (i & 1) == 0;
        policy.deep_backward = (i & 2) == 0;
        policy.deep_wgrad = (i & 4) == 0;
        policy.spare = i >> 3;
        attempt(policy);
      }
    }
  TRIFOLD_CHECK(best_cost < kNever);
  out = best;
}

}  // namespace trifold::schedule

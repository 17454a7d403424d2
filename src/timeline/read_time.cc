// SPDX-License-Identifier: Apache-2.0
// A stage's step is cut at its compute stream. What runs there is compute, recompute, host or
// optimizer. A gap before a task belongs to what the task waited for: the chain of causes is
// walked back from the task to the gap's beginning; transfers of this stage, or sent to it, are
// exposed communication, everything that happened elsewhere is bubble. So the parts sum to the
// step.
#include <algorithm>

#include "timeline/readback.h"

namespace trifold::timeline {

using schedule::Category;
using schedule::Stream;

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

int comm_of(Category c) {
  switch (c) {
    case Category::ep:
      return 0;
    case Category::tp:
      return 1;
    case Category::cp:
      return 2;
    case Category::pp:
      return 3;
    case Category::dp:
      return 4;
    default:
      return -1;
  }
}

class Reader {
 public:
  Reader(const schedule::StepGraph& step, const sim::Outcome& outcome)
      : step_(step), outcome_(outcome) {}

  void read_stage(int stage, const StageTasks& tasks, sim::Picoseconds from, sim::Picoseconds to,
                  StageTimeline& out) const;

 private:
  Category category(sim::Index t) const { return step_.tasks[at(t)].op->category; }
  // Splits [from, to), which ends where `task` starts, among what it waited for.
  void explain_gap(int stage, sim::Index task, sim::Picoseconds from, sim::Picoseconds to,
                   estimate::Time& parts) const;
  void run(sim::Index task, sim::Picoseconds time, estimate::Time& parts) const;

  const schedule::StepGraph& step_;
  const sim::Outcome& outcome_;
};

void Reader::run(sim::Index task, sim::Picoseconds time, estimate::Time& parts) const {
  const double seconds = sim::to_seconds(time);
  const int comm = comm_of(category(task));  // an exchange that the host waits for
  if (comm >= 0) {
    parts.exposed[at(comm)] += seconds;
    return;
  }
  switch (category(task)) {
    case Category::recompute:
      parts.recompute += seconds;
      return;
    case Category::host:
    case Category::copy:
      parts.host += seconds;
      return;
    case Category::optimizer:
      parts.optimizer += seconds;
      return;
    default:
      parts.compute += seconds;
  }
}

void Reader::explain_gap(int stage, sim::Index task, sim::Picoseconds from, sim::Picoseconds to,
                         estimate::Time& parts) const {
  sim::Picoseconds now = to;
  sim::Index cause = task;
  while (now > from && cause >= 0) {
    const sim::Picoseconds begin = std::max(from, std::min(now, outcome_.start[at(cause)]));
    const schedule::TaskInfo& info = step_.tasks[at(cause)];
    const int comm = comm_of(info.op->category);
    const bool here = step_.graph.domain(cause) == stage || info.receiver == stage;
    if (!here) break;
    const double seconds = sim::to_seconds(now - begin);
    if (comm >= 0)
      parts.exposed[at(comm)] += seconds;
    else if (info.op->category == Category::copy)
      parts.host += seconds;
    else if (now > begin)
      break;
    now = begin;
    cause = outcome_.cause[at(cause)];
  }
  if (now > from) parts.bubble += sim::to_seconds(now - from);
}

void Reader::read_stage(int stage, const StageTasks& tasks, sim::Picoseconds from,
                        sim::Picoseconds to, StageTimeline& out) const {
  estimate::Time& parts = out.time = {};
  sim::Picoseconds now = from;
  for (const sim::Index t : tasks.compute[at(stage)]) {
    const sim::Picoseconds begin = outcome_.start[at(t)], end = outcome_.end[at(t)];
    if (begin > now) explain_gap(stage, outcome_.cause[at(t)], now, begin, parts);
    run(t, end - begin, parts);
    now = std::max(now, end);
  }
  sim::Index last = -1;
  for (const sim::Index t : tasks.all[at(stage)])
    if (last < 0 || outcome_.end[at(t)] > outcome_.end[at(last)]) last = t;
  if (last >= 0 && outcome_.end[at(last)] > now) {
    explain_gap(stage, last, now, outcome_.end[at(last)], parts);
    now = outcome_.end[at(last)];
  }
  out.start_s = sim::to_seconds(from);
  out.end_s = sim::to_seconds(now);
  if (to > now) parts.bubble += sim::to_seconds(to - now);
}

}  // namespace

void sort_tasks(const schedule::StepGraph& step, StageTasks& out) {
  out.compute.assign(at(step.stages), {});
  out.all.assign(at(step.stages), {});
  for (sim::Index t = 0; t < step.graph.tasks(); ++t) {
    const int stage = step.graph.domain(t);
    if (stage >= step.stages) continue;  // barriers
    out.all[at(stage)].push_back(t);
    if (step.tasks[at(t)].op->stream == Stream::compute) out.compute[at(stage)].push_back(t);
  }
}

void read_time(const schedule::StepGraph& step, const sim::Outcome& outcome,
               const StageTasks& tasks, Timeline& out) {
  const Reader reader(step, outcome);
  out.stages.assign(at(step.stages), {});
  std::vector<sim::Picoseconds> begin(at(step.stages), 0);
  sim::Picoseconds step_time = outcome.makespan;
  if (step.post_validated) {
    step_time = 0;
    for (int r = 0; r < step.stages; ++r) {
      sim::Picoseconds first = outcome.makespan, last = 0;
      for (const sim::Index t : tasks.compute[at(r)])
        if (step.graph.work(t) > 0) first = std::min(first, outcome.start[at(t)]);
      for (const sim::Index t : tasks.all[at(r)]) last = std::max(last, outcome.end[at(t)]);
      begin[at(r)] = first;
      step_time = std::max(step_time, last - first);
    }
  }
  out.step_time_s = sim::to_seconds(step_time);
  double most = -1;
  for (int r = 0; r < step.stages; ++r) {
    StageTimeline& stage = out.stages[at(r)];
    reader.read_stage(r, tasks, begin[at(r)], begin[at(r)] + step_time, stage);
    for (const sim::Index t : tasks.all[at(r)]) {
      const schedule::TaskInfo& info = step.tasks[at(t)];
      const int comm = comm_of(info.op->category);
      if (comm < 0) continue;
      const double seconds = sim::to_seconds(outcome.end[at(t)] - outcome.start[at(t)]);
      stage.communication[at(comm)] += seconds;
    }
    const double busy = stage.time.sum() - stage.time.bubble;
    if (busy > most) most = busy, out.slowest_stage = r;
  }
  const StageTimeline& slowest = out.stages[at(out.slowest_stage)];
  double total = 0, exposed = 0;
  for (int i = 0; i < kComms; ++i)
    total += slowest.communication[at(i)], exposed += slowest.time.exposed[at(i)];
  out.hidden_share = total > 0 ? std::max(0.0, 1 - exposed / total) : 0;
  const double ep = slowest.communication[0];
  out.ep_hidden_share = ep > 0 ? std::max(0.0, 1 - slowest.time.exposed[0] / ep) : 0;
}

void read_critical_path(const schedule::StepGraph& step, const sim::Outcome& outcome,
                        Timeline& out) {
  PathShare path;
  sim::Index task = -1;
  for (sim::Index t = 0; t < step.graph.tasks(); ++t)
    if (outcome.end[at(t)] == outcome.makespan) task = t;
  sim::Picoseconds work = 0;
  while (task >= 0) {
    const schedule::TaskInfo& info = step.tasks[at(task)];
    const double seconds = sim::to_seconds(outcome.end[at(task)] - outcome.start[at(task)]);
    path.by_category[static_cast<std::size_t>(info.op->category)] += seconds;
    if (info.op->category <= Category::recompute)
      path.by_family[static_cast<std::size_t>(info.op->family)] += seconds;
    work += step.graph.work(task);
    const sim::Index cause = outcome.cause[at(task)];
    const sim::Picoseconds ready = cause < 0 ? 0 : outcome.end[at(cause)];
    path.waiting_s += sim::to_seconds(outcome.start[at(task)] - ready);
    task = cause;
  }
  out.lower_bound_s = sim::to_seconds(work);
  out.critical_path = path;
}

}  // namespace trifold::timeline

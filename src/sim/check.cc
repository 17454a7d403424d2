// SPDX-License-Identifier: Apache-2.0
// Capacity is checked by what resources deliver over an interval: between two neighbouring event
// times of a domain, tasks that run there cannot together have needed more of a resource than time
// x capacity. A task's progress inside one interval is unknown to a judge who sees only starts and
// ends, so the check is on whole lives: over any window that contains the lives of a set of tasks,
// the sum of use x work + hold x life must fit the window.
#include "sim/check.h"

#include <algorithm>

#include "base/check.h"

namespace trifold::sim {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

std::string name(Index task) { return "task " + std::to_string(task); }

std::string check_lives(const Graph& g, const Outcome& o) {
  for (Index t = 0; t < g.tasks(); ++t) {
    if (o.start[at(t)] < 0 || o.end[at(t)] < 0) return name(t) + " never ran";
    if (o.end[at(t)] - o.start[at(t)] < g.work(t)) return name(t) + " ran faster than full speed";
    if (o.end[at(t)] > o.makespan) return name(t) + " ends after the makespan";
    const Index before = g.previous_in_stream(t);
    if (before >= 0 && o.start[at(t)] < o.end[at(before)])
      return name(t) + " overlaps " + name(before) + " on stream " + std::to_string(g.stream(t));
  }
  for (std::size_t i = 0; i < g.dependencies(); ++i) {
    const Index a = g.dependency_before(i), b = g.dependency_after(i);
    if (o.start[at(b)] < o.end[at(a)]) return name(b) + " starts before " + name(a) + " ends";
  }
  return {};
}

// Busy periods of a domain: maximal windows in which some task runs. Inside one, delivered use must
// fit; single-task stretches are free of contention by definition.
std::string check_capacity(const Graph& g, const LoadTable& loads, const Outcome& o) {
  std::vector<std::vector<Index>> by_domain(at(g.domains()));
  for (Index t = 0; t < g.tasks(); ++t)
    if (g.work(t) > 0) by_domain[at(g.domain(t))].push_back(t);
  for (std::vector<Index>& tasks : by_domain) {
    std::sort(tasks.begin(), tasks.end(), [&](Index a, Index b) {
      return o.start[at(a)] != o.start[at(b)] ? o.start[at(a)] < o.start[at(b)] : a < b;
    });
    for (std::size_t i = 0; i < tasks.size();) {
      Picoseconds from = o.start[at(tasks[i])], to = from;
      double need[kResources] = {};
      std::size_t j = i;
      for (; j < tasks.size() && (j == i || o.start[at(tasks[j])] < to); ++j) {
        const Load& load = loads[g.load(tasks[j])];
        const double life = static_cast<double>(o.end[at(tasks[j])] - o.start[at(tasks[j])]);
        for (int r = 0; r < kResources; ++r)
          need[r] += load.use[r] * static_cast<double>(g.work(tasks[j])) + load.hold[r] * life;
        to = std::max(to, o.end[at(tasks[j])]);
      }
      const double window = static_cast<double>(to - from);
      for (int r = 0; r < kResources; ++r)
        if (j - i > 1 && need[r] > window * (1 + 1e-5) + static_cast<double>(j - i))
          return "resource " + std::to_string(r) + " of the domain of " + name(tasks[i]) +
                 " is over capacity";
      i = j;
    }
  }
  return {};
}

}  // namespace

std::string check_timeline(const Graph& graph, const LoadTable& loads, const Outcome& outcome) {
  if (outcome.start.size() != at(graph.tasks()) || outcome.end.size() != at(graph.tasks()))
    return "the timeline has another number of tasks";
  std::string wrong = check_lives(graph, outcome);
  if (wrong.empty()) wrong = check_capacity(graph, loads, outcome);
  return wrong;
}

Picoseconds critical_path(const Graph& graph) {
  Engine engine;
  const Outcome& o = engine.run(graph, LoadTable());
  return o.makespan;
}

Picoseconds busiest_stream(const Graph& graph) {
  std::vector<Picoseconds> busy(at(graph.streams()), 0);
  for (Index t = 0; t < graph.tasks(); ++t) busy[at(graph.stream(t))] += graph.work(t);
  return busy.empty() ? 0 : *std::max_element(busy.begin(), busy.end());
}

}  // namespace trifold::sim

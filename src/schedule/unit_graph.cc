// SPDX-License-Identifier: Apache-2.0
#include "schedule/unit_graph.h"

#include <algorithm>

#include "base/check.h"

namespace trifold::schedule {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct Builder {
  const Program& program;
  sim::Graph& graph;
  sim::Picoseconds hop;
  // Task that finishes the forward / backward of (stage, chunk, micro-batch).
  std::vector<sim::Index> forwards{}, backwards{}, forward_starts{}, backward_starts{};
  std::vector<sim::Index> senders{};  // stage x 2 directions

  std::size_t unit(int stage, int chunk, int microbatch) const {
    return at((stage * program.chunks + chunk) * program.microbatches + microbatch);
  }

  void link(int from_stage, sim::Index from, int to_stage, sim::Index to, bool backward) {
    if (hop == 0 || from_stage == to_stage) return graph.add_dependency(from, to);
    const sim::Index t = graph.add_task(senders[at(from_stage * 2 + (backward ? 1 : 0))], hop);
    graph.add_dependency(from, t);
    graph.add_dependency(t, to);
  }
};

double slot_seconds(const Slot& s, const UnitTimes& t) {
  switch (s.work) {
    case Work::forward:
      return t.forward;
    case Work::backward:
      return t.backward + (s.split ? 0 : t.wgrad);
    case Work::wgrad:
      return t.wgrad;
    case Work::merged:
      return t.merged > 0 ? t.merged : t.forward + t.backward + t.wgrad;
  }
  return 0;
}

double scale_of(const StageScale& scale, int stage) {
  return scale.stage.empty() ? 1 : scale.stage[at(stage)];
}

}  // namespace

void build_unit_graph(const Program& program, const UnitTimes& times, const StageScale& scale,
                      sim::Graph& out) {
  out.clear();
  Builder b{program, out, sim::to_picoseconds(times.transfer)};
  const std::size_t units = at(program.pp * program.chunks * program.microbatches);
  b.forwards.assign(units, -1);
  b.backwards.assign(units, -1);
  for (int r = 0; r < program.pp; ++r) {
    const sim::Index domain = out.add_domain(), stream = out.add_stream(domain);
    b.senders.push_back(out.add_stream(domain));
    b.senders.push_back(out.add_stream(domain));
    for (const Slot& s : program.stages[at(r)]) {
      const sim::Index task =
          out.add_task(stream, sim::to_picoseconds(slot_seconds(s, times) * scale_of(scale, r)));
      if (s.work == Work::forward || s.work == Work::merged)
        b.forwards[b.unit(r, s.chunk, s.microbatch)] = task;
      if (s.work == Work::backward) b.backwards[b.unit(r, s.chunk, s.microbatch)] = task;
      if (s.work == Work::merged)
        b.backwards[b.unit(r, s.backward_chunk, s.backward_microbatch)] = task;
    }
  }
  // Transfers leave in the order in which their producers run.
  for (int r = 0; r < program.pp; ++r)
    for (const Slot& s : program.stages[at(r)]) {
      int stage = 0, chunk = 0;
      if ((s.work == Work::forward || s.work == Work::merged) &&
          program.after(r, s.chunk, stage, chunk))
        b.link(r, b.forwards[b.unit(r, s.chunk, s.microbatch)], stage,
               b.forwards[b.unit(stage, chunk, s.microbatch)], false);
      if (s.work != Work::backward && s.work != Work::merged) continue;
      const int bc = s.work == Work::merged ? s.backward_chunk : s.chunk;
      const int bm = s.work == Work::merged ? s.backward_microbatch : s.microbatch;
      if (program.before(r, bc, stage, chunk))
        b.link(r, b.backwards[b.unit(r, bc, bm)], stage, b.backwards[b.unit(stage, chunk, bm)],
               true);
    }
}

bool completes(const Program& program) {
  sim::Graph graph;
  build_unit_graph(program, UnitTimes{}, {}, graph);
  return sim::Engine().run(graph, sim::LoadTable()).complete;
}

double run_units(const Program& program, const UnitTimes& times, const StageScale& scale) {
  sim::Graph graph;
  build_unit_graph(program, times, scale, graph);
  sim::Engine engine;
  const sim::Outcome& outcome = engine.run(graph, sim::LoadTable());
  TRIFOLD_CHECK(outcome.complete);
  return sim::to_seconds(outcome.makespan);
}

double longest_stage_span(const Program& program, const UnitTimes& times, const StageScale& scale) {
  sim::Graph graph;
  build_unit_graph(program, times, scale, graph);
  sim::Engine engine;
  const sim::Outcome& outcome = engine.run(graph, sim::LoadTable());
  TRIFOLD_CHECK(outcome.complete);
  sim::Picoseconds longest = 0;
  sim::Index task = 0;
  for (int r = 0; r < program.pp; ++r) {  // tasks were added stage by stage in slot order
    const auto count = static_cast<sim::Index>(program.stages[at(r)].size());
    longest = std::max(longest, outcome.end[at(task + count - 1)] - outcome.start[at(task)]);
    task += count;
  }
  return sim::to_seconds(longest);
}

double bubble_rate(const Program& program, const UnitTimes& times, const StageScale& scale) {
  double slowest = 1;
  if (!scale.stage.empty()) slowest = *std::max_element(scale.stage.begin(), scale.stage.end());
  const int directions = program.placement == Placement::two_way ? 2 : 1;
  const int chunks = program.placement == Placement::two_way ? 1 : program.chunks;
  const double ideal = directions * program.microbatches * chunks * slowest *
                       (times.forward + times.backward + times.wgrad);
  const double cost = run_units(program, times, scale);
  return (cost - ideal) / cost;
}

}  // namespace trifold::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Engine: runs a Graph to the end and says when every task started and ended. Events are ordered by
// (time, domain), inside a domain by task. It owns its buffers: no allocation per event, none at
// all from the second run of a graph of the same size.
//
// Where nothing contends, times follow from the dependencies alone (one pass in topological order);
// else the tasks of a domain share its resources at rates that change with every start and end.

#include <memory>
#include <vector>

#include "sim/graph.h"
#include "sim/load.h"

namespace trifold::sim {

struct Outcome {
  std::vector<Picoseconds> start, end;  // by task; -1 where a task never ran
  std::vector<Index> cause;             // the predecessor that ended last (-1: none): critical path
  Picoseconds makespan = 0;
  Index finished = 0;
  bool complete = false;  // false: a cycle through streams and dependencies
};

class Engine {
 public:
  Engine();
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const Outcome& run(const Graph& graph, const LoadTable& loads);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trifold::sim

// SPDX-License-Identifier: Apache-2.0
#pragma once

// An independent judge of a finished timeline. It knows the rules, not the engine: every dependency
// kept, no stream overlaps itself, no task faster than its work allows, no resource over capacity.

#include <string>

#include "sim/engine.h"
#include "sim/graph.h"
#include "sim/load.h"

namespace trifold::sim {

// Empty when the timeline is sound; else what is wrong with which task.
std::string check_timeline(const Graph& graph, const LoadTable& loads, const Outcome& outcome);

// Lower bounds that no timeline can beat: the longest path of dependencies and streams, and the
// load of each stream.
Picoseconds critical_path(const Graph& graph);
Picoseconds busiest_stream(const Graph& graph);

}  // namespace trifold::sim

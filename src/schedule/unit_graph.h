// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Program with unit times as a task graph: one task a slot on each stage's compute stream, one
// transfer task a hop. For bubble formulas and published unit-level tables.

#include "schedule/program.h"
#include "sim/engine.h"

namespace trifold::schedule {

struct StageScale {  // factors on a stage's unit times (a stage with fewer layers)
  std::vector<double> stage;
};

// Times are taken as seconds. Tasks are added stage by stage in slot order.
void build_unit_graph(const Program& program, const UnitTimes& times, const StageScale& scale,
                      sim::Graph& out);

// False: stages wait for each other in a circle whatever the times are, and a step would hang.
bool completes(const Program& program);

// Makespan in seconds.
double run_units(const Program& program, const UnitTimes& times, const StageScale& scale = {});

// The longest time from a stage's first task to its last, in seconds: what a step costs when the
// next one need not wait for every stage (2401.10241's post-validated optimizer).
double longest_stage_span(const Program& program, const UnitTimes& times,
                          const StageScale& scale = {});

// (makespan - M (F + B + W)) / makespan, the bubble rate of 2401.10241 section 5.3, with M (F+B+W)
// of the slowest stage.
double bubble_rate(const Program& program, const UnitTimes& times, const StageScale& scale = {});

}  // namespace trifold::schedule

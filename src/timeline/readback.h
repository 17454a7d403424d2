// SPDX-License-Identifier: Apache-2.0
#pragma once

// Internal to timeline/: from starts and ends to where the time went.

#include "timeline/timeline.h"

namespace trifold::timeline {

// Tasks by stage, in the order of their streams.
struct StageTasks {
  std::vector<std::vector<sim::Index>> compute, all;  // by stage
};
void sort_tasks(const schedule::StepGraph& step, StageTasks& out);

// Parts, communication, start and end of every stage; the step time and the slowest stage.
void read_time(const schedule::StepGraph& step, const sim::Outcome& outcome,
               const StageTasks& tasks, Timeline& out);
void read_critical_path(const schedule::StepGraph& step, const sim::Outcome& outcome,
                        Timeline& out);

// Peaks from allocation and free events.
void read_memory(const job::Job& job, const layout::Pipeline& pipeline,
                 const schedule::Lowered& lowered, const sim::Outcome& outcome,
                 std::vector<std::vector<Simulator::MemoryStep>>& curves, Timeline& out);

}  // namespace trifold::timeline

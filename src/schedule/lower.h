// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Job's step as a task graph: one pipeline replica, every stage, every micro-batch, operator by
// operator, on streams; with what each task is, and when activations come and go.

#include <vector>

#include "schedule/block_program.h"
#include "schedule/program.h"

namespace trifold::schedule {

// What a task is. `op` gives name and category; the graph has its work.
struct TaskInfo {
  const TimedOp* op = nullptr;
  std::int32_t microbatch = -1;
  std::int16_t chunk = -1;
  std::int16_t layer = -1;     // in its chunk; -1: none
  std::int16_t receiver = -1;  // the stage that waits for this transfer
  Work work = Work::forward;
};

// Activations of a unit appear when `task` starts (+1) or go when it ends (-1).
struct MemoryEvent {
  sim::Index task = -1;
  std::int16_t stage = 0;
  std::int16_t chunk = 0;
  std::int8_t change = 0;
  bool at_start = false;  // of the task, or at its end
};

struct StepGraph {
  sim::Graph graph;
  std::vector<TaskInfo> tasks;
  std::vector<MemoryEvent> memory;
  int stages = 0;
  bool post_validated = false;  // stages end on their own (zero bubble): no barrier at step end
};

struct Lowered {
  Program program;
  Programs programs;
  StepGraph step;
};

// Reuses the storage of `out`.
void lower(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
           const LoweringOptions& options, Lowered& out);

// The layout chunk that (stage, chunk) of a program runs.
const layout::Chunk& chunk_at(const layout::Pipeline& pipeline, const Program& program, int stage,
                              int chunk);

}  // namespace trifold::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// simulate(job): builds the step's task graph (schedule/), runs it (sim/), and reads back where the
// time went, what hid behind what, the critical path, and when memory peaks.

#include <array>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "estimate/estimate.h"
#include "schedule/lower.h"

namespace trifold::timeline {

using estimate::kComms;

struct StageTimeline {
  estimate::Time time;
  std::array<double, kComms> communication{};  // total, hidden or not
  double start_s = 0, end_s = 0;
  Bytes peak;             // weights to buffers, as memory/ counts them
  double peak_s = 0;      // when
  double peak_units = 0;  // micro-batch chunks alive then
  std::vector<int> peak_units_by_chunk;
};

struct PathShare {
  std::array<double, schedule::kCategories> by_category{};
  std::array<double, layer::kFamilies> by_family{};  // of compute and recompute
  double waiting_s = 0;                              // between a task and its cause
};

struct Timeline {
  // False: the order of units is cyclic and the step would hang (interleaving with fewer
  // micro-batches left in the last group than stages); nothing else is filled.
  bool completes = true;
  double step_time_s = 0;
  int slowest_stage = 0;  // the one that works longest
  std::vector<StageTimeline> stages;
  PathShare critical_path;
  double hidden_share = 0;     // of all communication on the slowest stage
  double ep_hidden_share = 0;  // of expert-parallel communication
  double lower_bound_s = 0;    // longest dependency path without contention
  std::size_t tasks = 0;
  memory::Memory memory;            // the closed form, for comparison with the stages' peaks
  memory::Memory simulated_memory;  // the same with the activations alive in the simulation
  // Transfers that something covered, on the slowest stage.
  double communication_hidden_s() const;
  const estimate::Time& time() const {
    return stages[static_cast<std::size_t>(slowest_stage)].time;
  }
};

struct SimulateOptions {
  schedule::LoweringOptions lowering;
  bool memory = true;
  bool check = false;  // run the independent checker; a refusal is a broken invariant
};

// Owns every buffer; keep one per thread. After run() the graph and its outcome stay for writers of
// traces.
class Simulator {
 public:
  // The Job must be legal and `pipeline` its cut (with the Job's placement).
  void run(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
           const SimulateOptions& options, Timeline& out);
  const schedule::Lowered& lowered() const { return lowered_; }
  const sim::Outcome& outcome() const { return *outcome_; }
  // Bytes of a stage over time: steps of (seconds, bytes).
  struct MemoryStep {
    double time_s = 0;
    std::int64_t bytes = 0;
  };
  const std::vector<std::vector<MemoryStep>>& memory_curves() const { return curves_; }

 private:
  schedule::Lowered lowered_;
  sim::Engine engine_;
  const sim::Outcome* outcome_ = nullptr;
  std::vector<std::vector<MemoryStep>> curves_;
};

void simulate(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
              const SimulateOptions& options, Timeline& out);

// The closed form with what the simulation found in its place: step time, its parts, communication,
// interval, throughput, and (where it was read) memory by stage.
estimate::Estimate as_estimate(const Timeline& timeline, const estimate::Estimate& closed_form);

// Keys of an estimate, plus `timeline`.
Json to_json(const Timeline& timeline, const job::Job& job, const estimate::Estimate& closed_form);

}  // namespace trifold::timeline

// SPDX-License-Identifier: Apache-2.0
#pragma once

// simulate(job): builds the step's task graph (schedule/), runs it (sim/), and reads back where the
// time went, what hid behind what, the critical path, and when memory peaks.

#include <array>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "memory/memory.h"
#include "schedule/lower.h"

namespace trifold::timeline {

// As estimate::Comm and estimate::Time: ep, tp, cp, pp, dp; the parts sum to the step.
inline constexpr int kComms = 5;
inline constexpr const char* kCommNames[kComms] = {"ep", "tp", "cp", "pp", "dp"};

struct Parts {
  double compute = 0, recompute = 0, bubble = 0, host = 0, optimizer = 0;
  std::array<double, kComms> exposed{};
  double sum() const;
};

struct StageTimeline {
  Parts time;
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
  memory::Memory memory;  // the closed form, for comparison with the stages' peaks
  // Transfers that something covered, on the slowest stage.
  double communication_hidden_s() const;
  const Parts& time() const { return stages[static_cast<std::size_t>(slowest_stage)].time; }
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

// Keys as in an estimate (step_time_s.value on top), plus `timeline`.
Json to_json(const Timeline& timeline);

}  // namespace trifold::timeline

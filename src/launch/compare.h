// SPDX-License-Identifier: Apache-2.0
#pragma once

// A prediction against the log of the run. Reads Megatron's lines (iteration time, throughput,
// memory) and says where the two differ, by how much, and which terms could explain it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trifold::launch {

struct LogIteration {
  std::int64_t number = 0, planned = 0;
  double seconds = 0;
  double tflops_per_gpu = 0;  // 0: the run did not log throughput
  std::int64_t global_batch = 0;
  std::int64_t skipped = 0, nan = 0;  // iterations skipped or not a number, as counted there
};

struct LogMemory {
  std::int64_t rank = 0, after_iterations = 0;
  double allocated_bytes = 0, peak_bytes = 0, reserved_bytes = 0, peak_reserved_bytes = 0;
};

struct TrainingLog {
  std::string file;
  std::int64_t gpus = 0, dp = 0, cp = 0, tp = 0, pp = 0;  // 0: the log does not say
  std::vector<LogIteration> iterations;
  std::vector<LogMemory> memory;
  bool cut_short = false;  // the last line breaks off, or planned iterations are missing
};

// A log without a whole iteration line is an error.
Result<TrainingLog> read_training_log(std::string_view text, const std::string& file);

// What a plan predicted, as plain numbers (estimate/ fills it at the command line).
struct PredictedTerm {
  std::string name;  // "exposed ep", "bubble", ...
  double seconds = 0;
};
struct Prediction {
  std::string plan_id;
  std::int64_t gpus = 0, tp = 0, cp = 0, pp = 0, global_batch = 0;
  double step_time_s = 0, low_s = 0, high_s = 0;
  double tflops_per_gpu = 0;
  double peak_bytes = 0, reserved_bytes = 0;  // of the stage that `memory_rank` sits on; 0: unknown
  std::vector<PredictedTerm> terms;
};

struct Deviation {
  std::string what;  // "step time", "throughput", "peak memory", "reserved memory"
  std::string unit;  // "s", "TFLOP/s/GPU", "GiB"
  double predicted = 0, measured = 0;
  double relative() const { return predicted > 0 ? measured / predicted - 1 : 0; }
};

// A term that could explain the difference alone, and how many times larger it would have to be.
struct Suspect {
  std::string name;
  double seconds = 0;
  double times = 1;
};

struct Comparison {
  std::int64_t warmup = 0, steady = 0;  // iterations left out and used
  double low_s = 0, high_s = 0;         // measured: quartiles of the steady iterations
  bool inside = false;                  // the median lies in the predicted interval
  std::vector<Deviation> deviations;
  std::vector<Suspect> suspects;  // nearest explanation first
  std::vector<std::string> notes;
  double time_factor = 1;    // measured over predicted: the site correction
  double memory_factor = 1;  // 1 where the log gives no memory
};

// Refuses a log of another run (GPUs, sizes or batch differ) and one with too few iterations.
Result<Comparison> compare(const Prediction& prediction, const TrainingLog& log);

}  // namespace trifold::launch

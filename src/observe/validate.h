// SPDX-License-Identifier: Apache-2.0
#pragma once

// Predictions beside published measurements: one row a record, then the error by whatever divides
// them.

#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "observe/observation.h"

namespace trifold::observe {

struct Row {
  const Observation* observation = nullptr;
  bool usable = false;  // at least one legal Job
  std::string reason;   // why not
  double step_time_s = 0, low_s = 0, high_s = 0;
  double tokens_per_s_per_gpu = 0, tflops_per_gpu = 0;
  double peak_bytes = 0, reserved_bytes = 0, headroom_bytes = 0;
  double relative_error = 0;             // predicted / measured throughput - 1
  double low_error = 0, high_error = 0;  // over the plausible Jobs of a record with unknown fields
  bool has_error = false;
  double memory_relative_error = 0;
  bool has_memory_error = false;
  bool in_interval = false;
};

struct Summary {
  int count = 0;
  double mean_absolute_error = 0, median_absolute_error = 0, p90_absolute_error = 0, worst = 0,
         bias = 0;
  double interval_coverage = 0;
};

// Predicted throughput over the measured one, by the figure the record states best (tflops where
// tokens are rounded).
double throughput_ratio(const Observation& observation, const estimate::Estimate& estimate);

// In closed form, or event by event (timeline/).
enum class Method : std::uint8_t { estimate, simulate };
Row predict(const Observation& observation, estimate::Estimator& estimator,
            Method method = Method::estimate);
// Each Job priced by its own profile (job/profile.h); an error where one cannot be read.
Result<std::vector<Row>> predict_all(const std::vector<Observation>& observations,
                                     const std::string& data_dir, Method method = Method::estimate);

Summary summarize(const std::vector<const Row*>& rows);
// The rows that count in the mean error: settings stated, no ladder, a throughput measured; those
// of a one-machine source only where there are no others.
std::vector<const Row*> scored(const std::vector<Row>& rows);

Json to_json(const std::vector<Row>& rows, const std::vector<Skipped>& skipped);

}  // namespace trifold::observe

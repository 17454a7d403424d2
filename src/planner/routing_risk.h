// SPDX-License-Identifier: Apache-2.0
#pragma once

// Routing as a gamble: the chance of running out of memory and the slow-down to expect under the
// Job's routing distribution, and what each lever does to the two.

#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "memory/memory.h"

namespace trifold::planner {

struct RiskRow {
  std::string lever;         // "as is", "capacity factor 1.25", ...
  double out_of_memory = 0;  // probability
  Bytes p50, p99;            // allocated peak of the worst rank
  double slow_down = 0;      // mean step time over the balanced one - 1
  double slow_down_p90 = 0;
  double imbalance = 1;    // mean over draws of the slowest rank's load over the mean
  double dropped = 0;      // share of routed tokens
  bool launchable = true;  // Megatron has the lever in this combination
  std::string note;        // what it costs, or why it does not apply
};

struct RoutingRisk {
  double balanced_step_s = 0;
  Bytes capacity;
  int draws = 0;
  std::vector<RiskRow> rows;  // [0] as is
};

// An error where the model has no experts.
Result<RoutingRisk> routing_risk(const job::Job& job, const hardware::Profile& profile, int draws);

}  // namespace trifold::planner

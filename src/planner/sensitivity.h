// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much the answer hangs on each hardware rate and each technique: the bars of a tornado.

#include <string>
#include <vector>

#include "planner/moves.h"
#include "planner/whatif.h"

namespace trifold::planner {

// A rate 10 % down and up.
struct RateBar {
  std::string key;               // of --set
  std::string name;              // "NIC bandwidth"
  double elasticity = 0;         // d ln(step time) / d ln(rate), central difference
  double low_s = 0, high_s = 0;  // step time with the rate 10 % lower, 10 % higher
  Bytes headroom_low, headroom_high;
};

// A technique or a layout axis switched.
struct TechniqueBar {
  std::string name;  // "without EP overlap", "ep 8 -> 16"
  Attack attack = Attack::geometry;
  bool removes = false;
  PointStatus status = PointStatus::fits;
  std::string reason;
  double step_time_s = 0;
  double change = 0;  // step time relative to the base - 1
  Bytes headroom_change;
};

struct Sensitivity {
  std::vector<RateBar> rates;            // the largest effect first
  std::vector<TechniqueBar> techniques;  // the largest effect first; illegal ones last
};

Sensitivity sensitivity(const job::Job& job, const hardware::Profile& profile);

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where does a number of the estimate cross a target as one field grows?

#include "planner/whatif.h"

namespace trifold::planner {

// "key=low..high": the range of a bisection.
struct Range {
  std::string key, unit;
  double low = 0, high = 0;
  bool integer = false;
};
Result<Range> parse_range(const std::string& text);

// Numbers of an estimate by name: headroom, peak, step_time, tokens_per_s_per_gpu, ep_share,
// ep_total_share, bubble_share, ... Shares are exposed time over the step unless "total".
const std::vector<std::string>& metric_names();
Result<double> metric(const std::string& name, const estimate::Estimate& estimate);

// "headroom=10GiB", "ep_share=0.05", "step_time=2.5s".
struct Target {
  std::string metric;
  double value = 0;
};
Result<Target> parse_target(const std::string& text);

struct Crossing {
  bool found = false;
  std::string key;
  double value = 0;      // where the metric meets the target: of the far side, `beyond`
  Point before, beyond;  // the neighbours: last value on the near side, first on the far side
  double at_low = 0, at_high = 0;  // the metric at the range's ends that could be priced
  int evaluations = 0;
};
// The first crossing of the target as the field goes from low to high: a coarse scan finds the
// interval, bisection narrows it (integers to neighbours that are legal, reals to 1e-4 relative).
Result<Crossing> find_crossing(WhatIf& what_if, const Range& range, const Target& target);

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Answers to what-if questions as tables and as JSON (shape: report/page_data.h).

#include <string>
#include <vector>

#include "planner/crossing.h"
#include "planner/routing_risk.h"
#include "planner/sensitivity.h"
#include "planner/whatif.h"

namespace trifold::report {

// One question and its answers; parts that were not asked for stay empty.
struct WhatIfAnswer {
  job::Job base;
  planner::Point base_point;
  std::vector<planner::Axis> axes;
  bool replan = false;
  std::vector<planner::Point> points;
  const planner::Sensitivity* sensitivity = nullptr;
  const planner::Target* target = nullptr;
  const planner::Crossing* crossing = nullptr;
  const planner::RoutingRisk* risk = nullptr;
};

std::string whatif_text(const WhatIfAnswer& answer);
Json whatif_json(const WhatIfAnswer& answer);  // trifold.whatif/1

// {"status", "rule", "reason", "fix"}
Json verdict_json(const planner::Point& point);
Json sensitivity_json(const planner::Sensitivity& sensitivity);
Json risk_json(const planner::RoutingRisk& risk);

}  // namespace trifold::report

// SPDX-License-Identifier: Apache-2.0
#pragma once

// A plan's answer: the table of candidates, why the first beats the second, the geometries side by
// side, why the rest fell.

#include <string>

#include "planner/search.h"

namespace trifold::report {

std::string plan_text(const planner::Query& query, const planner::PlanResult& result);
Json plan_json(const planner::Query& query, const planner::PlanResult& result);

// plan.json: one chosen Job with its Estimate.
Json plan_file(const planner::Candidate& plan);

}  // namespace trifold::report

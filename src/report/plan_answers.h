// SPDX-License-Identifier: Apache-2.0
#pragma once

// Answers beside the plan: the Pareto front, fewer GPUs, the smallest cluster, a named layout, the
// simulated order; as text and as JSON.

#include <optional>
#include <string>
#include <vector>

#include "planner/answers.h"

namespace trifold::report {

struct PlanAnswers {
  struct Half {
    int gpus = 0;
    std::optional<planner::Candidate> best;  // empty: nothing fits
  };
  std::optional<planner::Reranking> reranking;
  std::vector<planner::Candidate> pareto;
  std::optional<Half> half;
  double tokens_per_s = 0;  // asked for; 0: not asked
  std::optional<planner::Candidate> smallest;
  std::optional<planner::Candidate> named;
};

std::string answers_text(const PlanAnswers& answers, const planner::PlanResult& result);
void add_answers(const PlanAnswers& answers, Json& json);

}  // namespace trifold::report

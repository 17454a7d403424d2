// SPDX-License-Identifier: Apache-2.0
#include "planner/answers.h"

namespace trifold::planner {

int smallest_cluster_that_fits(const Query& query, const hardware::Profile& profile) {
  for (int factor = 2; factor <= 64; factor *= 2) {
    if (query.gpus > query.cluster.max_gpus / factor) return 0;
    Query larger = query;
    larger.gpus = query.gpus * factor;
    larger.best = 1;
    larger.first_that_fits = true;
    const Result<PlanResult> result = plan(larger, profile);
    if (result && !result->plans.empty()) return larger.gpus;
  }
  return 0;
}

}  // namespace trifold::planner

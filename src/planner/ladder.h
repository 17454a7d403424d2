// SPDX-License-Identifier: Apache-2.0
#pragma once

// The order of attack as a ladder: from a naive baseline to a plan, what each step buys in time and
// memory, which wall binds before and after it, and the next best step beyond the plan.

#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "job/legality.h"
#include "planner/explain.h"
#include "planner/moves.h"

namespace trifold::planner {

struct LadderStep {
  Attack attack = Attack::baseline;
  std::string name;  // "parallel layout: tp 8 etp 8 -> tp 1 ep 64"
  job::Job job;      // after the step
  estimate::Estimate estimate;
  Wall wall_before = Wall::compute, wall = Wall::compute;
  double gain_s = 0;  // step time saved by it; negative where it costs
  Bytes freed;        // of the worst stage's peak
  bool fits = false;
};

struct NextStep {
  Attack attack = Attack::geometry;
  std::string name;
  job::Job job;
  estimate::Estimate estimate;
  double gain_s = 0;
  Bytes freed;
};

struct Ladder {
  std::vector<LadderStep> steps;  // [0] the baseline; the last is the plan
  std::vector<NextStep> next;     // faster ones first, at most five; legal and fitting
};

// What a recipe for dense models would do with this model, cluster and batch: tensor parallelism
// over eight GPUs for attention and experts alike (less where an expert's shard would be narrower
// than 1,024 columns), experts over data parallelism (classic EP), no virtual stages, all-to-all
// dispatch, nothing overlapped, fused, captured, bound or compressed, BF16, and full recompute
// where it does not fit without.
job::Job naive_baseline(const job::Job& plan, const hardware::Profile& profile);

// `from`: climb from this Job instead (same model, GPUs, batch); nullptr: naive_baseline. Both must
// be legal for some runtime.
Result<Ladder> climb(const job::Job& plan, const job::Job* from, const hardware::Profile& profile);

}  // namespace trifold::planner

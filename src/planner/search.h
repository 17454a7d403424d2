// SPDX-License-Identifier: Apache-2.0
#pragma once

// The search: every legal point of the space, in effect, by bounds that keep the optimum.

#include <map>
#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "planner/space.h"

namespace trifold::planner {

// The geometries that people argue about, side by side.
enum class GeometryClass : std::uint8_t { sp_ep, parallel_folding, classic_ep, fsdp_ep, dense };
inline constexpr Token<GeometryClass> kGeometryClasses[] = {
    {GeometryClass::sp_ep, "MegaScale SP+EP"},
    {GeometryClass::parallel_folding, "Parallel Folding"},
    {GeometryClass::classic_ep, "classic EP <= DP"},
    {GeometryClass::fsdp_ep, "FSDP+EP"},
    {GeometryClass::dense, "dense"}};
inline constexpr int kGeometryClassCount = 5;
GeometryClass classify(const job::Job& job);

struct Candidate {
  job::Job job;
  estimate::Estimate estimate;
  bool launchable = true;  // Megatron can run it
  job::Verdict verdict;    // Megatron's, when it is not
  bool tie = false;        // its interval reaches the best's value
};

struct PlanResult {
  std::vector<Candidate> plans;  // best first, one a layout
  std::vector<Candidate>
      not_launchable;  // better ones that only another runtime could run (runtime megatron)
  std::map<GeometryClass, Candidate> geometries;
  double space = 0;  // points before any pruning
  double considered =
      0;  // points that a rule, a bound or an evaluation decided: all of them, unless cut short
  std::int64_t legal = 0;                  // evaluated for memory
  std::int64_t fits = 0;                   // of those
  std::int64_t evaluations = 0;            // step times computed
  std::map<std::string, double> rejected;  // reason -> points
  bool complete = true;                    // false: max_evaluations ended it
  // Nothing fits: the smallest shortage seen, and by which layout.
  std::int64_t smallest_shortage_bytes = 0;
  std::string tightest_layout;
};

// The whole answer: the search for the query's runtime and, for Megatron, what another runtime
// could do better.
Result<PlanResult> plan(const Query& query, const hardware::Profile& profile);
// One runtime's search.
Result<PlanResult> search(const Query& query, const hardware::Profile& profile);

// The smallest multiple of the query's GPUs (x2, x4, ... up to x64) on which something fits; 0:
// none.
int smallest_cluster_that_fits(Query query, const hardware::Profile& profile);

}  // namespace trifold::planner

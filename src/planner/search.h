// SPDX-License-Identifier: Apache-2.0
#pragma once

// The search: every legal point of the space, in effect, by bounds that keep the optimum.

#include <map>
#include <string>
#include <vector>

#include "planner/explore.h"

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

struct PlanResult {
  std::vector<Candidate> plans;  // best first, one a geometry
  // Better ones that only another runtime could run (runtime megatron).
  std::vector<Candidate> not_launchable;
  std::map<GeometryClass, Candidate> geometries;
  double fastest_s = 0;    // the fastest point of the space that the runtime runs and that fits
  double space = 0;        // points before any pruning
  double considered = 0;   // points that a rule, a bound or an evaluation decided
  std::int64_t legal = 0;  // evaluated for memory
  std::int64_t fits = 0;   // of those
  std::int64_t evaluations = 0;            // step times computed
  std::map<std::string, double> rejected;  // reason -> points; with the plans, the whole space
  bool complete = true;                    // false: max_evaluations ended it
  // Nothing fits: the smallest shortage seen, and by which layout.
  std::int64_t smallest_shortage_bytes = 0;
  std::string tightest_layout;
};

// One search answers for the query's runtime and, for Megatron, what another runtime could do
// better.
Result<PlanResult> plan(const Query& query, const hardware::Profile& profile);

}  // namespace trifold::planner

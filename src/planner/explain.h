// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why: the term that decides between two plans, the wall that binds one, the words for a verdict.

#include <string>

#include "estimate/estimate.h"
#include "job/legality.h"

namespace trifold::planner {

// A rejection in the histogram: "GRID-01 world size is not divisible by ...".
std::string reason_of(const job::Verdict& verdict);

// The part of the step time that separates `winner` from `loser` most: name and seconds saved
// (winner is ahead by them).
struct DecidingTerm {
  std::string name;
  double seconds = 0;
};
DecidingTerm deciding_term(const estimate::Estimate& winner, const estimate::Estimate& loser);

enum class Wall : std::uint8_t { compute, communication, memory, bubble, host };
inline constexpr Token<Wall> kWalls[] = {{Wall::compute, "compute"},
                                         {Wall::communication, "communication"},
                                         {Wall::memory, "memory"},
                                         {Wall::bubble, "pipeline bubble"},
                                         {Wall::host, "host"}};
// What stops a plan from being faster: memory when under 5 % of capacity is left or it pays for
// recompute; otherwise the largest share of the step that is not useful compute, when above 15 %;
// else compute.
Wall binding_wall(const estimate::Estimate& estimate);

}  // namespace trifold::planner

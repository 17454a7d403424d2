// SPDX-License-Identifier: Apache-2.0
#include "planner/tally.h"

namespace trifold::planner {

const char* words(Fall fall) {
  switch (fall) {
    case Fall::heads_twice:
      return "tp and Ulysses both split the heads";
    case Fall::grid:
      return "GPUs do not divide by tp x cp x pp";
    case Fall::expert_grid:
      return "GPUs do not divide by etp x ep x pp";
    case Fall::batch:
      return "the batch does not divide by micro-batch x dp";
    case Fall::order_single:
      return "rank order: one pipeline stage, nothing to place";
    case Fall::order_grids:
      return "GRID-04: rank order tp-cp-ep-pp-dp needs tp x cp = etp x ep";
    case Fall::order_no_gain:
      return "rank order: the pipeline crosses domains either way, data parallelism would too";
    case Fall::depth_single:
      return "one pipeline stage: no interleaving and no other schedule";
    case Fall::depth_layers:
      return "more chunks than layers";
    case Fall::no_cut:
      return "no cut of the layers fills every chunk";
    case Fall::states:
      return "memory: weights, gradients and optimizer alone do not fit";
    case Fall::least_memory:
      return "memory: does not fit with everything recomputed";
    case Fall::memory:
      return "memory: does not fit";
    case Fall::headroom_not_short:
      return "slower: saves memory that is not short";
    case Fall::bound_geometry:
      return "slower: lower bound of the geometry";
    case Fall::bound_variant:
      return "slower: lower bound of schedule and transport";
    case Fall::bound_saving:
      return "slower: lower bound with this recompute";
    case Fall::slower:
      return "slower: step time computed";
  }
  return "";
}

void Tally::merge(const Tally& other) {
  for (std::size_t i = 0; i < falls.size(); ++i) falls[i] += other.falls[i];
  for (const auto& [rule, points] : other.rules) rules[rule] += points;
}

std::map<std::string, double> Tally::by_reason() const {
  std::map<std::string, double> reasons;
  for (std::size_t i = 0; i < falls.size(); ++i)
    if (falls[i] > 0) reasons[words(static_cast<Fall>(i))] += falls[i];
  for (const auto& [rule, points] : rules)
    reasons[std::string(rule->id) + ": " + rule->reason] += points;
  return reasons;
}

}  // namespace trifold::planner

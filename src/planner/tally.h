// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why points of the space fell, and how many: every point is counted once, under what decided it.

#include <array>
#include <map>
#include <string>
#include <unordered_map>

#include "job/legality.h"

namespace trifold::planner {

enum class Fall : std::uint8_t {
  heads_twice,
  grid,
  expert_grid,
  batch,
  order_single,
  order_grids,
  order_no_gain,
  depth_single,
  depth_layers,
  no_cut,
  states,
  least_memory,
  memory,
  headroom_not_short,
  bound_geometry,
  bound_variant,
  bound_saving,
  slower
};
inline constexpr int kFalls = 18;
const char* words(Fall fall);

struct Tally {
  std::array<double, kFalls> falls{};
  std::unordered_map<const job::Rule*, double> rules;
  void add(Fall fall, double points) { falls[static_cast<std::size_t>(fall)] += points; }
  void add(const job::Verdict& verdict, double points) { rules[verdict.rule] += points; }
  void merge(const Tally& other);
  std::map<std::string, double> by_reason() const;
};

}  // namespace trifold::planner

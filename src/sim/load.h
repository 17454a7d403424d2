// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tasks that run side by side in one domain do to each other. A Load says, for each of the
// domain's resources (capacity 1): the share that the task uses at full speed, the share it holds
// however slow it is, and how far it slows when others load the resource. Rates come from
// progressive filling: every task speeds up together until a resource it uses is full.

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace trifold::sim {

inline constexpr int kResources = 6;
inline constexpr int kMaxBeside = 12;  // tasks of one domain at once (its streams)

struct Load {
  std::array<double, kResources> use{};
  std::array<double, kResources> hold{};
  std::array<double, kResources> sensitivity{};  // speed <= 1 / (1 + sensitivity x others' use)
  // Work that comes in this many whole rounds on resource 0 at full capacity: on a share x of it,
  // ceil(rounds / x) rounds are needed. 0: fluid. `grain` is how much of that step shows: the time
  // is grain x stepped + (1 - grain) x fluid.
  double rounds = 0;
  double grain = 1;
  // Share of resource 0 that a task with `hold` cannot get until this one ends (no pre-emption).
  double fill = 0;

  bool contends() const;
  bool operator==(const Load&) const = default;
};

// Rates are fixed-point: rate / kFull of full speed.
using Rate = std::int32_t;
inline constexpr Rate kFull = 1 << 20;

class LoadTable {
 public:
  // At most 255 loads; index 0 is the load that shares nothing.
  LoadTable();
  std::uint8_t add(const Load& load);  // an equal load keeps its index
  const Load& operator[](std::uint8_t i) const { return loads_[i]; }
  std::size_t size() const { return loads_.size(); }
  bool contended() const { return contended_; }  // false: every rate is 1

  // Rates of `count` tasks side by side. Deterministic; independent of the order of `loads`.
  void rates(const std::uint8_t* loads, int count, Rate* out) const;

 private:
  std::vector<Load> loads_;
  bool contended_ = false;
};

}  // namespace trifold::sim

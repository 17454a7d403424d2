// SPDX-License-Identifier: Apache-2.0
// Progressive filling with caps (max-min fairness; Bertsekas and Gallager, Data Networks, 6.5.2):
// rates rise together; a task stops at its own cap, or when a resource that it uses is full.
// Capacity is what others' holds leave.
#include "sim/load.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trifold::sim {
namespace {

constexpr double kTiny = 1e-12;

// Highest speed on a share `x` of resource 0 of work in whole rounds.
double round_speed(const Load& load, double x) {
  if (x >= 1) return 1;
  if (x <= kTiny) return kTiny;
  const double stepped = std::ceil(load.rounds / x - kTiny) / std::ceil(load.rounds - kTiny);
  return 1 / (load.grain * stepped + (1 - load.grain) / x);
}

}  // namespace

bool Load::contends() const {
  for (int r = 0; r < kResources; ++r)
    if (use[r] > 0 || hold[r] > 0 || sensitivity[r] > 0) return true;
  return false;
}

LoadTable::LoadTable() { loads_.push_back({}); }

std::uint8_t LoadTable::add(const Load& load) {
  for (std::size_t i = 0; i < loads_.size(); ++i)
    if (loads_[i] == load) return static_cast<std::uint8_t>(i);
  TRIFOLD_CHECK(loads_.size() < 255);
  loads_.push_back(load);
  contended_ = contended_ || load.contends();
  return static_cast<std::uint8_t>(loads_.size() - 1);
}

void LoadTable::rates(const std::uint8_t* loads, int count, Rate* out) const {
  TRIFOLD_CHECK(count <= kMaxBeside);
  if (count == 1) {
    out[0] = kFull;
    return;
  }
  std::array<double, kResources> capacity, total_use{}, total_hold{};
  for (int i = 0; i < count; ++i)
    for (int r = 0; r < kResources; ++r) {
      total_use[r] += loads_[loads[i]].use[r];
      total_hold[r] += loads_[loads[i]].hold[r];
    }
  for (int r = 0; r < kResources; ++r) capacity[r] = std::max(0.0, 1 - total_hold[r]);
  double cap[kMaxBeside], rate[kMaxBeside];
  bool frozen[kMaxBeside];
  for (int i = 0; i < count; ++i) {
    const Load& load = loads_[loads[i]];
    double slow = 1;
    for (int r = 0; r < kResources; ++r)
      slow += load.sensitivity[r] * std::min(1.0, total_use[r] - load.use[r]);
    cap[i] = 1 / slow;
    if (load.rounds > 0 && load.use[0] > 0)
      cap[i] *= round_speed(load, std::min(1.0, capacity[0] / load.use[0]));
    rate[i] = 0;
    frozen[i] = false;
  }
  for (int open = count; open > 0;) {
    double step = 1;
    for (int i = 0; i < count; ++i)
      if (!frozen[i]) step = std::min(step, cap[i] - rate[i]);
    for (int r = 0; r < kResources; ++r) {
      double use = 0;
      for (int i = 0; i < count; ++i)
        if (!frozen[i]) use += loads_[loads[i]].use[r];
      if (use > kTiny) step = std::min(step, std::max(0.0, capacity[r] / use));
    }
    for (int i = 0; i < count; ++i) {
      if (frozen[i]) continue;
      rate[i] += step;
      for (int r = 0; r < kResources; ++r) capacity[r] -= step * loads_[loads[i]].use[r];
    }
    for (int i = 0; i < count; ++i) {
      if (frozen[i]) continue;
      bool full = rate[i] >= cap[i] - kTiny;
      for (int r = 0; r < kResources; ++r)
        full = full || (loads_[loads[i]].use[r] > 0 && capacity[r] <= 1e-9);
      if (full) frozen[i] = true, --open;
    }
  }
  for (int i = 0; i < count; ++i)
    out[i] = std::clamp(static_cast<Rate>(rate[i] * kFull + 0.5), Rate{1}, kFull);
}

}  // namespace trifold::sim

// SPDX-License-Identifier: Apache-2.0
#include "planner/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace trifold::planner {

std::string reason_of(const job::Verdict& verdict) {
  return std::string(verdict.rule->id) + ": " + verdict.rule->reason;
}

DecidingTerm deciding_term(const estimate::Estimate& winner, const estimate::Estimate& loser) {
  std::vector<std::pair<std::string, double>> terms = loser.time.terms();
  const auto saved = winner.time.terms();
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i].second -= saved[i].second;
  const auto most = std::max_element(
      terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool exposed = most->first.rfind("exposed", 0) == 0;
  return {most->first + (exposed ? " communication" : ""), most->second};
}

Wall binding_wall(const estimate::Estimate& e) {
  const double capacity = static_cast<double>(e.memory.capacity.value());
  const bool full = static_cast<double>(e.memory.headroom.value()) < 0.05 * capacity;
  if (full || e.time.recompute > 0.05 * e.step_time_s) return Wall::memory;
  double communication = 0;
  for (double exposed : e.time.exposed) communication += exposed;
  const std::array<std::pair<Wall, double>, 3> losses = {{{Wall::communication, communication},
                                                          {Wall::bubble, e.time.bubble},
                                                          {Wall::host, e.time.host}}};
  const auto most =
      std::max_element(losses.begin(), losses.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->second > 0.15 * e.step_time_s ? most->first : Wall::compute;
}

}  // namespace trifold::planner

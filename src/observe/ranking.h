// SPDX-License-Identifier: Apache-2.0
#pragma once

// Records that differ only in layout or technique: would we have picked the winner?

#include <optional>
#include <string>
#include <vector>

#include "observe/validate.h"

namespace trifold::observe {

// Two Jobs of a group; throughput of the first over the second.
struct RankedPair {
  const Observation *first = nullptr, *second = nullptr;
  double measured = 1, predicted = 1;
  bool clear() const;  // measured more than 5 % apart
  bool ordered() const { return (measured - 1) * (predicted - 1) > 0; }
};

struct RankedGroup {
  std::string name;  // model, cluster, GPUs, precision, sequence length, global batch, routing
  const Observation *best = nullptr, *chosen = nullptr;  // measured and predicted fastest
  double regret = 0;  // measured throughput lost by running `chosen` and not `best`, relative
  // Predicted throughput that the Job of the fastest run lacks of the predicted fastest, relative,
  // among the Jobs whose settings are stated; nothing where they are fewer than two.
  std::optional<double> shortfall;
  std::vector<RankedPair> pairs;
};
// Identical Jobs are collapsed to their mean; a group has two Jobs or more. Rows without a
// prediction and known regressions are left out.
std::vector<RankedGroup> ranked_groups(const std::vector<Row>& rows);

struct Ranking {
  int groups = 0, best_found = 0;
  int chosen_within_3_percent = 0;                   // by measurement: regret
  int stated_groups = 0, best_within_3_percent = 0;  // by prediction: shortfall
  int pairs = 0, pairs_ordered = 0;                  // all pairs
  int clear_pairs = 0, clear_ordered = 0;
  double mean_regret = 0, worst_regret = 0, worst_shortfall = 0;
};
Ranking rank(const std::vector<RankedGroup>& groups);

}  // namespace trifold::observe

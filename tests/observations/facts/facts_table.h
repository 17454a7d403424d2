// SPDX-License-Identifier: Apache-2.0
#pragma once

// Published times beside ours: one line a number, one summary line a source, each source held to a
// bound on its mean.

#include <string>
#include <vector>

#include "cost/price.h"
#include "hardware/profile.h"
#include "tests/observations/shared_data.h"

namespace trifold::facts {

using shared_data::have_shared;
using shared_data::read;
using shared_data::shared;

struct Row {
  std::string source;  // rows of one source stand under one summary line
  std::string id, what;
  double published = 0, predicted = 0;  // seconds
  double error() const { return predicted / published - 1; }
};

// Relative errors; all but `bias` (the mean signed one) are of absolute values.
struct Summary {
  int rows = 0;
  double mean = 0, median = 0, worst = 0, bias = 0;
};
Summary summarise(const std::vector<Row>& rows);

// A source as the table prints it: was a profile fitted on its rows, and the largest mean error
// that passes.
struct Source {
  std::string name, fitted;
  double bound = 0.15;
};
// Prints every row (where `rows_too`), then a line a source in the order of `sources`; a source
// without rows, or with a mean beyond its bound, fails the running test; so does the mean of all
// rows beyond `all_bound` (0: not judged).
void judge(const std::string& title, const std::vector<Row>& rows,
           const std::vector<Source>& sources, bool rows_too = true, double all_bound = 0);

const Json& facts();  // observations/facts.json

// A profile as a benchmark meets its GPU: constants that stand for hours of training (power, waits
// for metadata and for the slowest rank, gaps between a framework's kernels) at their neutral
// values.
hardware::Profile benchmark_profile(const std::string& name);

}  // namespace trifold::facts

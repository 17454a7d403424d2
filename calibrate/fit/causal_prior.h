// SPDX-License-Identifier: Apache-2.0
#pragma once

// Causal attention before its points are smoothed: what is believed where none was measured.

#include <map>
#include <vector>

#include "calibrate/fit/grid_fit.h"

namespace trifold::fit {

// u = level(d) s / (s + s_half) c / (c + c_half), c = heads_batch s / 128 query tiles.
// A tile of 128 queries pays a fixed cost beside its keys (s_half), and the last tiles leave
// multiprocessors idle (c_half); the level is what a head dim's inner loop reaches.
struct CausalPrior {
  double s_half = 1000, c_half = 100;
  std::map<double, double> level;  // by head dim; between and beyond: the nearest
  double operator()(double sequence, double head_dim, double heads_batch) const;
};
// Two halves by search (c_half only where it is not given), levels by median. At least one sample.
CausalPrior fit_causal_prior(const std::vector<Sample>& samples, double c_half = 0);

// c / (c + c_half): the share of a kernel's time in which the multiprocessors have tiles.
double busy_share(double sequence, double heads_batch, double c_half);

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/causal_prior.h"

#include <cmath>

#include "base/check.h"
#include "calibrate/fit/solve.h"

namespace trifold::fit {

namespace {

constexpr double kTileRows = 128;

double shape_of(double s_half, double c_half, double sequence, double heads_batch) {
  return sequence / (sequence + s_half) * busy_share(sequence, heads_batch, c_half);
}

std::map<double, double> levels(const std::vector<Sample>& samples, double s_half, double c_half) {
  std::map<double, std::vector<double>> by_dim;
  for (const Sample& s : samples)
    by_dim[s.y].push_back(std::log(s.u / shape_of(s_half, c_half, s.x, s.z)));
  std::map<double, double> out;
  for (auto& [dim, logs] : by_dim) out[dim] = std::exp(quantile(logs, 0.5));
  return out;
}

}  // namespace

double CausalPrior::operator()(double sequence, double head_dim, double heads_batch) const {
  auto at = level.lower_bound(head_dim);
  if (at == level.end() ||
      (at != level.begin() && at->first - head_dim > head_dim - std::prev(at)->first))
    --at;
  return at->second * shape_of(s_half, c_half, sequence, heads_batch);
}

double busy_share(double sequence, double heads_batch, double c_half) {
  const double tiles = heads_batch * sequence / kTileRows;
  return tiles / (tiles + c_half);
}

CausalPrior fit_causal_prior(const std::vector<Sample>& samples, double c_half) {
  TRIFOLD_CHECK(!samples.empty());
  const auto unpack = [&](const std::vector<double>& p) {
    CausalPrior prior;
    prior.s_half = std::exp(p[0]);
    prior.c_half = c_half > 0 ? c_half : std::exp(p[1]);
    prior.level = levels(samples, prior.s_half, prior.c_half);
    return prior;
  };
  const auto loss = [&](const std::vector<double>& p) {
    const CausalPrior prior = unpack(p);
    double sum = 0;
    for (const Sample& s : samples)
      sum += s.weight * huber(std::log(s.u / prior(s.x, s.y, s.z)), 0.2);
    return sum;
  };
  // From less than a tile to beyond any sequence; from no loss to many waves of the GPU.
  const std::vector<Box> box = {{std::log(16.0), std::log(16384.0)},
                                {std::log(1.0), std::log(4096.0)}};
  return unpack(box_search(loss, {std::log(1000.0), std::log(100.0)}, box));
}

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/math.h"
#include "base/random.h"
#include "layer/expert_load.h"
#include "memory/stage.h"

// The worst rank's peak as a distribution.
//
// A stage's peak is linear in the tokens that a rank's experts hold, averaged over the MoE layers
// in flight (with a paged stash: up to its size, and flatter beyond), so it is read between a few
// loads x, in units of the balanced one, at which evaluate() is asked. A sample draws the shares of
// the experts of every MoE layer of a stage, adds each rank's, averages over the layers, and takes
// the rank that is worst: no rank is the worst in every layer, which is why this is less than
// evaluate()'s upper bound. Token noise within a micro-batch (multinomial) is below 1 % at the
// sizes of training and left out. Natural routing without a stated distribution: expert loads
// lognormal with the coefficient of variation of expert_load.cc's prior, read back from its
// imbalance.

namespace trifold::memory {

namespace {

struct Sampler {
  const job::Job& job;
  Random random;
  std::vector<double> shares, layer_ranks;
  double variation = 0;  // of one expert's load, for the prior

  // Loads of one layer's experts, mean 1.
  void draw() {
    const job::Routing& r = job.techniques.routing;
    const auto n = static_cast<std::size_t>(job.model.moe.experts);
    switch (r.distribution) {
      case job::LoadDistribution::dirichlet:
        shares = dirichlet_shares(static_cast<int>(n), r.parameters.empty() ? 1.0 : r.parameters[0],
                                  random);
        break;
      case job::LoadDistribution::zipf:
        shares = zipf_shares(static_cast<int>(n), r.parameters.empty() ? 1.0 : r.parameters[0]);
        break;
      case job::LoadDistribution::histogram:
        shares = r.parameters;
        break;
      case job::LoadDistribution::balanced: {
        const double sigma = std::sqrt(std::log(1 + variation * variation));
        shares.resize(n);
        for (double& s : shares) s = std::exp(sigma * random.normal() - sigma * sigma / 2);
        break;
      }
    }
    shares.resize(n, 0.0);
    for (std::size_t i = n; i > 1; --i) std::swap(shares[i - 1], shares[random.below(i)]);
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    const double mean = sum / static_cast<double>(n);
    const double most = r.capacity_factor > 0 ? r.capacity_factor : static_cast<double>(n);
    // A token picks an expert at most once: no load above experts / top_k.
    const double cap =
        std::min(most, static_cast<double>(n) / static_cast<double>(job.model.moe.top_k));
    for (double& s : shares) s = mean > 0 ? std::min(s / mean, cap) : 1.0;
  }

  // Adds each rank's mean expert load, after ECHO's clones.
  void add_ranks(std::vector<double>& ranks) {
    draw();
    const std::size_t local = shares.size() / ranks.size();
    layer_ranks.assign(ranks.size(), 0.0);
    for (std::size_t e = 0; e < shares.size(); ++e)
      layer_ranks[e / local] += shares[e] / static_cast<double>(local);
    layer::balance_with_clones(layer_ranks, job.techniques.routing.echo_spare_experts);
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] += layer_ranks[r];
  }
};

bool routing_varies(const job::Job& job) {
  const job::Routing& r = job.techniques.routing;
  if (!job.model.is_moe() || r.padded()) return false;
  return r.distribution != job::LoadDistribution::balanced || r.balance == job::Balance::natural;
}

double prior_variation(const job::Job& job) {
  const layer::ExpertLoad load = layer::expert_load(job);
  const double worst = std::sqrt(2 * std::log(static_cast<double>(std::max(job.layout.ep, 2))));
  return std::max(0.0, load.imbalance - 1) / worst * std::sqrt(load.experts_per_rank);
}

// Loads at which evaluate() is asked; 1.1 is where a paged stash stops growing (sizes.cc).
constexpr std::array<double, 4> kKnots = {0, 1, 1.1, 8};

std::size_t segment_of(double load) {
  std::size_t i = 0;
  while (i + 2 < kKnots.size() && load > kKnots[i + 1]) ++i;
  return i;
}

Bytes quantile(const std::vector<Bytes>& sorted, double q) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::llround(q * last))];
}

}  // namespace

OutOfMemoryRisk out_of_memory_risk(const job::Job& job, const layout::Pipeline& pipeline,
                                   int samples) {
  job::Job even = job;
  even.techniques.routing.distribution = job::LoadDistribution::balanced;
  even.techniques.routing.balance = job::Balance::forced;
  std::array<Memory, kKnots.size()> at_knot;
  for (std::size_t i = 0; i < kKnots.size(); ++i)
    evaluate_scaled(even, pipeline, kKnots[i], at_knot[i]);
  const Memory& one = at_knot[1];
  OutOfMemoryRisk risk;
  risk.balanced = one.peak;
  risk.worst_stage = one.worst_stage;
  risk.samples = routing_varies(job) ? std::max(samples, 1) : 1;

  Sampler sampler{job,
                  Random(static_cast<std::uint64_t>(job.techniques.routing.seed) + 17),
                  {},
                  {},
                  job.techniques.routing.distribution == job::LoadDistribution::balanced
                      ? prior_variation(job)
                      : 0.0};
  std::vector<Bytes> peaks;
  std::vector<int> worst_at(one.stages.size(), 0);
  std::vector<double> ranks(static_cast<std::size_t>(std::max(job.layout.ep, 1)));
  int out = 0;
  for (int i = 0; i < risk.samples; ++i) {
    Bytes worst, reserved;
    std::size_t where = 0;
    for (std::size_t stage = 0; stage < one.stages.size(); ++stage) {
      int layers = 0;
      for (int k = 0; k < pipeline.vpp; ++k) {
        const layout::Chunk& c = pipeline.at(static_cast<int>(stage), k);
        layers += c.of_kind[1] + c.of_kind[3];
      }
      double load = 1;
      if (layers > 0 && risk.samples > 1) {
        std::fill(ranks.begin(), ranks.end(), 0.0);
        for (int l = 0; l < layers; ++l) sampler.add_ranks(ranks);
        load = *std::max_element(ranks.begin(), ranks.end()) / layers;
      }
      const std::size_t knot = segment_of(load);
      const StageMemory &a = at_knot[knot].stages[stage], &b = at_knot[knot + 1].stages[stage];
      const double way = (load - kKnots[knot]) / (kKnots[knot + 1] - kKnots[knot]);
      const auto at = [way](Bytes low, Bytes high) {
        return low + Bytes(std::llround(way * static_cast<double>((high - low).value())));
      };
      if (at(a.peak, b.peak) > worst) worst = at(a.peak, b.peak), where = stage;
      reserved = std::max(reserved, at(a.reserved, b.reserved));
    }
    peaks.push_back(worst);
    ++worst_at[where];
    if (reserved > one.capacity) ++out;
  }
  std::sort(peaks.begin(), peaks.end());
  risk.p50 = quantile(peaks, 0.5), risk.p90 = quantile(peaks, 0.9);
  risk.p99 = quantile(peaks, 0.99), risk.max = peaks.back();
  risk.probability = static_cast<double>(out) / risk.samples;
  risk.worst_stage =
      static_cast<int>(std::max_element(worst_at.begin(), worst_at.end()) - worst_at.begin());
  return risk;
}

}  // namespace trifold::memory

// SPDX-License-Identifier: Apache-2.0

// Tokens per expert are a share of all routed copies of the EP group; a rank's load is the sum over
// its experts.
//
// Stated distributions (zipf, dirichlet, histogram) give the shares; experts are dealt to ranks in
// a seeded order, and no expert can hold more than 1/top_k of the copies (a token picks it at most
// once). Forced balance is exactly even. Natural routing without a distribution: expert loads
// scatter with a coefficient of variation of about 1.2 around their mean (auxiliary-loss-balanced
// training; assumed, from the 15-40 % slow-downs of natural against forced routing in
// shared/data/observations), independent between experts, so a rank of q experts scatters by 1.2 /
// sqrt(q) and the worst of r ranks lies about sqrt(2 ln r) deviations up.

#include "layer/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/math.h"
#include "base/random.h"
#include "layer/shape.h"

namespace trifold::layer {

namespace {

constexpr double kNaturalExpertVariation = 1.2;

std::vector<double> expert_shares(const job::Routing& routing, const model::Moe& moe) {
  const int experts = static_cast<int>(moe.experts);
  Random random(static_cast<std::uint64_t>(routing.seed) + 1);
  std::vector<double> shares;
  switch (routing.distribution) {
    case job::LoadDistribution::zipf:
      shares = zipf_shares(experts, routing.parameters.empty() ? 1.0 : routing.parameters[0]);
      break;
    case job::LoadDistribution::dirichlet:
      shares = dirichlet_shares(experts, routing.parameters.empty() ? 1.0 : routing.parameters[0],
                                random);
      break;
    case job::LoadDistribution::histogram:
      shares = routing.parameters;
      break;
    case job::LoadDistribution::balanced:
      break;
  }
  shares.resize(static_cast<std::size_t>(experts), shares.empty() ? 1.0 / experts : 0.0);
  for (std::size_t i = shares.size(); i > 1; --i) std::swap(shares[i - 1], shares[random.below(i)]);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum > 0 ? sum : 1;
  // No expert above 1/top_k: the surplus goes to the others in proportion.
  const double cap = 1.0 / static_cast<double>(moe.top_k);
  for (int round = 0; round < 32; ++round) {
    double surplus = 0, rest = 0;
    for (double& share : shares) {
      surplus += std::max(0.0, share - cap);
      share = std::min(share, cap);
      if (share < cap) rest += share;
    }
    if (surplus < 1e-12 || rest <= 0) break;
    for (double& share : shares)
      if (share < cap) share *= 1 + surplus / rest;
  }
  return shares;
}

}  // namespace

void balance_with_clones(std::vector<double>& ranks, int spare_per_rank) {
  for (std::size_t slot = 0; slot < ranks.size() * static_cast<std::size_t>(spare_per_rank);
       ++slot) {
    const auto hot = std::max_element(ranks.begin(), ranks.end());
    const auto cold = std::min_element(ranks.begin(), ranks.end());
    const double moved = (*hot - *cold) / 2;
    *hot -= moved;
    *cold += moved;
  }
}

int token_alignment(job::Precision precision) {
  switch (precision) {
    case job::Precision::bf16:
      return 1;
    case job::Precision::mxfp8:
      return 32;
    case job::Precision::nvfp4:
      return 128;
    default:
      return 16;
  }
}

ExpertLoad expert_load(const job::Job& job) {
  ExpertLoad load;
  const model::Moe& moe = job.model.moe;
  if (moe.experts == 0) return load;
  const job::Routing& routing = job.techniques.routing;
  const int ep = job.layout.ep;
  load.experts_per_rank = static_cast<int>(moe.experts) / ep;
  const double per_rank =
      shape_of(job).local_tokens * static_cast<double>(moe.top_k) * job.layout.etp;
  load.tokens_per_rank = per_rank;

  if (routing.distribution != job::LoadDistribution::balanced) {
    const std::vector<double> shares = expert_shares(routing, moe);
    const double cap = routing.capacity_factor > 0
                           ? routing.capacity_factor / static_cast<double>(moe.experts)
                           : 1.0;
    std::vector<double> ranks(static_cast<std::size_t>(ep));
    for (std::size_t e = 0; e < shares.size(); ++e) {
      ranks[e / static_cast<std::size_t>(load.experts_per_rank)] += std::min(shares[e], cap);
      load.dropped_share += std::max(0.0, shares[e] - cap);
    }
    balance_with_clones(ranks, routing.echo_spare_experts);
    load.imbalance = std::max(1.0, *std::max_element(ranks.begin(), ranks.end()) * ep);
  } else if (routing.balance == job::Balance::natural) {
    const double deviation =
        kNaturalExpertVariation / std::sqrt(static_cast<double>(load.experts_per_rank));
    load.imbalance = 1 + deviation * std::sqrt(2 * std::log(static_cast<double>(std::max(ep, 1))));
    if (routing.capacity_factor > 0)
      load.imbalance = std::min(load.imbalance, routing.capacity_factor);
  }
  if (routing.padded()) load.imbalance = routing.capacity_factor;

  load.max_tokens_per_rank = per_rank * load.imbalance;
  const double padding = (token_alignment(job.training.precision) - 1) / 2.0;
  load.padded_tokens_per_rank = load.max_tokens_per_rank + load.experts_per_rank * padding;
  return load;
}

}  // namespace trifold::layer

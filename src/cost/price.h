// SPDX-License-Identifier: Apache-2.0
#pragma once

// What operators cost on a GPU, its links and its host, from a Profile. Prices are of an operator
// alone, at sustained clocks; overlap and contention are estimate/'s and timeline/'s business.

#include <array>
#include <unordered_map>

#include "hardware/fabric.h"
#include "hardware/profile.h"
#include "layer/block.h"

namespace trifold::cost {

struct Price {
  double seconds = 0;  // device time, kernel gaps included
  hardware::Basis basis = hardware::Basis::assumed;
  double error = 0.2;  // one sigma, relative
};

// A block's price by segment, pass and family; kernels and host operations by segment and pass.
struct BlockCost {
  std::array<std::array<std::array<double, layer::kFamilies>, layer::kPasses>, layer::kSegments>
      seconds{};
  std::array<std::array<float, layer::kPasses>, layer::kSegments> kernels{};
  std::array<std::array<float, layer::kPasses>, layer::kSegments> host_ops{};  // after CUDA graphs
  std::array<double, 4> basis_seconds{};                                       // by hardware::Basis
  double variance_seconds2 =
      0;  // sum of (error x seconds)^2 over families (fully correlated inside one)
  double flops = 0;

  double compute(layer::Segment s, layer::Pass p) const;        // sum of compute families
  double communication(layer::Segment s, layer::Pass p) const;  // sum of link families
};

class Pricer {
 public:
  Pricer(const hardware::Cluster& cluster, const hardware::Profile& profile);
  Price price(const layer::Operator& op, const job::Techniques& techniques) const;
  // Cached by BlockKey; the reference stays valid until the pricer dies.
  const BlockCost& block(const job::Job& job, layer::BlockRole role, model::LayerKind kind);

  // Collectives outside blocks. `bytes` per rank as nccl-tests counts; the span says which links.
  double collective_seconds(hardware::Collective op, const hardware::GroupSpan& span,
                            double bytes) const;
  double send_recv_seconds(bool crosses_domains, double bytes) const;
  double memory_seconds(double bytes) const;  // streaming through HBM

  const hardware::Profile& profile() const { return *profile_; }
  const hardware::Cluster& cluster() const { return *cluster_; }

 private:
  const hardware::Cluster* cluster_;
  const hardware::Profile* profile_;
  layer::Block scratch_;
  std::unordered_map<layer::BlockKey, BlockCost, layer::BlockKeyHash> cache_;
};

}  // namespace trifold::cost

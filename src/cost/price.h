// SPDX-License-Identifier: Apache-2.0
#pragma once

// What operators cost on a GPU, its links and its host, from a Profile. Prices are of an operator
// alone at sustained clocks; overlap and contention are the business of estimate/ and timeline/.

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "hardware/fabric.h"
#include "hardware/profile.h"
#include "layer/block.h"

namespace trifold::cost {

struct Price {
  double seconds = 0;  // device time, kernel gaps included
  hardware::Basis basis = hardware::Basis::assumed;
  double error = 0.2;  // one sigma, relative
};

// The profile's constants by name, looked up once. Meanings, units and ranges: hardware/profile.cc.
struct Constants {
  double kernel_gap_s, kernel_gap_graph_s, host_op_s, host_op_unbound_factor, host_overlap_factor,
      hbm_efficiency, quantize_efficiency, gemm_sustained_factor, attention_sustained_factor,
      fp8_attention_factor, low_precision_factor, scaleout_efficiency, scaleout_latency_s,
      ep_sync_latency_s, ep_metadata_s, ep_scaleout_latency_factor, overlap_leak,
      overlap_leak_graph, tp_overlap_exposed, cp_overlap_exposed, dp_overlap_exposed, p2p_exposed,
      optimizer_fixed_s, step_sync_s, host_link_efficiency, step_sigma;
  explicit Constants(const hardware::Profile& profile);
  // overlap_leak, by whether the whole iteration is a graph.
  double leak(const job::Techniques& techniques) const {
    return techniques.has(job::GraphScope::full_iteration) ? overlap_leak_graph : overlap_leak;
  }
};

// A block's price by segment, pass and family; kernels and host operations by segment and pass.
struct BlockCost {
  std::array<std::array<std::array<double, layer::kFamilies>, layer::kPasses>, layer::kSegments>
      seconds{};
  std::array<std::array<double, layer::kPasses>, layer::kSegments>
      compute{};  // sum of compute families
  std::array<std::array<double, layer::kPasses>, layer::kSegments>
      communication{};  // sum of link families
  std::array<double, layer::kPasses>
      host_s{};             // host time of a pass over the whole block, after CUDA graphs
  double merge_host_s = 0;  // what merging a forward with a backward adds to both
  std::array<double, layer::kPasses>
      routing{};  // the memory-bound part that picks experts and moves rows for them
  std::array<float, layer::kPasses> kernels{};
  std::array<double, 4> basis_seconds{};  // by hardware::Basis
  double variance = 0;  // s^2: operators of one family err together, families independently
  double total = 0;     // sum of seconds

  double family(layer::Pass pass, layer::Family family) const;  // over segments
  double compute_of(layer::Pass pass) const;
};

// What a pass of device time G waits for its host, which needs H: (G^6 + H^6)^(1/6) - G, the longer
// of the two with a soft corner. Exponents from 4 to 12 fit the published runs alike.
double host_wait_s(double device_s, double host_s);

class Pricer {
 public:
  Pricer(const hardware::Cluster& cluster, const hardware::Profile& profile);

  Price price(const layer::Operator& op, const job::Techniques& techniques) const;
  BlockCost price_block(const layer::Block& block, const job::Techniques& techniques) const;

  // Cached. `key` is layer::job_key(job), computed once a Job. The reference stays valid until the
  // pricer dies.
  const BlockCost& block(const job::Job& job, const layer::BlockKey& key, layer::BlockRole role,
                         model::LayerKind kind);
  std::size_t blocks_priced() const { return cache_.size(); }

  // Collectives outside blocks; `bytes` per rank as nccl-tests counts. The span says which links.
  double collective_seconds(hardware::Collective op, const hardware::GroupSpan& span,
                            double bytes) const;
  double send_recv_seconds(bool crosses_domains, double bytes) const;
  // What a step ends with whatever the model: launches, then waiting across the nodes.
  double step_end_seconds(int gpus) const;
  double memory_seconds(double bytes) const;  // streaming through HBM
  double host_copy_rate() const;              // B/s, one way, to the host or back
  int dispatcher_sms(
      const job::Techniques& techniques) const;  // as stated, or the dispatcher's default

  const Constants& constants() const { return constants_; }
  const hardware::Profile& profile() const { return *profile_; }
  const hardware::Cluster& cluster() const { return *cluster_; }

 private:
  Price gemm(const layer::Operator& op) const;
  hardware::GemmRate gemm_rate(const layer::Operator& op, double n, double k) const;
  Price attention(const layer::Operator& op) const;
  Price streaming(const layer::Operator& op) const;
  Price collective(const layer::Operator& op) const;
  Price dispatch(const layer::Operator& op, const job::Techniques& techniques) const;
  Price routing_exchange(const layer::Operator& op, job::Dispatcher dispatcher) const;

  const hardware::Cluster* cluster_;
  const hardware::Profile* profile_;
  Constants constants_;
  std::array<hardware::DispatcherRate, 4> dispatchers_;  // by job::Dispatcher
  layer::Block scratch_;
  std::unordered_map<layer::BlockKey, BlockCost, layer::BlockKeyHash> cache_;
};

}  // namespace trifold::cost

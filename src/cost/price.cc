// SPDX-License-Identifier: Apache-2.0
#include "cost/price.h"

#include <cmath>

#include "base/check.h"
#include "layer/counts.h"

namespace trifold::cost {

using layer::Family;
using layer::Operator;
using layer::Pass;

namespace {

// One launch of a captured graph takes about as long as three operations.
constexpr double kGraphLaunchOps = 3;

// Host operations of each pass: captured scopes count as one graph launch, full-iteration graphs as
// nothing.
void add_host(const layer::Block& block, const job::Techniques& techniques, double seconds_per_op,
              BlockCost& cost) {
  if (techniques.has(job::GraphScope::full_iteration)) return;
  const bool whole =
      techniques.has(job::GraphScope::layer) && block.role == layer::BlockRole::layer;
  std::array<std::uint64_t, layer::kPasses> captured{};
  for (const Operator& op : block.operators) {
    const std::size_t pass =
        static_cast<std::size_t>(op.pass == Pass::wgrad ? Pass::dgrad : op.pass);
    const bool scoped =
        op.graph_scope != 0xff && techniques.has(static_cast<job::GraphScope>(op.graph_scope));
    if (whole || scoped)
      captured[pass] |= std::uint64_t{1} << (whole ? 63 : op.graph_scope);
    else
      cost.host_s[pass] += op.host_ops * op.repeat * seconds_per_op;
  }
  for (std::size_t pass = 0; pass < captured.size(); ++pass)
    cost.host_s[pass] += kGraphLaunchOps * __builtin_popcountll(captured[pass]) * seconds_per_op;
}

}  // namespace

Constants::Constants(const hardware::Profile& p)
    : kernel_gap_s(p.constant("kernel_gap_s")),
      kernel_gap_graph_s(p.constant("kernel_gap_graph_s")),
      host_op_s(p.constant("host_op_s")),
      host_op_unbound_factor(p.constant("host_op_unbound_factor")),
      host_overlap_factor(p.constant("host_overlap_factor")),
      hbm_efficiency(p.constant("hbm_efficiency")),
      quantize_efficiency(p.constant("quantize_efficiency")),
      gemm_sustained_factor(p.constant("gemm_sustained_factor")),
      attention_sustained_factor(p.constant("attention_sustained_factor")),
      fp8_attention_factor(p.constant("fp8_attention_factor")),
      low_precision_factor(p.constant("low_precision_factor")),
      scaleout_efficiency(p.constant("scaleout_efficiency")),
      scaleout_latency_s(p.constant("scaleout_latency_s")),
      ep_sync_latency_s(p.constant("ep_sync_latency_s")),
      ep_metadata_s(p.constant("ep_metadata_s")),
      ep_scaleout_latency_factor(p.constant("ep_scaleout_latency_factor")),
      overlap_leak(p.constant("overlap_leak")),
      overlap_leak_graph(p.constant("overlap_leak_graph")),
      tp_overlap_exposed(p.constant("tp_overlap_exposed")),
      cp_overlap_exposed(p.constant("cp_overlap_exposed")),
      dp_overlap_exposed(p.constant("dp_overlap_exposed")),
      p2p_exposed(p.constant("p2p_exposed")),
      optimizer_fixed_s(p.constant("optimizer_fixed_s")),
      step_sync_s(p.constant("step_sync_s")),
      host_link_efficiency(p.constant("host_link_efficiency")),
      step_sigma(p.constant("step_sigma")) {}

double host_wait_s(double device_s, double host_s) {
  if (host_s < 0.3 * device_s) {  // the series, within 1e-7 of the device time
    const double r = host_s / device_s, r2 = r * r;
    return device_s * r2 * r2 * r2 / 6;
  }
  const double d3 = device_s * device_s * device_s, h3 = host_s * host_s * host_s;
  return std::cbrt(std::sqrt(d3 * d3 + h3 * h3)) - device_s;
}

double BlockCost::family(Pass pass, Family family) const {
  double sum = 0;
  for (const auto& segment : seconds)
    sum += segment[static_cast<std::size_t>(pass)][static_cast<std::size_t>(family)];
  return sum;
}

double BlockCost::compute_of(Pass pass) const {
  double sum = 0;
  for (const auto& segment : compute) sum += segment[static_cast<std::size_t>(pass)];
  return sum;
}

Pricer::Pricer(const hardware::Cluster& cluster, const hardware::Profile& profile)
    : cluster_(&cluster), profile_(&profile), constants_(profile) {
  cache_.max_load_factor(0.4F);  // every estimate looks up several blocks: short chains
  constants_.gemm_sustained_factor /= cluster.slowest_gpu;  // factors of time
  constants_.attention_sustained_factor /= cluster.slowest_gpu;
  for (const Token<job::Dispatcher>& token : job::kDispatchers) {
    const auto it = profile.dispatchers.find(std::string(token.name));
    if (it != profile.dispatchers.end())
      dispatchers_[static_cast<std::size_t>(token.value)] = it->second;
  }
}

BlockCost Pricer::price_block(const layer::Block& block, const job::Techniques& techniques) const {
  BlockCost cost;
  std::array<double, layer::kFamilies> deviation{};
  for (const Operator& op : block.operators) {
    const Price p = price(op, techniques);
    const auto segment = static_cast<std::size_t>(op.segment),
               pass = static_cast<std::size_t>(op.pass);
    const auto family = static_cast<std::size_t>(op.family);
    cost.seconds[segment][pass][family] += p.seconds;
    (layer::is_communication(op.family) ? cost.communication : cost.compute)[segment][pass] +=
        p.seconds;
    if (op.routing) cost.routing[pass] += p.seconds;
    cost.kernels[pass] += op.kernels * static_cast<float>(op.repeat);
    cost.basis_seconds[static_cast<std::size_t>(p.basis)] += p.seconds;
    cost.total += p.seconds;
    deviation[family] += p.error * p.seconds;
  }
  for (double d : deviation) cost.variance += d * d;
  const double per_op =
      constants_.host_op_s *
      (techniques.processes_bound_to_cpus ? 1.0 : constants_.host_op_unbound_factor);
  add_host(block, techniques, per_op, cost);
  cost.merge_host_s = layer::counts::kMergedLayerHost * per_op;
  return cost;
}

const BlockCost& Pricer::block(const job::Job& job, const layer::BlockKey& key,
                               layer::BlockRole role, model::LayerKind kind) {
  const layer::BlockKey full = layer::block_key(key, role, kind);
  const auto found = cache_.find(full);
  if (found != cache_.end()) return found->second;
  layer::build_operators(job, role, kind, scratch_);
  return cache_.emplace(full, price_block(scratch_, job.techniques)).first->second;
}

double Pricer::host_copy_rate() const {
  return cluster_->host_bandwidth.value() * constants_.host_link_efficiency;
}

}  // namespace trifold::cost

// SPDX-License-Identifier: Apache-2.0

// Compute operators.
//   GEMM:       t = flops / (peak u(m, n, k)) x sustained, never below reading the weights once at
//   HBM's full rate (what is reached of it is in u); a weight gradient
//               adds reading and writing the gradient buffer.
//   grouped:    the same with u at rows per expert; or one launch of all experts' tiles
//               (hardware::GroupedLaunch).
//   attention:  t = flops / (bf16 peak x u(sequence, head dim, heads x batch)) x sustained.
//   streaming:  t = bytes / (HBM rate x efficiency); quantise passes have their own efficiency.
// Every kernel adds a gap on the device. Sources: calibration.md section 3, modelling.md section 3.
// Known error: 5 % median on measured GEMM shapes, 15 % at the 90th percentile.

#include <algorithm>

#include "cost/price.h"
#include "hardware/gemm_shape.h"

namespace trifold::cost {

using hardware::Basis;
using hardware::Dtype;
using hardware::Known;
using layer::Operator;

hardware::GemmRate Pricer::gemm_rate(const Operator& op, double n, double k) const {
  if (op.family == layer::Family::grouped_gemm)
    return profile_->grouped_rate(op.grouped_kernel, op.dtype, op.gemm_pass, op.groups, op.m, n, k);
  return {profile_->gemm_utilisation(op.dtype, op.gemm_pass, op.m, n, k)};
}

Price Pricer::gemm(const Operator& op) const {
  // A data gradient's operator has its own columns and depth; surfaces are indexed by the
  // forward's.
  const bool swapped = op.gemm_pass == hardware::GemmPass::dgrad;
  const hardware::GemmRate rate = gemm_rate(op, swapped ? op.k : op.n, swapped ? op.n : op.k);
  const Known& u = rate.utilisation;
  double seconds = op.flops / (cluster_->gpu.peak(op.dtype).value() * u.value) *
                   constants_.gemm_sustained_factor * hardware::tile_waste(op.n);
  if (op.dtype == Dtype::nvfp4) seconds *= constants_.low_precision_factor;
  const double hbm = cluster_->gpu.hbm_bandwidth.value();
  // Accumulating into the gradient buffer mostly hides under the GEMM: 3.85 of its 8 bytes show
  // (measured, H200).
  constexpr double kAccumulationShown = 0.48;
  if (op.gemm_pass == hardware::GemmPass::wgrad)
    seconds += kAccumulationShown * op.bytes / hbm;
  else
    seconds = std::max(seconds, op.groups * op.n * op.k * hardware::element_bytes(op.dtype) /
                                    (rate.weight_rate * hbm));
  return {seconds + rate.launch_s, u.basis, u.error};
}

Price Pricer::attention(const Operator& op) const {
  const bool backward = op.gemm_pass != hardware::GemmPass::forward;
  const Known u = profile_->attention_utilisation(backward, op.m, op.n, op.k);
  double seconds =
      op.flops / (cluster_->gpu.bf16.value() * u.value) * constants_.attention_sustained_factor;
  if (op.dtype != Dtype::bf16) seconds *= constants_.fp8_attention_factor;
  return {seconds, u.basis, u.error};
}

Price Pricer::streaming(const Operator& op) const {
  const bool quantize = op.family == layer::Family::quantize;
  const double efficiency = quantize ? constants_.quantize_efficiency : constants_.hbm_efficiency;
  return {op.bytes / (cluster_->gpu.hbm_bandwidth.value() * efficiency), Basis::scaled, 0.15};
}

double Pricer::memory_seconds(double bytes) const {
  return bytes / (cluster_->gpu.hbm_bandwidth.value() * constants_.hbm_efficiency);
}

Price Pricer::price(const Operator& op, const job::Techniques& techniques) const {
  Price price;
  switch (op.family) {
    case layer::Family::gemm:
    case layer::Family::grouped_gemm:
      price = gemm(op);
      break;
    case layer::Family::attention:
      price = attention(op);
      break;
    case layer::Family::memory_bound:
    case layer::Family::quantize:
      price = streaming(op);
      break;
    case layer::Family::tp_comm:
    case layer::Family::cp_comm:
      price = collective(op);
      break;
    case layer::Family::ep_comm:
      price = dispatch(op, techniques);
      break;
  }
  const bool graphed =
      techniques.has(job::GraphScope::full_iteration) || techniques.has(job::GraphScope::layer) ||
      (op.graph_scope != 0xff && techniques.has(static_cast<job::GraphScope>(op.graph_scope)));
  const double gap = graphed ? constants_.kernel_gap_graph_s : constants_.kernel_gap_s;
  const bool streams = op.family == layer::Family::grouped_gemm &&
                       op.grouped_kernel == hardware::GroupedKernel::streams;
  price.seconds += gap * op.kernels / (streams ? hardware::kGroupedStreams : 1);
  price.seconds *= op.repeat;
  return price;
}

}  // namespace trifold::cost

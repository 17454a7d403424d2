// SPDX-License-Identifier: Apache-2.0

// The Mixture-of-Experts half of a block: router and preprocessing (end of A), dispatch (D),
// experts (X), combine (C) and the shared expert (S). Which permutes stand where depends on the
// dispatcher: NCCL all-to-all permutes before sending, sorts chunks by expert after, and mirrors;
// DeepEP permutes after receiving; HybridEP permutes inside its kernels with one extra pass. Rows
// are those of the slowest rank. Sources: techniques.md (c) 5, 10, 17; megatron.md 4.4-4.6.

#include "layer/builder.h"
#include "layer/counts.h"

namespace trifold::layer {

namespace {

using job::Dispatcher;
using job::Recompute;

double h_bytes(const Builder& b) { return static_cast<double>(b.model.hidden) * b.shape.element; }

void router(Builder& b) {
  const double nl = b.shape.local_tokens, experts = static_cast<double>(b.model.moe.experts);
  const bool fused = b.techniques.has(job::Fusion::router);
  b.segment(Segment::attention);
  b.scope(job::GraphScope::moe_router);
  b.modules({Recompute::moe, Recompute::full});
  Operator op;
  op.name = "router_gemm";
  op.family = Family::gemm;
  op.dtype = hardware::Dtype::tf32;
  op.m = nl;
  op.n = experts;
  op.k = static_cast<double>(b.model.hidden);
  op.flops = 2 * op.m * op.n * op.k;
  op.kernels = 1;
  op.host_ops = counts::kElementwiseHost;
  b.add(op, Pass::forward);
  op.gemm_pass = hardware::GemmPass::wgrad;
  b.add(op, Pass::wgrad);
  op.gemm_pass = hardware::GemmPass::dgrad;
  b.add(op, Pass::dgrad);
  const float all = fused ? counts::kRouterKernelsFused : counts::kRouterKernels;
  const float kernels =
      is_flex(b.techniques.dispatcher) && fused ? counts::kRouterKernelsFlex : all;
  // Scores, top-k, probabilities, load-balancing sums: FP32 rows of E, read and written by every
  // unfused kernel.
  const float routing = kernels * 0.6f;
  const double bytes = nl * experts * (fused ? 20 : 100);
  // Router, dispatch and shared expert read the same norm: autograd adds their gradients.
  const float sums = b.model.moe.shared_ffn > 0 ? 2 : 1;
  b.elementwise("input_grad_sum", 0, sums * 3 * nl * h_bytes(b), 0, sums);
  b.routing(true);
  b.elementwise("router", bytes, bytes, routing, routing * 0.5f);
  b.scope(job::GraphScope::moe_preprocess);
  b.elementwise("preprocess", nl * experts * 5, 0, kernels - routing, 0);
  b.routing(false);
  b.no_scope();
}

void permute_before(Builder& b) {
  if (b.techniques.dispatcher != Dispatcher::alltoall) return;
  const double k = static_cast<double>(b.model.moe.top_k);
  // Padded to capacity every expert has as many rows: no counts are exchanged, permuting is one
  // gather by index and sorting chunks one transposed copy.
  const bool one_pass = b.techniques.has(job::Fusion::permute) || b.techniques.routing.padded();
  const double bytes = (one_pass ? 1 : 2) * b.shape.local_tokens * h_bytes(b) * (1 + k);
  const float kernels = one_pass ? 2 : 6;
  b.routing(true);
  b.elementwise("permute", bytes, bytes, kernels, kernels,
                one_pass ? 0 : counts::kUnfusedPermuteHost);
  b.routing(false);
}

// Ahead of the rows of a forward: HybridEP's metadata, and counts that the host needs before it can
// size buffers, unless shapes are static.
void exchange_routing(Builder& b) {
  const bool counts =
      !b.techniques.routing.padded() && !b.techniques.has(job::GraphScope::full_iteration);
  if (!counts && b.techniques.dispatcher != Dispatcher::hybridep) return;
  Operator op;
  op.name = "routing_exchange";
  op.family = Family::ep_comm;
  op.dispatch = op.routes = true;
  op.blocks = counts;
  op.group_ranks = b.exchange.ranks;
  op.group_domains = b.exchange.domains;
  b.segment(counts ? Segment::attention : Segment::dispatch);
  b.add(op, Pass::forward);
  b.segment(Segment::dispatch);
}

void transfer(Builder& b, const char* name, Segment segment, bool combine) {
  b.segment(segment);
  const Exchange& x = b.exchange;
  if (x.ranks <= 1) return;
  const bool low = b.techniques.dispatch_precision == job::DispatchPrecision::fp8 && !combine;
  const double row = low ? static_cast<double>(b.model.hidden) * (1 + 4.0 / 128) : h_bytes(b);
  const double probabilities = 4 * (combine ? 0.0 : 1.0);
  Operator op;
  op.name = name;
  op.family = Family::ep_comm;
  op.dispatch = true;
  op.scaleup_bytes = x.scaleup_tokens * (row + probabilities);
  op.scaleup_rows = x.scaleup_tokens;
  op.scaleout_bytes = x.scaleout_tokens * (row + probabilities);
  op.bytes = x.arriving_tokens * row;
  op.group_ranks = x.ranks;
  op.group_domains = x.domains;
  const float alltoall =
      b.techniques.routing.padded() ? counts::kStaticAllToAllHost : counts::kAllToAllHost;
  op.host_ops = is_flex(b.techniques.dispatcher) ? counts::kFlexHost : alltoall;
  if (!combine) exchange_routing(b);
  b.add(op, Pass::forward);
  op.scaleup_bytes = x.scaleup_tokens * h_bytes(b);
  op.scaleout_bytes = x.scaleout_tokens * h_bytes(b);
  b.add(op, Pass::dgrad);
}

// Rows between the receive buffer and the experts' order.
void permute_rows(Builder& b, const char* name) {
  const double rows = b.load.max_tokens_per_rank, arriving = b.exchange.arriving_tokens;
  const bool fused = b.techniques.has(job::Fusion::permute) || b.techniques.routing.padded();
  const float kernels = fused ? 2 : 5;
  const float chunks = static_cast<float>(b.load.experts_per_rank * b.exchange.ranks);
  switch (b.techniques.dispatcher) {
    case Dispatcher::alltoall:
      if (b.load.experts_per_rank == 1 || b.exchange.ranks == 1) return;
      b.elementwise(name, (fused ? 1 : 2) * rows * h_bytes(b) * 2,
                    (fused ? 1 : 2) * rows * h_bytes(b) * 2, kernels, kernels,
                    fused ? 0 : counts::kChunkViewHost * chunks);
      return;
    case Dispatcher::hybridep:
      // Across domains the copy hides under the NIC: 0.69 ms a dispatch with its permute in the
      // trace of Qwen3-30B on 16 H100 (hardware/profile.cc), the benchmark's 0.67 ms without.
      if (b.exchange.domains > 1) return;
      b.elementwise(name, rows * h_bytes(b), rows * h_bytes(b), 1, 1);
      return;
    case Dispatcher::deepep:
    case Dispatcher::allgather: {
      const double bytes = (fused ? 1 : 2) * (rows + std::min(arriving, rows)) * h_bytes(b);
      b.elementwise(name, bytes, bytes, kernels, kernels,
                    fused ? 0 : counts::kUnfusedLocalPermuteHost);
      return;
    }
  }
}

void permute_local(Builder& b, const char* name) {
  b.routing(true);
  permute_rows(b, name);
  b.routing(false);
}

double activation_bytes(const model::Model& model, bool forward) {
  // A clamped GeGLU with offsets runs as separate element-wise kernels (clamps, sigmoid, products).
  if (model.activation == model::Activation::quick_geglu) return forward ? 40 : 70;
  return is_gated(model.activation) ? (forward ? 6 : 10) : (forward ? 4 : 6);
}

void experts(Builder& b) {
  const double rows = b.load.padded_tokens_per_rank, h = static_cast<double>(b.model.hidden);
  const double f = static_cast<double>(b.model.moe.expert_ffn) / b.job.layout.etp;
  const bool gated = is_gated(b.model.activation);
  const bool fused = b.techniques.has(job::Fusion::grouped_mlp);
  b.segment(Segment::experts);
  permute_local(b, "sort_by_expert");
  b.grouped_linear("expert_fc1", gated ? 2 * f : f, h);
  if (b.model.linear_bias) b.elementwise("expert_fc1_bias", rows * f * 8, rows * f * 4, 1, 1);
  b.modules({Recompute::moe_act, Recompute::moe, Recompute::full});
  const bool clamped = b.model.activation == model::Activation::quick_geglu;
  const float kernels = clamped ? 8 : 1;
  // Inside the fused kernel the activation reads and writes registers, except for what backward
  // saves.
  const double share = fused ? 0.35 : 1.0;
  b.elementwise("expert_activation", share * rows * f * activation_bytes(b.model, true),
                share * rows * f * activation_bytes(b.model, false), fused ? 0.5f : kernels,
                fused ? 0.5f : kernels);
  b.modules({Recompute::moe, Recompute::full});
  b.grouped_linear("expert_fc2", h, f);
  if (b.model.linear_bias) b.elementwise("expert_fc2_bias", rows * h * 4, rows * h * 2, 1, 1);
  if (!b.techniques.memory_efficient_permutation)
    b.elementwise("scale_by_probability", 4 * rows * h, 6 * rows * h);
  permute_local(b, "unsort");
}

void after_combine(Builder& b) {
  b.segment(Segment::combine);
  const double nl = b.shape.local_tokens, k = static_cast<double>(b.model.moe.top_k);
  if (b.techniques.dispatcher == Dispatcher::alltoall) {
    const double passes =
        b.techniques.has(job::Fusion::permute) || b.techniques.routing.padded() ? 1 : 2;
    b.routing(true);
    b.elementwise("unpermute", passes * nl * h_bytes(b) * (1 + k),
                  passes * nl * h_bytes(b) * (1 + k), 2, 2);
    b.routing(false);
  }
  b.modules({Recompute::full});
  if (b.model.post_norms) b.elementwise("post_moe_norm", 2 * nl * h_bytes(b), 4 * nl * h_bytes(b));
  b.elementwise("moe_residual", 3 * nl * h_bytes(b), 3 * nl * h_bytes(b));
}

void shared_expert(Builder& b) {
  if (b.model.moe.shared_ffn == 0) return;
  const double n = b.shape.tokens, h = static_cast<double>(b.model.hidden);
  const double f = static_cast<double>(b.model.moe.shared_ffn) / b.shape.tp;
  const bool gated = is_gated(b.model.activation);
  b.segment(Segment::shared);
  b.modules({Recompute::shared_experts, Recompute::moe, Recompute::full});
  b.tp_collective("shared_gather", Pass::forward, hardware::Collective::all_gather);
  b.tp_collective("shared_gather", Pass::dgrad, hardware::Collective::reduce_scatter);
  b.linear("shared_fc1", n, gated ? 2 * f : f, h);
  b.elementwise("shared_activation", n * f * (gated ? 6 : 4), n * f * (gated ? 10 : 6));
  b.linear("shared_fc2", n, h, f);
  b.tp_collective("shared_scatter", Pass::forward, hardware::Collective::reduce_scatter);
  b.tp_collective("shared_scatter", Pass::dgrad, hardware::Collective::all_gather);
}

}  // namespace

void build_moe(Builder& b) {
  router(b);
  shared_expert(b);
  b.modules({Recompute::moe, Recompute::full});
  b.segment(Segment::attention);
  permute_before(b);
  transfer(b, "dispatch", Segment::dispatch, false);
  experts(b);
  transfer(b, "combine", Segment::combine, true);
  after_combine(b);
}

}  // namespace trifold::layer

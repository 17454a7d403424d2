// SPDX-License-Identifier: Apache-2.0

// Segment A of a block: input norm, projections, rotary, context communication, core attention,
// output projection, residual, and the second norm. Widths follow megatron.md 5.2; bytes of
// memory-bound operators follow modelling.md 3 (norm 4h forward and 8h backward per token, residual
// 6h and 6h). Core attention counts the causal half (or the window) and executes (qk + v) forward
// and (3 qk + 2 v) backward multiply-adds per query-key pair.

#include "layer/builder.h"
#include "layer/counts.h"
#include "model/size.h"

namespace trifold::layer {

namespace {

using job::CpComm;
using job::Recompute;

// TP with sequence parallelism gathers tokens before the first linear and scatters sums after the
// last; without it the sums are all-reduced. Backward mirrors, and gathers the saved input again
// for the weight gradient. What is gathered is quantised first (Transformer Engine), sums stay
// BF16.
void tensor_parallel_enter(Builder& b, const char* name) {
  if (b.shape.local_tokens < b.shape.tokens) {
    b.tp_collective(name, Pass::forward, hardware::Collective::all_gather);
    b.tp_collective(name, Pass::dgrad, hardware::Collective::reduce_scatter);
    b.tp_collective(name, Pass::wgrad, hardware::Collective::all_gather);
  } else {
    b.tp_collective(name, Pass::dgrad, hardware::Collective::all_reduce);
  }
}

void tensor_parallel_leave(Builder& b, const char* name) {
  if (b.shape.local_tokens < b.shape.tokens) {
    b.tp_collective(name, Pass::forward, hardware::Collective::reduce_scatter);
    b.tp_collective(name, Pass::dgrad, hardware::Collective::all_gather);
  } else {
    b.tp_collective(name, Pass::forward, hardware::Collective::all_reduce);
  }
}

// Of a rank: replicated where tp exceeds the groups.
double kv_heads(const Builder& b) {
  const model::Attention& a = b.model.attention;
  const double t = b.shape.tp;
  return a.kind == model::AttentionKind::mla ? static_cast<double>(a.heads) / t
                                             : std::max(static_cast<double>(a.kv_heads), t) / t;
}

// How ranks that share a sequence exchange it: Ulysses always swaps heads.
CpComm sequence_exchange(const Builder& b) {
  return b.job.layout.ulysses_sp > 1 ? CpComm::a2a : b.techniques.cp_comm;
}

void gqa_projections(Builder& b) {
  const model::Attention& a = b.model.attention;
  const double n = b.shape.tokens, h = static_cast<double>(b.model.hidden), t = b.shape.tp;
  const double dim = static_cast<double>(a.head_dim);
  const double q_width = static_cast<double>(a.heads) * dim / t, kv_width = kv_heads(b) * dim;
  b.linear("qkv", n, q_width * (a.output_gate ? 2 : 1) + 2 * kv_width, h);
  // Queries leave the fused projection through a copy; backward joins the three gradients again.
  b.elementwise("qkv_split", 4 * n * q_width, 4 * n * (q_width + 2 * kv_width));
  if (a.qk_norm)
    b.elementwise("qk_norm", 4 * n * (q_width + kv_width), 8 * n * (q_width + kv_width), 2, 4);
  if (!b.model.rope.none)
    b.elementwise("rope", 4 * n * (q_width + kv_width), 4 * n * (q_width + kv_width), 2, 2);
}

void mla_projections(Builder& b) {
  const model::Attention& a = b.model.attention;
  const double n = b.shape.tokens, nl = b.shape.local_tokens,
               h = static_cast<double>(b.model.hidden);
  const double heads = static_cast<double>(a.heads) / b.shape.tp;
  const double ql = static_cast<double>(a.q_lora_rank), kl = static_cast<double>(a.kv_lora_rank);
  const double nope = static_cast<double>(a.qk_nope_dim), rope = static_cast<double>(a.qk_rope_dim);
  const double v = static_cast<double>(a.v_dim);
  if (ql > 0) {
    b.linear("q_down", nl, ql, h);
    b.elementwise("q_latent_norm", 4 * nl * ql, 8 * nl * ql);
  }
  b.linear("kv_down", nl, kl + rope, h);
  b.elementwise("latent_grad_sum", 0, 6 * nl * h, 0, 1);
  b.elementwise("kv_latent_norm", 4 * nl * kl, 8 * nl * kl);
  b.modules({Recompute::mla_up_proj, Recompute::full});
  b.linear("q_up", n, heads * (nope + rope), ql > 0 ? ql : h);
  b.linear("kv_up", n, heads * (nope + v), kl);
  // Rotary on the rope part, then q and k are written as whole heads (concatenation).
  const double written = heads * (2 * nope + 3 * rope + v);
  b.elementwise("mla_rope_concat", 4 * n * written, 4 * n * written, 4, 4);
  b.modules({Recompute::full});
}

void context_exchange(Builder& b, bool before) {
  const model::Attention& a = b.model.attention;
  const int ranks = b.job.layout.sequence_ranks();
  if (ranks <= 1) return;
  const double n = b.shape.tokens, t = b.shape.tp;
  const double q = 2 * n * static_cast<double>(a.heads * a.qk_dim()) / t;
  const double kv = 2 * n * kv_heads(b) * static_cast<double>(a.qk_dim() + a.value_dim());
  const double out = 2 * n * static_cast<double>(a.heads * a.value_dim()) / t;
  const int domains = b.shape.cp_domains;
  const CpComm comm = sequence_exchange(b);
  if (comm == CpComm::a2a || comm == CpComm::a2a_p2p) {
    const double bytes = before ? q + kv : out;
    b.collective("sequence_to_heads", Pass::forward, Family::cp_comm,
                 hardware::Collective::all_to_all, bytes, ranks, domains);
    b.collective("sequence_to_heads", Pass::dgrad, Family::cp_comm,
                 hardware::Collective::all_to_all, bytes, ranks, domains);
  } else if (before && comm == CpComm::p2p) {
    b.collective("kv_ring", Pass::forward, Family::cp_comm, hardware::Collective::send_recv, kv,
                 ranks, domains, ranks - 1);
    b.collective("kv_ring", Pass::dgrad, Family::cp_comm, hardware::Collective::send_recv, 2 * kv,
                 ranks, domains, ranks - 1);
  } else if (before) {
    b.collective("kv_gather", Pass::forward, Family::cp_comm, hardware::Collective::all_gather,
                 kv * ranks, ranks, domains);
    b.collective("kv_gather", Pass::dgrad, Family::cp_comm, hardware::Collective::reduce_scatter,
                 kv * ranks, ranks, domains);
  }
}

// Every call of a ring after the first rescales the output and adds its own, half of the calls for
// half of the queries (causal, balanced); backward adds query gradients so, and key and value
// gradients to those that arrive. Read two BF16 tensors, write one. (Transformer Engine's
// context-parallel attention.)
void ring_merge(Builder& b, int calls, double heads) {
  const model::Attention& a = b.model.attention;
  const double qk = static_cast<double>(a.qk_dim()), v = static_cast<double>(a.value_dim());
  const double bytes = 6 * 0.75 * b.shape.tokens * calls;
  const auto kernels = static_cast<float>(2 * calls);
  b.elementwise("ring_merge", bytes * heads * v, bytes * (heads * qk + kv_heads(b) * (qk + v)),
                kernels, kernels);
}

void core_attention(Builder& b, bool in_window) {
  const model::Attention& a = b.model.attention;
  // Kernels with learnable softmax offsets do not skip what lies outside the window (inferred:
  // gpt-oss runs cost the full causal half; modelling.md 5).
  const bool windowed = in_window && a.window > 0 && !a.sinks;
  const double s = static_cast<double>(b.job.training.sequence_length);
  const bool unfused = b.techniques.attention_backend == job::AttentionBackend::unfused;
  const double keys = unfused ? s : model::mean_keys(a, windowed, b.job.training.sequence_length);
  const double heads = static_cast<double>(a.heads) / b.shape.tp;
  const double qk = static_cast<double>(a.qk_dim()), v = static_cast<double>(a.value_dim());
  Operator op;
  op.name = "core_attention";
  op.family = Family::attention;
  op.dtype = b.techniques.has(job::Fusion::fp8_attention) ? hardware::Dtype::fp8_tensor
                                                          : hardware::Dtype::bf16;
  // After an all-to-all a rank holds whole sequences of fewer heads; on a ring, s / cp queries of
  // each, which meet as many keys a call: all of them but in the first call, as in the causal half
  // of twice the length.
  const int ranks = b.job.layout.sequence_ranks();
  const CpComm comm = sequence_exchange(b);
  const bool swapped = comm == CpComm::a2a;
  const int calls = comm == CpComm::p2p ? ranks : 1;
  op.m = std::min(s, (calls > 1 ? 2 : 1) * s / calls);
  op.k = heads * static_cast<double>(b.job.training.micro_batch_size) * (s / calls / op.m) /
         (swapped ? ranks : 1);
  if (windowed) op.m = std::min(op.m, static_cast<double>(a.window));
  op.n = qk;
  op.flops = 2 * b.shape.tokens * heads * keys * (qk + v);
  op.kernels = static_cast<float>(calls);
  op.host_ops = counts::kAttentionHost * static_cast<float>(calls);
  op.gemm_pass = hardware::GemmPass::forward;
  b.modules({Recompute::core_attn, Recompute::full});
  b.add(op, Pass::forward);
  op.flops = 2 * b.shape.tokens * heads * keys * (3 * qk + 2 * v);
  op.kernels = 3 * static_cast<float>(calls);  // row sums, main, dQ conversion
  op.host_ops = counts::kAttentionHostBackward * static_cast<float>(calls);
  op.gemm_pass = hardware::GemmPass::dgrad;
  b.add(op, Pass::dgrad);
  if (calls > 1) ring_merge(b, calls, heads);
  // Masking and softmax as kernels of their own: scores read and written in BF16 and FP32.
  if (unfused)
    b.elementwise("softmax", 16 * b.shape.tokens * heads * s, 20 * b.shape.tokens * heads * s, 4,
                  4);
  b.modules({Recompute::full});
}

}  // namespace

void build_attention(Builder& b, bool moe, bool windowed) {
  const model::Attention& a = b.model.attention;
  const double nl = b.shape.local_tokens, h = static_cast<double>(b.model.hidden);
  const bool mla = a.kind == model::AttentionKind::mla;
  b.segment(Segment::attention);
  b.scope(job::GraphScope::attn);
  // The input norm is its own module only with MLA; elsewhere it is fused with the projection and
  // never rebuilt alone.
  if (mla)
    b.modules({Recompute::layernorm, Recompute::full});
  else
    b.modules({Recompute::full});
  b.elementwise("input_norm", 4 * nl * h, 8 * nl * h);
  b.modules({Recompute::full});
  if (!mla) tensor_parallel_enter(b, "attention_gather");
  if (mla)
    mla_projections(b);
  else
    gqa_projections(b);
  context_exchange(b, true);
  core_attention(b, windowed);
  context_exchange(b, false);
  const double out_width = static_cast<double>(a.heads * a.value_dim()) / b.shape.tp;
  if (a.output_gate)
    b.elementwise("output_gate", 6 * b.shape.tokens * out_width, 10 * b.shape.tokens * out_width);
  b.linear("output_projection", b.shape.tokens, h, out_width);
  tensor_parallel_leave(b, "attention_scatter");
  if (b.model.post_norms) b.elementwise("post_attention_norm", 4 * nl * h, 8 * nl * h);
  b.elementwise("attention_residual", 6 * nl * h, 6 * nl * h);
  if (moe)
    b.modules({Recompute::layernorm, Recompute::moe, Recompute::full});
  else
    b.modules({Recompute::full});
  b.elementwise("pre_ffn_norm", 4 * nl * h, 8 * nl * h);
  b.modules({Recompute::full});
  b.no_scope();
}

void build_dense_ffn(Builder& b) {
  const double n = b.shape.tokens, nl = b.shape.local_tokens,
               h = static_cast<double>(b.model.hidden);
  const double f = static_cast<double>(b.model.dense_ffn) / b.shape.tp;
  const bool gated = model::is_gated(b.model.activation);
  b.segment(Segment::experts);
  b.scope(job::GraphScope::mlp);
  b.modules({Recompute::mlp, Recompute::full});
  tensor_parallel_enter(b, "ffn_gather");
  b.linear("fc1", n, gated ? 2 * f : f, h);
  b.elementwise("activation", n * f * (gated ? 6 : 4), n * f * (gated ? 10 : 6));
  b.linear("fc2", n, h, f);
  tensor_parallel_leave(b, "ffn_scatter");
  b.modules({Recompute::full});
  if (b.model.post_norms) b.elementwise("post_ffn_norm", 4 * nl * h, 8 * nl * h);
  b.elementwise("ffn_residual", 6 * nl * h, 6 * nl * h);
  b.no_scope();
}

}  // namespace trifold::layer

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Activations that one layer keeps for its backward, tensor by tensor, and what its backward adds.
//
// Source: megatron.md 5.3, Megatron-LM d98e8a64; flash or fused attention, no dropout.
//   GQA input 2lh, norm 2lh, q k v 2n(a+2g)k, output 2na.k, log-sum-exp 4na; MLA latents, q, k, v;
//   residual 2lh, norm 2lh; dense fc1 2n.2F, act 2nF; MoE router, fc1 input 2Rh, fc1 output 2R.2f,
//   act 2Rf, probabilities 4R; shared expert 2n.3f. l: local tokens (n/tp with sequence
//   parallelism), R: rows at the slowest rank.
// What was found against measurements (tests/observations/memory_table):
//   * attention that swaps heads by all-to-all (CP a2a, Ulysses) cannot share its output with the
//     projection's input: one more 2na.v (SimuMax's B200 rows at 32k and 131k: 0.75 and 3 GiB).
//   * plain PyTorch modules (`local`) keep the whole fused qkv output alive through the view of v:
//     2n(a+g)k more, and rotary tables 8 s k a layer, whatever the batch (H200 runs, within 0.1 %).
//   * FP8 linears keep 1-byte inputs, but MLA's two down projections keep one each, router and
//     attention need BF16 (2603.07685: 16 GB saved; here 16.2 GiB).
//   * `layernorm` frees the latent norms of MLA too: 8.2 GB published, 6.6 without, 7.5 with them.
// Known error: SwiGLU recompute in 2603.07685 saves 3.8 GB where the tensors hold 7.5.

#include "memory/sizes.h"

namespace trifold::memory {

struct Freed {
  const job::Techniques& techniques;
  bool full = false;

  // Rebuilt when `by` is on, else offloaded when `module` is on (and the tensor is large enough).
  Keep when(bool rebuilt) const { return rebuilt ? Keep::rebuilt : Keep::kept; }
  Keep when(bool rebuilt, job::OffloadModule module, std::int64_t elements) const {
    if (rebuilt) return Keep::rebuilt;
    return offloads(module) && elements >= kMinOffloadElements ? Keep::offloaded : Keep::kept;
  }
  bool offloads(job::OffloadModule module) const {
    return techniques.offload.activation_modules.contains(module);
  }
  bool has(job::Recompute r) const { return full || techniques.has(r); }
  static constexpr std::int64_t kMinOffloadElements = 1 << 20;  // --min-offloaded-tensor-size
};

template <class Sink>
void add_mla(const job::Job& job, const Sizes& s, const Freed& f, Sink& sink) {
  using job::Recompute;
  const bool up = f.has(Recompute::mla_up_proj), norm = f.has(Recompute::layernorm);
  const std::int64_t latent = s.q_lora + s.kv_lora;
  sink.add(f.when(f.full), "MLA latents (down projections' output)", s.by_tp_sequence, kBf16,
           Factor{s.local, "tokens"}, Factor{latent + s.rope_dim, "latent widths"});
  sink.add(f.when(up || norm), "MLA latents, normed (up projections' input)", s.by_tp_sequence,
           s.linear_input, Factor{s.local, "tokens"}, Factor{latent, "latent widths"});
  const std::int64_t width = 2 * s.dk + s.dv;
  sink.add(f.when(up, job::OffloadModule::core_attn, s.n * s.heads * s.dv),
           "MLA q, k, v (attention's input)", s.by_tp_heads,
           job.techniques.has(job::Fusion::fp8_attention) ? kOneByte : kBf16, Factor{s.n, "tokens"},
           Factor{s.heads, "heads"}, Factor{width, "q + k + v head widths"});
  if (s.local_modules)
    sink.add(f.when(up), "kv output kept by the view of v (local modules)", s.by_tp_heads, kBf16,
             Factor{s.n, "tokens"}, Factor{s.heads, "heads"}, Factor{s.nope_dim, "k nope width"});
}

template <class Sink>
void add_gqa(const job::Job& job, const Sizes& s, const Freed& f, Sink& sink) {
  const std::int64_t qk = s.heads + s.kv_activation_heads;
  sink.add(f.when(f.full, job::OffloadModule::core_attn, s.n * s.heads * s.dk),
           "q, k, v after rotary embedding (attention's input)", s.by_tp_heads,
           job.techniques.has(job::Fusion::fp8_attention) ? kOneByte : kBf16, Factor{s.n, "tokens"},
           Factor{s.heads + 2 * s.kv_activation_heads, "q + k + v heads"},
           Factor{s.dk, "head width"});
  if (job.model.attention.qk_norm)
    sink.add(f.when(f.full), "q, k before their norm", s.by_tp_heads, kBf16, Factor{s.n, "tokens"},
             Factor{qk, "q + k heads"}, Factor{s.dk, "head width"});
  if (s.local_modules)
    sink.add(f.when(f.full), "qkv output kept by the view of v (local modules)", s.by_tp_heads,
             kBf16, Factor{s.n, "tokens"}, Factor{qk, "q + k heads"}, Factor{s.dk, "head width"});
  if (job.model.attention.output_gate)
    sink.add(f.when(f.full), "output gate and gated output", s.by_tp_heads, kBf16,
             Factor{s.n, "tokens"}, Factor{2, "tensors"}, Factor{s.heads, "heads"},
             Factor{s.dv, "head width"});
}

template <class Sink>
void add_attention_half(const job::Job& job, const Sizes& s, const Freed& f, Sink& sink) {
  using job::OffloadModule;
  sink.half = Half::attention;
  const Factor tokens{s.n, "tokens"}, local{s.local, "local tokens"}, h{s.h, "hidden"};
  const bool own_norm = s.mla || s.local_modules;  // else fused into the qkv linear
  const std::int64_t wide = s.local * s.h;
  const bool fused_group = !own_norm && f.offloads(OffloadModule::qkv_linear);
  sink.add(f.full        ? Keep::kept
           : fused_group ? f.when(false, OffloadModule::qkv_linear, wide)
                         : f.when(false, OffloadModule::attn_norm, wide),
           "layer input (first norm and residual)", s.by_tp_sequence, kBf16, local, h);
  const Width norm = s.mla ? kBf16 : s.linear_input;  // MLA: one FP8 copy for each of two readers
  sink.add(f.when(f.full || (own_norm && f.has(job::Recompute::layernorm)),
                  OffloadModule::qkv_linear, wide),
           "first norm's output (projections' input)", s.by_tp_sequence, norm, local, h);
  if (s.mla)
    add_mla(job, s, f, sink);
  else
    add_gqa(job, s, f, sink);
  const std::int64_t out = s.n * s.heads * s.dv;
  const bool both = f.offloads(OffloadModule::core_attn) && f.offloads(OffloadModule::attn_proj);
  sink.add(f.full ? Keep::rebuilt
           : both ? f.when(false, OffloadModule::core_attn, out)
                  : Keep::kept,
           "attention output (shared with the projection)", s.by_tp_heads,
           job.techniques.has(job::Fusion::fp8_attention) ? kOneByte : kBf16, tokens,
           Factor{s.heads, "heads"}, Factor{s.dv, "v head width"});
  if (s.attention_all_to_all)
    sink.add(f.when(f.full, OffloadModule::attn_proj, out),
             "projection's input after the head all-to-all", s.by_tp_heads, kBf16, tokens,
             Factor{s.heads, "heads"}, Factor{s.dv, "v head width"});
  sink.add(f.when(f.has(job::Recompute::core_attn)), "log-sum-exp of the softmax", s.by_tp_heads,
           kFp32, tokens, Factor{s.heads, "heads"});
  if (s.unfused_attention)
    sink.add(f.when(f.has(job::Recompute::core_attn)), "attention probabilities", s.by_tp_heads,
             kBf16, tokens, Factor{s.heads, "heads"}, Factor{s.keys, "keys"});
  if (s.local_modules && !job.model.rope.none)
    sink.add(f.when(f.full), "rotary tables (cos and sin of q and k)", Shard{}, kBf16,
             Factor{s.sequence, "positions"}, Factor{4, "tables"},
             Factor{s.rope_dim, "rotary width"});
  if (job.model.post_norms)
    sink.add(f.when(f.full), "inputs of the norms after attention and feed-forward",
             s.by_tp_sequence, kBf16, local, Factor{2, "tensors"}, h);
}

template <class Sink>
void add_dense_half(const Sizes& s, const Freed& f, Sink& sink) {
  const bool mlp = f.has(job::Recompute::mlp);
  const Factor tokens{s.n, "tokens"}, local{s.local, "local tokens"};
  // Transformer Engine fuses the norm into fc1, so that a recomputed feed-forward rebuilds it too.
  const bool norm = f.full || (mlp && !s.local_modules) ||
                    (s.local_modules && !mlp && f.has(job::Recompute::layernorm));
  sink.add(f.when(norm), "second norm's output (fc1 input)", s.by_tp_sequence, s.linear_input,
           local, Factor{s.h, "hidden"});
  sink.add(f.when(mlp), "dense fc1 output", s.by_tp_ffn, kBf16, tokens,
           Factor{s.gate, "gate and up"}, Factor{s.ffn, "dense ffn"});
  sink.add(f.when(mlp), "dense activation output (fc2 input)", s.by_tp_ffn, s.linear_input, tokens,
           Factor{s.ffn, "dense ffn"});
}

template <class Sink>
void add_experts(const job::Job& job, const Sizes& s, const Freed& f, Sink& sink) {
  using job::OffloadModule;
  using job::Recompute;
  const bool moe = f.has(Recompute::moe);
  const Factor rows{s.rows, "routed rows at the slowest rank"}, ffn{s.expert_ffn, "expert ffn"};
  const bool group = f.offloads(OffloadModule::fused_group_mlp);
  const auto either = [&](bool rebuilt, OffloadModule module, std::int64_t elements) {
    return f.when(rebuilt, group ? OffloadModule::fused_group_mlp : module, elements);
  };
  sink.add(either(moe, OffloadModule::expert_fc1, s.rows * s.h),
           "expert fc1 input (dispatched tokens)", s.by_ep, s.linear_input, rows,
           Factor{s.h, "hidden"});
  sink.add(either(moe, OffloadModule::moe_act, s.rows * s.gate * s.expert_ffn), "expert fc1 output",
           s.by_etp, kBf16, rows, Factor{s.gate, "gate and up"}, ffn);
  // fc2 saves its own input: moe_act's group holds what the activation saved (experts.py).
  sink.add(f.when(moe || f.has(Recompute::moe_act), OffloadModule::fused_group_mlp,
                  s.rows * s.expert_ffn),
           "expert activation output (fc2 input)", s.by_etp, s.linear_input, rows, ffn);
  sink.add(f.when(moe), "routing probability of each row", s.by_ep, kFp32, rows);
  if (!job.techniques.memory_efficient_permutation)
    sink.add(f.when(moe), "expert output before the probabilities", s.by_tp_sequence, kBf16,
             Factor{s.sent_rows, "tokens x top-k"}, Factor{s.h, "hidden"});
}

template <class Sink>
void add_moe_half(const job::Job& job, const Sizes& s, const Freed& f, Sink& sink) {
  using job::Recompute;
  const bool moe = f.has(Recompute::moe);
  const Factor local{s.local, "local tokens"}, h{s.h, "hidden"};
  sink.add(f.when(f.full || (!moe && f.has(Recompute::layernorm))),
           "second norm's output (router, dispatch, shared expert)", s.by_tp_sequence, kBf16, local,
           h);
  const bool fused = job.techniques.has(job::Fusion::router);
  sink.add(f.when(moe), "router scores, probabilities, map", s.by_tp_sequence, kOneByte, local,
           Factor{s.experts, "experts"}, Factor{fused ? 9 : 17, "B"});
  add_experts(job, s, f, sink);
  if (s.shared_ffn == 0) return;
  const bool shared = moe || f.has(Recompute::shared_experts);
  if (s.low_precision)
    sink.add(f.when(shared), "shared expert fc1 input, quantised", s.by_tp_sequence, s.linear_input,
             local, h);
  const Factor tokens{s.n, "tokens"}, ffn{s.shared_ffn, "shared ffn"};
  sink.add(f.when(shared), "shared expert fc1 output", s.by_tp_ffn, kBf16, tokens,
           Factor{s.gate, "gate and up"}, ffn);
  sink.add(f.when(shared), "shared expert activation output", s.by_tp_ffn, s.linear_input, tokens,
           ffn);
}

// MegaScale-MoE's selective activation rematerialisation (2505.11432): of the
// (2n + 2k + 3kf + 12 + 5/m) bsh/n elements of a MoE layer it keeps (2kf + 4 + 2/m) bsh/n.
template <class Sink>
void add_rematerialised_moe(const Sizes& s, Sink& sink) {
  sink.half = Half::attention;
  sink.add(Keep::kept, "h-wide tensors kept by SAR", s.by_tp_sequence, kBf16,
           Factor{s.local, "local tokens"}, Factor{4, "tensors"}, Factor{s.h, "hidden"});
  sink.add(Keep::kept, "k, v kept by SAR", s.by_tp_heads, kBf16, Factor{s.n, "tokens"},
           Factor{2 * s.kv_activation_heads, "k + v heads"}, Factor{s.dk, "head width"});
  sink.half = Half::feed_forward;
  sink.add(Keep::kept, "expert fc1 output kept by SAR", s.by_etp, kBf16,
           Factor{s.rows, "routed rows"}, Factor{s.gate, "gate and up"},
           Factor{s.expert_ffn, "expert ffn"});
}

// Everything one layer keeps between its forward and its backward.
template <class Sink>
void add_layer(const job::Job& job, const Sizes& s, model::LayerKind kind, Sink& sink) {
  const Freed f{job.techniques, job.techniques.has(job::Recompute::full)};
  if (kind.moe && s.sar && !f.full) return add_rematerialised_moe(s, sink);
  add_attention_half(job, s, f, sink);
  sink.half = Half::feed_forward;
  sink.add(f.when(f.full, job::OffloadModule::mlp_norm, s.local * s.h),
           "residual after attention (second norm's input)", s.by_tp_sequence, kBf16,
           Factor{s.local, "local tokens"}, Factor{s.h, "hidden"});
  if (kind.moe)
    add_moe_half(job, s, f, sink);
  else
    add_dense_half(s, f, sink);
}

// What an MTP depth keeps beside its layer: two norms' inputs and the projection's 2h-wide input.
template <class Sink>
void add_mtp_extra(const Sizes& s, Sink& sink) {
  sink.half = Half::attention;
  sink.add(Keep::kept, "MTP: embedding and hidden state (norms' inputs), their concatenation",
           s.by_tp_sequence, kBf16, Factor{s.local, "local tokens"}, Factor{4, "tensors"},
           Factor{s.h, "hidden"});
}

}  // namespace trifold::memory

// SPDX-License-Identifier: Apache-2.0
// The architecture. Defaults that bite (megatron.md 1.2) are always written out: Megatron's own
// would build another model without a word.

#include <algorithm>

#include <fmt/format.h>

#include "launch/emitter.h"
#include "launch/layer_list.h"

namespace trifold::launch {
namespace {

using model::Activation;

void emit_attention(Emitter& out) {
  const model::Attention& a = out.job.model.attention;
  out.put("--num-attention-heads", a.heads);
  if (a.kind == model::AttentionKind::mla) {
    out.put("--multi-latent-attention");
    if (a.q_lora_rank > 0) out.put("--q-lora-rank", a.q_lora_rank);
    out.put("--kv-lora-rank", a.kv_lora_rank);
    out.put("--qk-head-dim", a.qk_nope_dim);
    out.put("--qk-pos-emb-head-dim", a.qk_rope_dim);
    out.put("--v-head-dim", a.v_dim);
    out.put("--kv-channels", a.v_dim);
    out.put("--qk-layernorm");  // the latents' norms
  } else {
    if (a.kv_heads != a.heads) {
      out.put("--group-query-attention");
      out.put("--num-query-groups", a.kv_heads);
    }
    out.put("--kv-channels", a.head_dim);
    if (a.qk_norm) out.put("--qk-layernorm");
  }
  if (a.output_gate) out.put("--attention-output-gate");
  if (a.sinks) out.put("--softmax-type", "learnable");
}

void emit_windows(Emitter& out) {
  const model::Model& m = out.job.model;
  std::vector<int> windowed;
  bool every_second = true;
  for (std::size_t i = 0; i < m.layers.size(); ++i) {
    windowed.push_back(m.layers[i].windowed ? 1 : 0);
    every_second = every_second && m.layers[i].windowed == (i % 2 == 0);
  }
  if (std::count(windowed.begin(), windowed.end(), 1) == 0) return;
  out.put("--window-size", fmt::format("{},0", m.attention.window - 1));
  if (std::count(windowed.begin(), windowed.end(), 0) == 0) return;
  // N: every Nth layer sees everything, counting from one.
  if (every_second)
    out.put("--window-attn-skip-freq", 2);
  else
    out.put("--window-attn-skip-freq", print_layer_list(windowed));
}

void emit_mla_rope(Emitter& out) {
  const model::Rope& r = out.job.model.rope;
  out.put("--position-embedding-type", "rope");
  if (r.scaling == "yarn") {
    out.put("--rope-type", "yarn");
    out.put("--rotary-scaling-factor", r.factor);
    out.put("--mscale", r.mscale);
    out.put("--mscale-all-dim", r.mscale_all_dim);
    if (r.beta_fast != 32 || r.beta_slow != 1)
      out.note("YaRN's beta_fast and beta_slow have no flag beside MLA: Megatron uses 32 and 1");
    return;
  }
  if (!r.scaling.empty())
    out.note("rotary scaling '" + r.scaling + "' has no flag beside MLA: left out");
  out.put("--rope-type", "rope");
  if (out.job.techniques.implementation != job::Implementation::local) out.put("--no-rope-fusion");
}

void emit_yarn(Emitter& out) {
  const model::Rope& r = out.job.model.rope;
  const bool mtp = out.job.model.mtp_layers > 0;
  if (mtp || !out.has("--yarn-beta-fast")) {
    out.put("--position-embedding-type", "rope");
    out.note(mtp ? "Megatron has no MTP beside YaRN positions: plain rope instead"
                 : "this version has no YaRN flags outside MLA (0.19 has): plain rope instead; the "
                   "speed is the same, the positions beyond the first context are not");
    return;
  }
  out.put("--position-embedding-type", "yarn");
  out.put("--rotary-scaling-factor", r.factor);
  out.put("--yarn-original-max-position-embeddings",
          static_cast<std::int64_t>(r.original_max_position));
  out.put("--yarn-beta-fast", r.beta_fast);
  out.put("--yarn-beta-slow", r.beta_slow);
  out.put("--mscale", r.mscale);
  out.put("--mscale-all-dim", r.mscale_all_dim);
  out.put("--no-yarn-correction-range-round-to-int");
}

void emit_positions(Emitter& out) {
  const model::Model& m = out.job.model;
  const model::Rope& r = m.rope;
  out.put("--max-position-embeddings", std::max(m.max_position, out.job.training.sequence_length));
  if (r.none) {
    out.put("--position-embedding-type", "learned_absolute");
    return;
  }
  if (m.attention.kind == model::AttentionKind::mla) {
    emit_mla_rope(out);
  } else if (r.scaling == "yarn") {
    emit_yarn(out);
  } else {
    out.put("--position-embedding-type", "rope");
    if (r.scaling == "llama3") {
      out.put("--use-rope-scaling");
      out.put("--rope-scaling-factor", r.factor);
    } else if (r.scaling == "linear") {
      out.put("--rotary-seq-len-interpolation-factor", r.factor);
    } else if (!r.scaling.empty()) {
      out.note("rotary scaling '" + r.scaling + "' has no flag: left out");
    }
  }
  out.put("--rotary-base", r.base);
  out.put("--rotary-percent", r.percent);
}

void emit_activation(Emitter& out) {
  const model::Model& m = out.job.model;
  switch (m.activation) {
    case Activation::swiglu:
      out.put("--swiglu");
      break;
    case Activation::quick_geglu:
      out.put("--quick-geglu");
      if (m.activation_clamp > 0) out.put("--glu-linear-offset", 1.0);  // gpt-oss has the two
      break;
    case Activation::squared_relu:
      out.put("--squared-relu");
      out.put("--no-bias-gelu-fusion");
      break;
    case Activation::gelu:
      break;
    case Activation::geglu:
    case Activation::relu:
      out.refuse("model.activation", fmt::format("Megatron has no flag for the activation {}",
                                                 token_name(model::kActivations, m.activation)));
  }
  if (m.activation_clamp > 0) out.put("--activation-func-clamp-value", m.activation_clamp);
}

void emit_biases(Emitter& out) {
  const model::Model& m = out.job.model;
  const model::Attention& a = m.attention;
  if (!m.linear_bias) {
    out.put("--disable-bias-linear");
    if (a.qkv_bias) out.put("--add-qkv-bias");
    if (a.output_bias)
      out.refuse("model.attention.output_bias",
                 "Megatron has a bias on the attention output only with biases on every linear");
    return;
  }
  if (!a.qkv_bias || !a.output_bias)
    out.note("Megatron puts biases on every linear layer or on none: attention gets them too");
  if (m.is_moe()) out.put("--no-bias-dropout-fusion");
}

}  // namespace

void emit_model(Emitter& out) {
  const model::Model& m = out.job.model;
  if (m.post_norms)
    out.refuse("model.post_norms", "Megatron's GPT layers have no norms after attention and MLP");
  out.put("--num-layers", m.num_layers());
  out.put("--hidden-size", m.hidden);
  out.put("--ffn-hidden-size", m.dense_ffn > 0 ? m.dense_ffn : m.moe.expert_ffn);
  emit_attention(out);
  emit_windows(out);
  out.put("--seq-length", out.job.training.sequence_length);
  emit_positions(out);
  out.put("--normalization", m.norm == model::Norm::rmsnorm ? "RMSNorm" : "LayerNorm");
  out.put("--norm-epsilon", m.norm_epsilon);
  out.put("--init-method-std", m.init_std);
  emit_activation(out);
  emit_biases(out);
  if (!m.tied_embeddings) out.put("--untie-embeddings-and-output-weights");
  out.put("--attention-dropout", 0.0);
  out.put("--hidden-dropout", 0.0);
  if (m.mtp_layers > 0) {
    out.put("--mtp-num-layers", m.mtp_layers);
    out.put("--mtp-loss-scaling-factor", 0.1);
  }
}

void emit_moe_model(Emitter& out) {
  const model::Model& m = out.job.model;
  const model::Moe& e = m.moe;
  out.put("--num-experts", e.experts);
  std::vector<int> moe;
  for (const model::LayerKind& layer : m.layers) moe.push_back(layer.moe ? 1 : 0);
  if (m.dense_layers() > 0)
    out.put("--moe-layer-freq", print_layer_list(moe));
  else
    out.put("--moe-layer-freq", 1);
  out.put("--moe-ffn-hidden-size", e.expert_ffn);
  if (e.shared_ffn > 0) {
    out.put("--moe-shared-expert-intermediate-size", e.shared_ffn);
    if (e.shared_gate) out.put("--moe-shared-expert-gate");
  }
  out.put("--moe-router-topk", e.top_k);
  const bool sigmoid = e.score == model::RouterScore::sigmoid;
  out.put("--moe-router-score-function", sigmoid ? "sigmoid" : "softmax");
  if (!e.normalize_top_k || (e.top_k == 1 && !sigmoid)) {
    if (sigmoid)
      out.note("Megatron normalises sigmoid scores over the chosen experts: it has no flag not to");
    else
      out.put("--moe-router-pre-softmax");
  }
  if (e.group_limited()) {
    out.put("--moe-router-num-groups", e.groups);
    out.put("--moe-router-group-topk", e.top_groups);
  }
  if (e.routed_scaling != 1.0) out.put("--moe-router-topk-scaling-factor", e.routed_scaling);
  if (e.expert_bias) {
    out.put("--moe-router-enable-expert-bias");
    out.put("--moe-router-bias-update-rate", 1e-3);
  }
  out.put("--moe-router-load-balancing-type", e.aux_loss == 0 ? "none"
                                              : sigmoid       ? "seq_aux_loss"
                                                              : "aux_loss");
  out.put("--moe-aux-loss-coeff", e.aux_loss);
  out.put("--moe-router-dtype", "fp32");
}

}  // namespace trifold::launch

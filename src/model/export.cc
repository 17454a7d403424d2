// SPDX-License-Identifier: Apache-2.0
//
// Every habit of a family is written out (a few keys are ours or Megatron's, where Hugging Face has
// none), so that reading the object back needs no defaults.
#include "model/catalogue.h"
#include "model/family.h"

namespace trifold::model {

namespace {

const char* hidden_act(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "silu";
    case Activation::geglu:
    case Activation::gelu:
      return "gelu";
    case Activation::quick_geglu:
      return "quick_gelu";
    case Activation::squared_relu:
      return "relu2";
    case Activation::relu:
      return "relu";
  }
  return "silu";
}

void write_attention(const Model& m, Json& json) {
  const Attention& a = m.attention;
  json["num_attention_heads"] = a.heads;
  if (a.kind == AttentionKind::mla) {
    json["q_lora_rank"] = a.q_lora_rank > 0 ? Json(a.q_lora_rank) : Json(nullptr);
    json["kv_lora_rank"] = a.kv_lora_rank;
    json["qk_nope_head_dim"] = a.qk_nope_dim;
    json["qk_rope_head_dim"] = a.qk_rope_dim;
    json["v_head_dim"] = a.v_dim;
  } else {
    json["num_key_value_heads"] = a.kv_heads;
    json["head_dim"] = a.head_dim;
    json["use_qk_norm"] = a.qk_norm;
  }
  json["attention_bias"] = a.qkv_bias;
  json["attention_output_bias"] = a.output_bias;
  if (a.output_gate) json["attn_output_gate"] = true;
  json["attention_sinks"] = a.sinks;
}

void write_moe(const Model& m, Json& json) {
  const Moe& e = m.moe;
  const Family* family = find_family(m.family);
  const bool expected = family != nullptr && (family->expert_width_is_intermediate ||
                                              family->windows == WindowRule::chunk);
  if (!m.is_moe() && expected) json["num_experts"] = 0;
  if (!m.is_moe()) return;
  json["num_experts"] = e.experts;
  json["num_experts_per_tok"] = e.top_k;
  json["moe_intermediate_size"] = e.expert_ffn;
  json["shared_expert_intermediate_size"] = e.shared_ffn;
  json["shared_expert_gate"] = e.shared_gate;
  json["scoring_func"] = std::string(token_name(kRouterScores, e.score));
  json["n_group"] = e.groups;
  json["topk_group"] = e.top_groups;
  json["routed_scaling_factor"] = e.routed_scaling;
  json["norm_topk_prob"] = e.normalize_top_k;
  json["moe_router_expert_bias"] = e.expert_bias;
  json["router_aux_loss_coef"] = e.aux_loss;
}

// The shortest words for the pattern: a prefix where that says it all, else one word a layer.
void write_layers(const Model& m, Json& json) {
  const std::int64_t prefix = m.dense_prefix();
  if (m.is_moe()) {
    json["first_k_dense_replace"] = prefix;
    if (prefix + m.moe_layers() != m.num_layers()) {
      Json words = Json::array();
      for (LayerKind layer : m.layers) words.push_back(layer.moe ? "sparse" : "dense");
      json["mlp_layer_types"] = std::move(words);
    }
  }
  const Family* family = find_family(m.family);
  const bool default_window = family != nullptr && family->window > 0;
  if (m.attention.window == 0 && default_window) json["sliding_window"] = 0;
  Json words = Json::array();
  const char* narrow = m.attention.chunked ? "chunked_attention" : "sliding_attention";
  for (LayerKind layer : m.layers) words.push_back(layer.windowed ? narrow : "full_attention");
  if (m.attention.window > 0) {
    json[m.attention.chunked ? "attention_chunk_size" : "sliding_window"] = m.attention.window;
    json["layer_types"] = std::move(words);
  }
}

void write_rope(const Model& m, Json& json) {
  const Rope& r = m.rope;
  json["rope_theta"] = r.base;
  json["partial_rotary_factor"] = r.percent;
  if (r.none) json["learned_positions"] = true;
  if (r.scaling.empty()) return;
  Json scaling = {{"rope_type", r.scaling}, {"factor", r.factor}};
  if (r.original_max_position > 0)
    scaling["original_max_position_embeddings"] = r.original_max_position;
  if (r.scaling == "yarn") {
    scaling["beta_fast"] = r.beta_fast;
    scaling["beta_slow"] = r.beta_slow;
    scaling["mscale"] = r.mscale;
    scaling["mscale_all_dim"] = r.mscale_all_dim;
  } else if (r.scaling == "llama3") {
    scaling["low_freq_factor"] = r.low_freq_factor;
    scaling["high_freq_factor"] = r.high_freq_factor;
  }
  json["rope_scaling"] = std::move(scaling);
}

}  // namespace

Json to_hf_config(const Model& m) {
  Json json = Json::object();
  if (!m.name.empty()) json["name"] = m.name;
  if (!m.family.empty()) json["model_type"] = m.family;
  json["num_hidden_layers"] = m.num_layers();
  json["hidden_size"] = m.hidden;
  if (m.dense_ffn > 0)  // Qwen's first family counts both halves of its gate
    json["intermediate_size"] = m.family == "qwen" ? 2 * m.dense_ffn : m.dense_ffn;
  if (m.family.rfind("llama4", 0) == 0 && m.dense_ffn > 0)
    json["intermediate_size_mlp"] = m.dense_ffn;
  json["vocab_size"] = m.vocab;
  json["max_position_embeddings"] = m.max_position;
  json["hidden_act"] = hidden_act(m.activation);
  json["gated_mlp"] = is_gated(m.activation);
  json["norm_type"] = std::string(token_name(kNorms, m.norm));
  json["rms_norm_eps"] = m.norm_epsilon;
  json["initializer_range"] = m.init_std;
  json["tie_word_embeddings"] = m.tied_embeddings;
  json["add_bias_linear"] = m.linear_bias;
  json["use_post_norms"] = m.post_norms;
  if (m.activation_clamp > 0) json["swiglu_limit"] = m.activation_clamp;
  write_attention(m, json);
  write_moe(m, json);
  write_layers(m, json);
  write_rope(m, json);
  json["num_nextn_predict_layers"] = m.mtp_layers;
  if (!m.source.empty()) json["source"] = m.source;
  return json;
}

}  // namespace trifold::model

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "model/catalogue.h"
#include "model/layer_pattern.h"
#include "model/where.h"

namespace trifold::model {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;

struct Integer {
  const char* name;   // in Model
  const char* alias;  // Hugging Face's
  std::int64_t& (*field)(Model&);
  std::int64_t low;
};

#define TRIFOLD_FIELD(path) [](Model& m) -> std::int64_t& { return m.path; }
constexpr Integer kIntegers[] = {
    {"hidden", "hidden_size", TRIFOLD_FIELD(hidden), 1},
    {"vocab", "vocab_size", TRIFOLD_FIELD(vocab), 1},
    {"dense_ffn", "intermediate_size", TRIFOLD_FIELD(dense_ffn), 0},
    {"max_position", "max_position_embeddings", TRIFOLD_FIELD(max_position), 0},
    {"mtp_layers", "num_nextn_predict_layers", TRIFOLD_FIELD(mtp_layers), 0},
    {"heads", "num_attention_heads", TRIFOLD_FIELD(attention.heads), 1},
    {"kv_heads", "num_key_value_heads", TRIFOLD_FIELD(attention.kv_heads), 1},
    {"head_dim", "kv_channels", TRIFOLD_FIELD(attention.head_dim), 1},
    {"q_lora_rank", "q_lora_rank", TRIFOLD_FIELD(attention.q_lora_rank), 0},
    {"kv_lora_rank", "kv_lora_rank", TRIFOLD_FIELD(attention.kv_lora_rank), 1},
    {"qk_nope_dim", "qk_nope_head_dim", TRIFOLD_FIELD(attention.qk_nope_dim), 1},
    {"qk_rope_dim", "qk_rope_head_dim", TRIFOLD_FIELD(attention.qk_rope_dim), 0},
    {"v_dim", "v_head_dim", TRIFOLD_FIELD(attention.v_dim), 1},
    {"window", "sliding_window", TRIFOLD_FIELD(attention.window), 0},
    {"experts", "num_experts", TRIFOLD_FIELD(moe.experts), 0},
    {"top_k", "num_experts_per_tok", TRIFOLD_FIELD(moe.top_k), 1},
    {"expert_ffn", "moe_intermediate_size", TRIFOLD_FIELD(moe.expert_ffn), 1},
    {"shared_ffn", "shared_expert_intermediate_size", TRIFOLD_FIELD(moe.shared_ffn), 0},
    {"groups", "n_group", TRIFOLD_FIELD(moe.groups), 1},
    {"top_groups", "topk_group", TRIFOLD_FIELD(moe.top_groups), 1},
};
#undef TRIFOLD_FIELD

struct Switch {
  const char* name;
  const char* alias;
  bool& (*field)(Model&);
};

#define TRIFOLD_FIELD(path) [](Model& m) -> bool& { return m.path; }
constexpr Switch kSwitches[] = {
    {"tied_embeddings", "tie_word_embeddings", TRIFOLD_FIELD(tied_embeddings)},
    {"qk_norm", "use_qk_norm", TRIFOLD_FIELD(attention.qk_norm)},
    {"qkv_bias", "add_qkv_bias", TRIFOLD_FIELD(attention.qkv_bias)},
    {"output_bias", "attention_output_bias", TRIFOLD_FIELD(attention.output_bias)},
    {"linear_bias", "add_bias_linear", TRIFOLD_FIELD(linear_bias)},
    {"post_norms", "use_post_norms", TRIFOLD_FIELD(post_norms)},
    {"shared_gate", "shared_expert_gate", TRIFOLD_FIELD(moe.shared_gate)},
    {"expert_bias", "moe_router_expert_bias", TRIFOLD_FIELD(moe.expert_bias)},
    {"normalize_top_k", "norm_topk_prob", TRIFOLD_FIELD(moe.normalize_top_k)},
};
#undef TRIFOLD_FIELD

void read_numbers(JsonReader& reader, Model& m) {
  for (const Integer& entry : kIntegers)
    for (const char* key : {entry.alias, entry.name})
      reader.get_in(key, entry.field(m), entry.low, kMost);
  for (const Switch& entry : kSwitches)
    for (const char* key : {entry.alias, entry.name}) reader.get(key, entry.field(m));
  reader.get_in("aux_loss", m.moe.aux_loss, 0, 1e3);
  reader.get_in("routed_scaling", m.moe.routed_scaling, 0, 1e6);
  reader.get_in("norm_epsilon", m.norm_epsilon, 0, 1);
  reader.get_in("init_std", m.init_std, 0, 10);
  reader.get_in("rope_base", m.rope.base, 1, 1e15);
  reader.get_token("activation", kActivations, m.activation);
  reader.get_token("norm", kNorms, m.norm);
  reader.get_token("score", kRouterScores, m.moe.score);
}

// Widths that follow from an overridden one.
void settle(JsonReader& reader, const Model& before, Model& m) {
  if (m.attention.kind == AttentionKind::mla) m.attention.kv_heads = m.attention.heads;
  const bool multi_head = before.attention.kv_heads == before.attention.heads;
  if (multi_head && !reader.has("kv_heads") && !reader.has("num_key_value_heads"))
    m.attention.kv_heads = m.attention.heads;
  if (before.attention.window == 0 && m.attention.window > 0)
    for (LayerKind& layer : m.layers) layer.windowed = true;
  if (m.attention.window == 0) {
    m.attention.chunked = false;
    for (LayerKind& layer : m.layers) layer.windowed = false;
  }
  if (!before.is_moe() && m.is_moe())
    for (LayerKind& layer : m.layers) layer.moe = true;
  if (m.is_moe()) return;
  m.moe = Moe{};
  for (LayerKind& layer : m.layers) layer.moe = false;
}

void resize(JsonReader& reader, Model& m) {
  std::int64_t layers = m.num_layers();
  for (const char* key : {"num_hidden_layers", "num_layers"}) reader.get_in(key, layers, 1, 10000);
  const std::int64_t present = m.is_moe() ? m.dense_prefix() : 0;
  std::int64_t prefix = present;
  for (const char* key : {"first_k_dense_replace", "dense_prefix_layers"})
    reader.get_in(key, prefix, 0, 10000);
  if (reader.failed() || (layers == m.num_layers() && prefix == present)) return;
  if (prefix > 0 && !m.is_moe())
    return reader.fail(input_error("a dense model has no dense prefix",
                                   reader.where("dense_prefix_layers"),
                                   "remove the key, or set experts"));
  if (m.is_moe() && prefix >= layers)
    return reader.fail(input_error(
        fmt::format("{} dense layers of {} leave no MoE layer", prefix, layers),
        reader.where(reader.has("num_layers") ? "num_layers" : ""), "lower dense_prefix_layers"));
  m.layers = resize_layers(m, layers, prefix);
}

}  // namespace

Result<void> apply_overrides(Model& model, const Json& overrides, const std::string& where) {
  if (overrides.is_null()) return {};
  const Where base = split_where(where);
  JsonReader reader(overrides, base.file, base.pointer);
  Model changed = model;
  read_numbers(reader, changed);
  settle(reader, model, changed);
  resize(reader, changed);
  TRIFOLD_TRY(reader.finish());
  TRIFOLD_TRY(validate(changed, where));
  model = std::move(changed);
  return {};
}

}  // namespace trifold::model

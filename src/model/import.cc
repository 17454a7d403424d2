// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>

#include "model/catalogue.h"
#include "model/family.h"
#include "model/layer_pattern.h"
#include "model/where.h"

namespace trifold::model {

namespace {

using Keys = std::initializer_list<const char*>;

constexpr std::int64_t kRequired = -1;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
constexpr std::int64_t kMaxLayers = 10000;

struct Import {
  JsonReader& reader;
  const Family& family;
  Model& model;
  std::vector<ImportNote>* notes;

  void note(const char* field, const char* key) const {
    if (notes != nullptr) notes->push_back({field, key});
  }
};

struct Range {
  std::int64_t low = 1;
  std::int64_t high = kMaxWidth;
};

void fail_missing(const Import& in, Keys keys) {
  std::string others;
  for (const char* const* key = keys.begin() + 1; key < keys.end(); ++key)
    others += fmt::format("{}'{}'", others.empty() ? "" : ", ", *key);
  in.reader.fail(input_error(fmt::format("missing key '{}'", *keys.begin()), in.reader.where(),
                             others.empty() ? "" : "or one of its other names: " + others));
}

// The first key present feeds the field; a second one that says otherwise is an error.
std::int64_t size(const Import& in, const char* field, Keys keys, std::int64_t fallback,
                  Range range = {}) {
  const char* found = nullptr;
  std::int64_t value = fallback;
  for (const char* key : keys) {
    if (!in.reader.has(key)) {
      in.reader.ignore(key);
      continue;
    }
    std::int64_t here = fallback;
    in.reader.get_in(key, here, range.low, range.high);
    if (found == nullptr) {
      found = key;
      value = here;
      in.note(field, key);
    } else if (here != value) {
      in.reader.fail(
          input_error(fmt::format("'{}' says {} but '{}' says {}", found, value, key, here),
                      in.reader.where(key), "keep one of the two"));
    }
  }
  if (found == nullptr && fallback == kRequired) {
    fail_missing(in, keys);
    return 0;
  }
  return value;
}

const char* first_present(const Import& in, Keys keys) {
  const char* found = nullptr;
  for (const char* key : keys) {
    if (found == nullptr && in.reader.has(key)) found = key;
    in.reader.ignore(key);
  }
  return found;
}

template <class T>
T first_of(const Import& in, const char* field, Keys keys, T fallback) {
  const char* key = first_present(in, keys);
  if (key == nullptr) return fallback;
  in.reader.get(key, fallback);
  in.note(field, key);
  return fallback;
}

double number(const Import& in, const char* field, Keys keys, double fallback, double low,
              double high) {
  const char* key = first_present(in, keys);
  if (key == nullptr) return fallback;
  in.reader.get_in(key, fallback, low, high);
  in.note(field, key);
  return fallback;
}

void read_widths(const Import& in) {
  Model& m = in.model;
  const std::int64_t vocab = in.family.vocab > 0 ? in.family.vocab : kRequired;
  m.hidden = size(in, "hidden", {"hidden_size", "d_model", "n_embd"}, kRequired);
  const char* vocab_key = first_present(in, {"vocab_size", "padded_vocab_size"});
  m.vocab = size(in, "vocab", {vocab_key != nullptr ? vocab_key : "vocab_size"}, vocab,
                 {1, std::int64_t{1} << 27});
  const char* position = first_present(in, {"max_position_embeddings", "seq_length", "max_seq_len",
                                            "n_positions", "max_sequence_length"});
  if (position != nullptr)
    m.max_position = size(in, "max_position", {position}, 0, {0, std::int64_t{1} << 40});
  m.norm_epsilon = number(
      in, "norm_epsilon",
      {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps"},
      m.norm_epsilon, 0, 1);
  m.init_std = number(in, "init_std", {"initializer_range", "init_std"}, m.init_std, 0, 10);
  m.tied_embeddings = first_of(in, "tied_embeddings", {"tie_word_embeddings"}, in.family.tied);
  m.post_norms = first_of(in, "post_norms", {"use_post_norms"}, in.family.post_norms);
  m.linear_bias =
      first_of(in, "linear_bias", {"add_bias_linear", "mlp_bias"}, in.family.linear_bias);
  m.norm = in.family.norm;
  in.reader.get_token("norm_type", kNorms, m.norm);
  m.activation_clamp = number(in, "activation_clamp", {"swiglu_limit"}, m.activation_clamp, 0, 1e6);
}

void read_activation(const Import& in) {
  Model& m = in.model;
  m.activation = in.family.activation;
  const std::string word = first_of(
      in, "activation", {"hidden_activation", "hidden_act", "activation_function"}, std::string());
  const bool gated = first_of(in, "activation", {"gated_mlp"}, in.family.gated);
  // gpt-oss writes "silu" for its clamped x * sigmoid(1.702 x).
  if (word.empty() || (in.family.activation == Activation::quick_geglu && word == "silu")) return;
  struct Word {
    std::string_view name;
    bool gated;
    Activation activation;
  };
  static constexpr Word kWords[] = {
      {"silu", true, Activation::swiglu},
      {"swish", true, Activation::swiglu},
      {"swiglu", true, Activation::swiglu},
      {"gelu", true, Activation::geglu},
      {"gelu_pytorch_tanh", true, Activation::geglu},
      {"gelu_new", true, Activation::geglu},
      {"gelu_fast", true, Activation::geglu},
      {"geglu", true, Activation::geglu},
      {"quick_gelu", true, Activation::quick_geglu},
      {"gelu", false, Activation::gelu},
      {"gelu_new", false, Activation::gelu},
      {"gelu_fast", false, Activation::gelu},
      {"gelu_pytorch_tanh", false, Activation::gelu},
      {"relu", false, Activation::relu},
      {"relu2", false, Activation::squared_relu},
      {"squared_relu", false, Activation::squared_relu},
  };
  std::vector<std::string_view> names;
  for (const Word& known : kWords) {
    if (known.gated == gated) names.push_back(known.name);
    if (known.gated == gated && known.name == word) {
      m.activation = known.activation;
      return;
    }
  }
  in.reader.fail(input_error(fmt::format("unknown {}activation '{}'", gated ? "gated " : "", word),
                             in.reader.where("hidden_act"), suggest(word, names)));
}

void read_mla(const Import& in) {
  Attention& a = in.model.attention;
  const Range rank{0, kMaxWidth};
  a.kind = AttentionKind::mla;
  a.kv_heads = a.heads;
  a.kv_lora_rank = size(in, "kv_lora_rank", {"kv_lora_rank"}, kRequired);
  a.q_lora_rank = size(in, "q_lora_rank", {"q_lora_rank"}, 0, rank);
  a.qk_nope_dim = size(in, "qk_nope_dim", {"qk_nope_head_dim"}, kRequired, {1, kMaxHeads});
  a.qk_rope_dim = size(in, "qk_rope_dim", {"qk_rope_head_dim"}, kRequired, {0, kMaxHeads});
  const bool even = a.heads > 0 && in.model.hidden % a.heads == 0;
  a.v_dim = size(in, "v_dim", {"v_head_dim"}, even ? in.model.hidden / a.heads : kRequired,
                 {1, kMaxHeads});
  for (const char* key : {"num_key_value_heads", "head_dim", "use_qk_norm"}) in.reader.ignore(key);
}

void read_gqa(const Import& in) {
  Attention& a = in.model.attention;
  const Range heads{1, kMaxHeads};
  const bool even = a.heads > 0 && in.model.hidden % a.heads == 0;
  const std::int64_t derived = in.family.head_dim > 0 ? in.family.head_dim
                               : even                 ? in.model.hidden / a.heads
                                                      : kRequired;
  a.head_dim =
      size(in, "head_dim", {"head_dim", "kv_channels", "attention_head_dim"}, derived, heads);
  a.kv_heads =
      size(in, "kv_heads",
           {"num_key_value_heads", "kv_n_heads", "multi_query_group_num", "num_query_groups"},
           in.family.kv_heads > 0 ? in.family.kv_heads : a.heads, heads);
  if (!first_of(in, "kv_heads", {"multi_query_attention"}, true)) a.kv_heads = a.heads;
  a.qk_norm = first_of(in, "qk_norm", {"use_qk_norm"}, in.family.qk_norm);
}

void read_attention(const Import& in) {
  Attention& a = in.model.attention;
  a.heads =
      size(in, "heads", {"num_attention_heads", "n_heads", "n_head"}, kRequired, {1, kMaxHeads});
  if (in.family.mla || in.reader.has("kv_lora_rank"))
    read_mla(in);
  else
    read_gqa(in);
  for (const char* key :
       {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"})
    in.reader.ignore(key);
  a.qkv_bias = first_of(in, "qkv_bias",
                        {"attention_bias", "add_qkv_bias", "use_qkv_bias", "qkv_bias", "bias"},
                        in.family.qkv_bias);
  a.output_bias =
      first_of(in, "output_bias", {"attention_output_bias"}, a.qkv_bias && in.family.output_bias);
  a.output_gate = first_of(in, "output_gate", {"attn_output_gate"}, false);
  a.sinks = first_of(in, "sinks", {"attention_sinks"}, in.family.sinks);
}

// Grouped limits count only where the selection method uses them.
void read_router(const Import& in) {
  Moe& e = in.model.moe;
  const Range groups{1, kMaxHeads};
  e.score = in.family.score;
  if (const char* key = first_present(in, {"scoring_func", "moe_router_activation"}))
    in.reader.get_token(key, kRouterScores, e.score);
  const std::string method = first_of(in, "groups", {"topk_method"}, std::string());
  e.groups = size(in, "groups", {"n_group"}, 1, groups);
  e.top_groups = size(in, "top_groups", {"topk_group"}, 1, groups);
  if (method == "greedy") e.groups = e.top_groups = 1;
  e.expert_bias = first_of(in, "expert_bias", {"use_routing_bias", "moe_router_expert_bias"},
                           method == "noaux_tc" || in.family.expert_bias);
  e.routed_scaling = number(in, "routed_scaling",
                            {"routed_scaling_factor", "moe_router_scaling_factor"}, 1, 0, 1e6);
  e.normalize_top_k =
      first_of(in, "normalize_top_k", {"norm_topk_prob"}, in.family.normalize_top_k);
  e.aux_loss = number(in, "aux_loss", {"router_aux_loss_coef", "aux_loss_alpha", "moe_loss_weight"},
                      in.family.aux_loss, 0, 1e3);
  // Its config says 0.9, but training balances by other means (megatron.md section 1.4).
  if (in.family.name == "gpt_oss") e.aux_loss = 0;
}

void read_shared(const Import& in, bool llama4) {
  Moe& e = in.model.moe;
  const Range width{0, kMaxWidth};
  const std::int64_t count =
      size(in, "shared_ffn", {"n_shared_experts", "num_shared_experts"}, 0, {0, 1024});
  const std::int64_t total =
      size(in, "shared_ffn",
           {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
            "shared_intermediate_size", "share_expert_dim"},
           llama4 ? e.expert_ffn : count * e.expert_ffn, width);
  e.shared_ffn = total;
  e.shared_gate =
      first_of(in, "shared_gate", {"shared_expert_gate"}, in.family.shared_gate && total > 0);
}

void read_feed_forward(const Import& in) {
  Model& m = in.model;
  const Range width{1, kMaxWidth};
  const bool llama4 = in.family.windows == WindowRule::chunk;
  const Keys dense_keys = {"intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner"};
  const Keys expert_count = {"n_routed_experts", "num_experts", "num_local_experts",
                             "moe_num_experts"};
  const Keys expert_width = {"moe_intermediate_size", "moe_ffn_hidden_size"};
  const Keys picks = {"num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk",
                      "num_experts_per_token"};
  const bool moe = in.family.expert_width_is_intermediate || llama4 ||
                   first_present(in, expert_width) != nullptr ||
                   first_present(in, picks) != nullptr;
  // GPT's habit where nothing is said: four times the hidden width.
  const bool gpt = in.family.learned_positions && !moe;
  m.moe.experts = size(in, "experts", expert_count, moe ? kRequired : 0, {0, kMaxHeads});
  if (m.moe.experts == 0) {
    m.dense_ffn = size(in, "dense_ffn", dense_keys, gpt ? 4 * m.hidden : kRequired, width);
    if (in.family.name == "qwen") m.dense_ffn /= 2;  // counts both halves of its gate
    return;
  }
  m.moe.top_k = size(in, "top_k", picks, kRequired, {1, kMaxHeads});
  const bool narrow = in.family.expert_width_is_intermediate || llama4;
  const std::int64_t intermediate =
      size(in, narrow ? "expert_ffn" : "dense_ffn", dense_keys, 0, {0, kMaxWidth});
  m.moe.expert_ffn = size(in, "expert_ffn", expert_width,
                          narrow && intermediate > 0 ? intermediate : kRequired, width);
  m.dense_ffn =
      llama4 ? size(in, "dense_ffn", {"intermediate_size_mlp"}, intermediate, width) : intermediate;
  read_router(in);
  read_shared(in, llama4);
}

void read_rope_scaling(const Import& in, JsonReader& scaling) {
  Rope& r = in.model.rope;
  std::string kind;
  for (const char* key : {"type", "rope_type"}) scaling.get(key, kind);
  const bool plain = kind.empty() || kind == "default" || kind == "mrope";
  r.scaling = plain ? "" : kind;
  if (plain) return;
  scaling.get_in("factor", r.factor, 0, 1e6);
  scaling.get_in("original_max_position_embeddings", r.original_max_position, 0, 1e12);
  if (kind == "yarn") {
    scaling.get_in("beta_fast", r.beta_fast, 0, 1e6);
    scaling.get_in("beta_slow", r.beta_slow, 0, 1e6);
    scaling.get_in("mscale", r.mscale, 0, 1e6);
    scaling.get_in("mscale_all_dim", r.mscale_all_dim, 0, 1e6);
  } else if (kind == "llama3") {
    scaling.get_in("low_freq_factor", r.low_freq_factor, 0, 1e6);
    scaling.get_in("high_freq_factor", r.high_freq_factor, 0, 1e6);
  }
}

void read_rope(const Import& in) {
  Rope& r = in.model.rope;
  r.base = number(in, "rope.base",
                  {"rope_theta", "rotary_emb_base", "rope_embedding_base", "rotary_base"},
                  in.family.rope_base, 1, 1e15);
  r.percent = number(in, "rope.percent", {"partial_rotary_factor", "rotary_pct"}, 1, 0, 1);
  r.none = first_of(in, "rope.none", {"learned_positions"}, in.family.learned_positions);
  const std::int64_t rotary_dim = size(in, "rope.percent", {"rotary_dim"}, 0, {0, kMaxHeads});
  const Attention& a = in.model.attention;
  if (rotary_dim > 0 && a.head_dim > 0)
    r.percent = std::min(1.0, static_cast<double>(rotary_dim) / static_cast<double>(a.head_dim));
  number(in, "rope.original_max_position", {"original_max_position_embeddings"}, 0, 0, 1e12);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!in.reader.has(key)) {
      in.reader.ignore(key);
      continue;
    }
    JsonReader scaling = in.reader.child(key);
    // Newer files hold one set for windowed and one for full layers.
    const bool nested = scaling.has("full_attention");
    JsonReader set = nested ? scaling.child("full_attention") : scaling;
    set.get_in("rope_theta", r.base, 1, 1e15);
    set.get_in("partial_rotary_factor", r.percent, 0, 1);
    read_rope_scaling(in, set);
    in.note("rope.scaling", key);
    set.ignore_rest();
    in.reader.join(set);
    return;
  }
}

void read_mtp(const Import& in) {
  const Range depths{0, 64};
  const std::int64_t each = size(in, "mtp_layers", {"mtp_transformer_layers"}, 1, depths);
  const std::int64_t count = size(
      in, "mtp_layers",
      {"num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_modules"}, 0,
      depths);
  const bool used = first_of(in, "mtp_layers", {"use_mtp"}, true);
  in.model.mtp_layers = used ? count * each : 0;
}

void read_config(const Import& in) {
  const std::int64_t layers =
      size(in, "layers", {"num_hidden_layers", "num_layers", "n_layers", "n_layer"}, kRequired,
           {1, kMaxLayers});
  read_widths(in);
  read_activation(in);
  read_attention(in);
  read_feed_forward(in);
  read_rope(in);
  read_mtp(in);
  in.reader.get("source", in.model.source);
  std::int64_t projection = in.model.hidden;
  in.reader.get("word_embed_proj_dim", projection);
  if (projection != in.model.hidden)
    in.reader.fail(input_error("an embedding projected to the hidden width cannot be priced yet",
                               in.reader.where("word_embed_proj_dim")));
  if (!in.reader.failed()) read_layers(in.reader, in.family, layers, in.model);
}

// DBRX keeps half of its widths in two objects.
Json flattened(const Json& config) {
  Json flat = config;
  for (const char* key : {"attn_config", "ffn_config"}) {
    const auto inner = config.find(key);
    if (inner == config.end() || !inner->is_object()) continue;
    for (const auto& item : inner->items())
      if (!flat.contains(item.key())) flat[item.key()] = item.value();
  }
  return flat;
}

std::string text_of(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::string architecture_of(const Json& config) {
  const auto it = config.find("architectures");
  if (it == config.end() || !it->is_array() || it->empty() || !it->front().is_string()) return {};
  return it->front().get<std::string>();
}

// "Qwen3MoeForCausalLM" -> "qwen3_moe", by comparing without underscores and case.
std::string family_of_architecture(const std::string& architecture) {
  std::string stem;
  for (char c : architecture.substr(0, architecture.find("For")))
    stem += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (std::string_view name : family_names()) {
    std::string bare(name);
    bare.erase(std::remove(bare.begin(), bare.end(), '_'), bare.end());
    if (bare == stem) return std::string(name);
  }
  return stem;
}

std::string model_type_of(const Json& outer, const Json& inner) {
  const std::string architecture = architecture_of(outer);
  // Its model_type says "mixtral".
  if (architecture.rfind("Grok1", 0) == 0) return "grok-1";
  for (const Json* config : {&inner, &outer})
    if (std::string type = text_of(*config, "model_type"); !type.empty()) return type;
  return architecture.empty() ? std::string() : family_of_architecture(architecture);
}

const Json& text_config(const Json& config, std::string& pointer) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object()) continue;
    pointer = std::string("/") + key;
    return *it;
  }
  return config;
}

Result<void> refuse_unpriceable(const Json& outer, const Json& inner, const std::string& file) {
  std::string kind;
  for (const Json* config : {&inner, &outer}) {
    if (kind.empty()) kind = unpriceable_model_type(text_of(*config, "model_type"));
    if (kind.empty()) kind = unpriceable_config(*config);
  }
  if (kind.empty()) return {};
  std::string type = text_of(outer, "model_type");
  if (type.empty()) type = architecture_of(outer);
  return input_error(fmt::format("the {} architecture{} cannot be priced yet", kind,
                                 type.empty() ? "" : " of '" + type + "'"),
                     file, "decoders with full or sliding-window attention can be");
}

std::string stem_of(const std::string& file) {
  if (!split_where(file).pointer.empty()) return "inline";
  std::string name = file.substr(file.find_last_of('/') + 1);
  if (name.size() > 5 && name.substr(name.size() - 5) == ".json") name.resize(name.size() - 5);
  return name;
}

}  // namespace

Result<Model> import_hf_config(const Json& config, const std::string& file,
                               std::vector<ImportNote>* notes) {
  if (!config.is_object())
    return input_error("a model is a JSON object in Hugging Face's key names", file);
  const Where base = split_where(file);
  std::string inner;
  const Json& text = text_config(config, inner);
  const std::string pointer = base.pointer + inner;
  TRIFOLD_TRY(refuse_unpriceable(config, text, file));
  const std::string type = model_type_of(config, text);
  const Family* family = type.empty() ? &inline_family() : find_family(type);
  if (family == nullptr)
    return input_error(fmt::format("model_type '{}' is not known and cannot be priced", type),
                       base.file + "#" + pointer + "/model_type", suggest(type, family_names()));
  Json flat = flattened(text);
  if (!flat.contains("tie_word_embeddings") && config.contains("tie_word_embeddings"))
    flat["tie_word_embeddings"] = config["tie_word_embeddings"];

  Model model;
  model.name = stem_of(file);
  model.family = type;
  JsonReader reader(flat, base.file, pointer);
  reader.get("name", model.name);
  read_config(Import{reader, *family, model, notes});
  if (!type.empty()) reader.ignore_rest();
  TRIFOLD_TRY(reader.finish());
  TRIFOLD_TRY(validate(model, reader.where()));
  return model;
}

}  // namespace trifold::model

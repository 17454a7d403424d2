// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>
#include <cctype>

namespace trifold::model {

namespace {

constexpr auto kSigmoid = RouterScore::sigmoid;
constexpr auto kQwenWindow = WindowRule::qwen;

constexpr Family kLlama{.name = "llama", .output_bias = true};
constexpr Family kDeepseekV3{.name = "deepseek_v3",
                             .mla = true,
                             .output_bias = true,
                             .expert_bias = true,
                             .score = kSigmoid,
                             .aux_loss = 1e-4,
                             .dense_prefix = 3};
constexpr Family kQwen3{
    .name = "qwen3", .qk_norm = true, .output_bias = true, .windows = kQwenWindow, .head_dim = 128};
constexpr Family kQwen3Moe{.name = "qwen3_moe",
                           .qk_norm = true,
                           .output_bias = true,
                           .normalize_top_k = false,
                           .windows = kQwenWindow,
                           .aux_loss = 1e-3};
constexpr Family kGemma3{.name = "gemma3_text",
                         .tied = true,
                         .qk_norm = true,
                         .output_bias = true,
                         .post_norms = true,
                         .activation = Activation::geglu,
                         .windows = WindowRule::pattern,
                         .head_dim = 256,
                         .vocab = 262208,
                         .window = 4096,
                         .rope_base = 1e6};
constexpr Family kLlama4{.name = "llama4_text",
                         .output_bias = true,
                         .normalize_top_k = false,
                         .score = kSigmoid,
                         .windows = WindowRule::chunk,
                         .aux_loss = 1e-3,
                         .head_dim = 128,
                         .rope_base = 5e5};
constexpr Family kGpt{.name = "gpt2",
                      .tied = true,
                      .qkv_bias = true,
                      .output_bias = true,
                      .linear_bias = true,
                      .gated = false,
                      .learned_positions = true,
                      .norm = Norm::layernorm,
                      .activation = Activation::gelu};

constexpr Family renamed(Family family, std::string_view name) {
  family.name = name;
  return family;
}

constexpr Family with_qkv_bias(Family family) {
  family.qkv_bias = true;
  family.output_bias = false;
  family.windows = kQwenWindow;
  return family;
}

constexpr Family kFamilies[] = {
    kLlama,
    {.name = "mistral", .windows = WindowRule::every_layer, .kv_heads = 8},
    {.name = "mixtral",
     .expert_width_is_intermediate = true,
     .windows = WindowRule::every_layer,
     .aux_loss = 1e-3,
     .kv_heads = 8,
     .rope_base = 1e6},
    // xai-org/grok-1 model.py: norms before and after both halves, embedding shared with the head,
    // softmax over all experts before top-k.
    {.name = "grok-1",
     .tied = true,
     .post_norms = true,
     .normalize_top_k = false,
     .expert_width_is_intermediate = true,
     .activation = Activation::geglu},
    {.name = "deepseek", .output_bias = true, .normalize_top_k = false, .aux_loss = 1e-3},
    {.name = "deepseek_v2",
     .mla = true,
     .output_bias = true,
     .normalize_top_k = false,
     .aux_loss = 1e-3},
    kDeepseekV3,
    renamed(kDeepseekV3, "kimi_k2"),
    renamed(kDeepseekV3, "kimi_k25"),
    {.name = "minicpm3", .mla = true, .tied = true, .output_bias = true},
    {.name = "glm4_moe",
     .expert_bias = true,
     .score = kSigmoid,
     .aux_loss = 1e-3,
     .dense_prefix = 1,
     .head_dim = 128},
    {.name = "chatglm"},
    with_qkv_bias(renamed(kLlama, "qwen2")),
    with_qkv_bias(renamed(kLlama, "qwen2_vl")),
    with_qkv_bias(renamed(kLlama, "qwen2_5_vl")),
    with_qkv_bias(renamed(kLlama, "mimo")),
    {.name = "qwen", .qkv_bias = true},
    {.name = "qwen2_moe",
     .qkv_bias = true,
     .normalize_top_k = false,
     .shared_gate = true,
     .windows = kQwenWindow,
     .aux_loss = 1e-3},
    kQwen3,
    renamed(kQwen3, "qwen3_vl"),
    renamed(kQwen3, "qwen3_vl_text"),
    kQwen3Moe,
    renamed(kQwen3Moe, "qwen3_vl_moe"),
    renamed(kQwen3Moe, "qwen3_vl_moe_text"),
    {.name = "gemma",
     .tied = true,
     .output_bias = true,
     .activation = Activation::geglu,
     .head_dim = 256},
    {.name = "gemma2",
     .tied = true,
     .output_bias = true,
     .post_norms = true,
     .activation = Activation::geglu,
     .windows = WindowRule::alternate,
     .head_dim = 256,
     .window = 4096},
    kGemma3,
    renamed(kGemma3, "gemma3"),
    {.name = "gpt_oss",
     .qkv_bias = true,
     .output_bias = true,
     .linear_bias = true,
     .sinks = true,
     .expert_width_is_intermediate = true,
     .activation = Activation::quick_geglu,
     .windows = WindowRule::alternate,
     .head_dim = 64,
     .window = 128,
     .rope_base = 1.5e5},
    kLlama4,
    renamed(kLlama4, "llama4"),
    {.name = "minimax_m2",
     .expert_bias = true,
     .expert_width_is_intermediate = true,
     .score = kSigmoid,
     .windows = WindowRule::every_layer,
     .aux_loss = 1e-3},
    {.name = "phi3", .windows = WindowRule::every_layer},
    {.name = "phimoe",
     .output_bias = true,
     .normalize_top_k = false,
     .expert_width_is_intermediate = true,
     .norm = Norm::layernorm,
     .windows = WindowRule::every_layer},
    {.name = "dbrx",
     .expert_width_is_intermediate = true,
     .norm = Norm::layernorm,
     .aux_loss = 0.05},
    {.name = "olmoe",
     .qk_norm = true,
     .output_bias = true,
     .normalize_top_k = false,
     .expert_width_is_intermediate = true,
     .aux_loss = 0.01},
    {.name = "granite", .output_bias = true},
    {.name = "granitemoe",
     .output_bias = true,
     .expert_width_is_intermediate = true,
     .aux_loss = 1e-3},
    {.name = "bailing_moe", .output_bias = true, .normalize_top_k = false},
    {.name = "internlm2", .output_bias = true},
    {.name = "exaone"},
    {.name = "gpt_neox",
     .qkv_bias = true,
     .output_bias = true,
     .linear_bias = true,
     .gated = false,
     .norm = Norm::layernorm,
     .activation = Activation::gelu},
    {.name = "opt",
     .tied = true,
     .qkv_bias = true,
     .output_bias = true,
     .linear_bias = true,
     .gated = false,
     .learned_positions = true,
     .norm = Norm::layernorm,
     .activation = Activation::relu},
    kGpt,
    renamed(kGpt, "gpt"),
};

constexpr Family inline_defaults() {
  Family family = renamed(kLlama, "");
  family.windows = WindowRule::every_layer;
  return family;
}
constexpr Family kInline = inline_defaults();

struct Refusal {
  std::string_view name;
  std::string_view architecture;
};

constexpr std::string_view kStateSpace = "state-space hybrid";
constexpr std::string_view kLinear = "linear-attention";
constexpr std::string_view kSparse = "compressed or sparse attention";
constexpr std::string_view kEncoderDecoder = "encoder-decoder";
constexpr std::string_view kEncoder = "encoder-only";
constexpr std::string_view kCross = "cross-attention (vision)";
constexpr std::string_view kMfa = "multi-matrix-factorization attention";
constexpr std::string_view kLatentMoe = "latent Mixture-of-Experts";

constexpr Refusal kRefused[] = {
    {"nemotron_h", kStateSpace},
    {"mamba", kStateSpace},
    {"mamba2", kStateSpace},
    {"falcon_mamba", kStateSpace},
    {"falcon_h1", kStateSpace},
    {"jamba", kStateSpace},
    {"zamba", kStateSpace},
    {"zamba2", kStateSpace},
    {"bamba", kStateSpace},
    {"granitemoehybrid", kStateSpace},
    {"plamo2", kStateSpace},
    {"lfm2", kStateSpace},
    {"lfm2_moe", kStateSpace},
    {"recurrent_gemma", kStateSpace},
    {"rwkv", kLinear},
    {"qwen3_next", kLinear},
    {"qwen3_5", kLinear},
    {"qwen3_5_moe", kLinear},
    {"minimax", kLinear},
    {"minimax_m1", kLinear},
    {"minimax_text_01", kLinear},
    {"kimi_linear", kLinear},
    {"bailing_moe_linear", kLinear},
    {"deepseek_v32", kSparse},
    {"deepseek_v4", kSparse},
    {"deepseek_ref", kSparse},
    {"glm_moe_dsa", kSparse},
    {"phi3small", kSparse},
    {"mllama", kCross},
    {"mllama_text_model", kCross},
    {"step3_text", kMfa},
    {"step3_vl", kMfa},
    {"t5", kEncoderDecoder},
    {"mt5", kEncoderDecoder},
    {"umt5", kEncoderDecoder},
    {"longt5", kEncoderDecoder},
    {"bart", kEncoderDecoder},
    {"mbart", kEncoderDecoder},
    {"pegasus", kEncoderDecoder},
    {"whisper", kEncoderDecoder},
    {"marian", kEncoderDecoder},
    {"m2m_100", kEncoderDecoder},
    {"t5gemma", kEncoderDecoder},
    {"switch_transformers", kEncoderDecoder},
    {"nllb-moe", kEncoderDecoder},
    {"bert", kEncoder},
    {"roberta", kEncoder},
    {"xlm-roberta", kEncoder},
    {"deberta-v2", kEncoder},
    {"modernbert", kEncoder},
};

// Keys that give an architecture away whatever model_type says.
constexpr Refusal kTellingKeys[] = {
    {"hybrid_override_pattern", kStateSpace},
    {"ssm_state_size", kStateSpace},
    {"mamba_num_heads", kStateSpace},
    {"mamba_d_state", kStateSpace},
    {"layers_block_type", kStateSpace},
    {"linear_num_key_heads", kLinear},
    {"full_attention_interval", kLinear},
    {"index_topk", kSparse},
    {"compress_ratios", kSparse},
    {"blocksparse_block_size", kSparse},
    {"cross_attention_layers", kCross},
    {"share_q_dim", kMfa},
    {"moe_latent_size", kLatentMoe},
};

constexpr Refusal kNameStems[] = {
    {"nemotron-3", kStateSpace},
    {"nemotron-h", kStateSpace},
    {"nemotron3", kStateSpace},
    {"jamba", kStateSpace},
    {"mamba", kStateSpace},
    {"qwen3-next", kLinear},
    {"qwen3.5", kLinear},
    {"minimax-m1", kLinear},
    {"minimax-text-01", kLinear},
    {"kimi-linear", kLinear},
    {"deepseek-v4", kSparse},
    {"deepseek-v3.2", kSparse},
    {"glm-5", kSparse},
    {"step-3", kMfa},
    {"step3", kMfa},
    {"llama-3.2-11b-vision", kCross},
    {"llama-3.2-90b-vision", kCross},
};

bool names_linear_layers(const Json& config) {
  for (const char* key : {"layer_types", "attn_type_list"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_array()) continue;
    for (const Json& kind : *it)
      if (kind == "linear_attention" || kind == "lightning_attention" ||
          (key[0] == 'a' && kind == 0))
        return true;
  }
  return false;
}

bool is_true(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_boolean() && it->get<bool>();
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  const auto* it = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                [&](const Family& f) { return f.name == model_type; });
  return it == std::end(kFamilies) ? nullptr : it;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

const Family& inline_family() { return kInline; }

std::string unpriceable_model_type(std::string_view model_type) {
  for (const Refusal& refusal : kRefused)
    if (refusal.name == model_type) return std::string(refusal.architecture);
  return {};
}

std::string unpriceable_config(const Json& config) {
  if (!config.is_object()) return {};
  for (const Refusal& telling : kTellingKeys) {
    const auto it = config.find(std::string(telling.name));
    if (it != config.end() && !it->is_null()) return std::string(telling.architecture);
  }
  if (names_linear_layers(config)) return std::string(kLinear);
  if (is_true(config, "is_encoder_decoder")) return std::string(kEncoderDecoder);
  if (is_true(config, "add_cross_attention")) return std::string(kCross);
  return {};
}

std::string unpriceable_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  for (const Refusal& refusal : kNameStems)
    if (lower.find(refusal.name) != std::string::npos) return std::string(refusal.architecture);
  return {};
}

}  // namespace trifold::model

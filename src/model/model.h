// SPDX-License-Identifier: Apache-2.0
#pragma once

// Model: the architecture of a decoder-only transformer, dense or Mixture-of-Experts. Widths are in
// elements, counts are whole. Everything downstream (FLOPs, parameters, operators, memory, launch
// arguments) is derived from this alone.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/tokens.h"

namespace trifold::model {

enum class AttentionKind : std::uint8_t { gqa, mla };  // MHA is gqa with kv_heads == heads
inline constexpr Token<AttentionKind> kAttentionKinds[] = {{AttentionKind::gqa, "gqa"},
                                                           {AttentionKind::mla, "mla"}};

// What stands between the two linear layers of a feed-forward. Gated kinds have three matrices, the
// others two.
enum class Activation : std::uint8_t { swiglu, geglu, quick_geglu, gelu, squared_relu, relu };
inline constexpr Token<Activation> kActivations[] = {{Activation::swiglu, "swiglu"},
                                                     {Activation::geglu, "geglu"},
                                                     {Activation::quick_geglu, "quick_geglu"},
                                                     {Activation::gelu, "gelu"},
                                                     {Activation::squared_relu, "squared_relu"},
                                                     {Activation::relu, "relu"}};
constexpr bool is_gated(Activation a) {
  return a == Activation::swiglu || a == Activation::geglu || a == Activation::quick_geglu;
}

enum class RouterScore : std::uint8_t { softmax, sigmoid };
inline constexpr Token<RouterScore> kRouterScores[] = {{RouterScore::softmax, "softmax"},
                                                       {RouterScore::sigmoid, "sigmoid"}};

enum class Norm : std::uint8_t { rmsnorm, layernorm };
inline constexpr Token<Norm> kNorms[] = {{Norm::rmsnorm, "rmsnorm"},
                                         {Norm::layernorm, "layernorm"}};

struct Attention {
  AttentionKind kind = AttentionKind::gqa;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;      // gqa: query groups; mla: equal to heads
  std::int64_t head_dim = 0;      // gqa: width of q, k and v heads
  std::int64_t q_lora_rank = 0;   // mla; 0: q is projected directly
  std::int64_t kv_lora_rank = 0;  // mla
  std::int64_t qk_nope_dim = 0;   // mla: q/k head width without position
  std::int64_t qk_rope_dim = 0;   // mla: rotary part, one key shared by all heads
  std::int64_t v_dim = 0;         // mla: v head width
  std::int64_t window = 0;        // tokens seen by windowed layers (causal); 0: no windowed layer
  bool chunked = false;  // windowed layers see their own chunk of `window` tokens only (Llama-4)
  bool qk_norm = false;  // per-head norm of q and k (gqa)
  bool qkv_bias = false;
  bool output_bias = false;
  bool output_gate = false;
  bool sinks = false;  // learnable softmax offset per head (gpt-oss)

  std::int64_t qk_dim() const {
    return kind == AttentionKind::mla ? qk_nope_dim + qk_rope_dim : head_dim;
  }
  std::int64_t value_dim() const { return kind == AttentionKind::mla ? v_dim : head_dim; }

  bool operator==(const Attention&) const = default;
};

struct Moe {
  std::int64_t experts = 0;  // routed experts; 0: a dense model
  std::int64_t top_k = 0;
  std::int64_t expert_ffn = 0;  // width of one routed expert
  std::int64_t shared_ffn = 0;  // total width of the shared experts; 0: none
  bool shared_gate = false;     // sigmoid gate on the shared expert (Qwen2-MoE)
  RouterScore score = RouterScore::softmax;
  std::int64_t groups = 1;      // group-limited routing: experts are cut into this many groups ...
  std::int64_t top_groups = 1;  // ... of which a token may use this many; 1 of 1: no limit
  double routed_scaling = 1.0;
  bool expert_bias = false;     // auxiliary-loss-free balancing bias
  bool normalize_top_k = true;  // softmax after top-k (no pre-softmax) when true
  double aux_loss = 0.0;
  bool group_limited() const { return groups > 1 && top_groups < groups; }

  bool operator==(const Moe&) const = default;
};

struct Rope {
  double base = 10000.0;
  double percent = 1.0;  // share of the head that is rotated
  std::string scaling;   // "", "yarn", "llama3", "linear", or another library's word ("longrope")
  double factor = 1.0;
  double original_max_position = 0;
  double beta_fast = 32, beta_slow = 1;
  double mscale = 1.0, mscale_all_dim = 0.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  bool none = false;  // no rotary embedding: learned positions, max_position of them

  bool operator==(const Rope&) const = default;
};

// What one layer is made of. A model has at most four kinds; `LayerKind` is their index.
struct LayerKind {
  bool moe = false;
  bool windowed = false;
  constexpr int index() const { return (moe ? 1 : 0) + (windowed ? 2 : 0); }
  static constexpr LayerKind from_index(int i) { return LayerKind{(i & 1) != 0, (i & 2) != 0}; }
  constexpr bool operator==(const LayerKind&) const = default;
};
inline constexpr int kLayerKinds = 4;

struct Model {
  std::string name;    // catalogue name, or the file it came from
  std::string family;  // Hugging Face model_type
  std::string source;
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;      // unpadded
  std::int64_t dense_ffn = 0;  // width of dense layers; 0 where every layer is MoE
  std::int64_t max_position = 0;
  Attention attention;
  Moe moe;
  Activation activation = Activation::swiglu;
  Norm norm = Norm::rmsnorm;
  double norm_epsilon = 1e-6;
  double init_std = 0.02;
  Rope rope;
  bool linear_bias = false;  // biases on feed-forward / expert linears (gpt-oss, GPT)
  bool post_norms = false;   // extra norms after attention and feed-forward (Gemma)
  bool tied_embeddings = false;
  std::int64_t mtp_layers =
      0;  // multi-token-prediction depths; each is one more layer of the last layer's kind
  double activation_clamp = 0.0;  // gpt-oss: 7.0; 0: none
  std::vector<LayerKind> layers;  // one per decoder layer, in order

  std::int64_t num_layers() const { return static_cast<std::int64_t>(layers.size()); }
  bool is_moe() const { return moe.experts > 0; }
  std::int64_t count(LayerKind kind) const;
  std::int64_t moe_layers() const;  // decoder layers only
  std::int64_t dense_layers() const;
  std::int64_t dense_prefix() const;  // leading dense layers
  LayerKind mtp_kind() const { return layers.back(); }

  bool operator==(const Model&) const = default;
};

}  // namespace trifold::model

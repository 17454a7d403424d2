// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a Hugging Face model_type means beyond the keys of its config.json: the library's defaults
// and habits (from the transformers library's configuration and modeling files, and megatron.md
// section 1.4). And the architectures that cannot be priced yet.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model.h"

namespace trifold::model {

// Which layers see a window when `layer_types` does not say.
enum class WindowRule : std::uint8_t {
  every_layer,  // sliding_window is set: all layers (Mistral, Phi-3)
  qwen,         // only with use_sliding_window, from max_window_layers on
  alternate,    // even layers (Gemma-2, gpt-oss)
  pattern,      // all but every sliding_window_pattern-th (Gemma-3)
  chunk,        // attention_chunk_size; all but every fourth (Llama-4)
  none,
};

struct Family {
  std::string_view name;  // model_type
  bool mla = false;
  bool tied = false;
  bool qk_norm = false;      // unless use_qk_norm says otherwise
  bool qkv_bias = false;     // unless attention_bias or its like says otherwise
  bool output_bias = false;  // does attention_bias reach the output projection?
  bool linear_bias = false;
  bool gated = true;
  bool post_norms = false;
  bool sinks = false;
  bool learned_positions = false;
  bool expert_bias = false;
  bool normalize_top_k = true;
  bool shared_gate = false;
  bool expert_width_is_intermediate = false;  // intermediate_size is the experts' width
  Norm norm = Norm::rmsnorm;
  Activation activation = Activation::swiglu;
  RouterScore score = RouterScore::softmax;
  WindowRule windows = WindowRule::none;
  double aux_loss = 0;
  std::int64_t dense_prefix = 0;
  std::int64_t head_dim = 0;  // library defaults; 0: derived, or the key is required
  std::int64_t kv_heads = 0;
  std::int64_t vocab = 0;
  std::int64_t window = 0;
  double rope_base = 10000;
};

// nullptr when unknown.
const Family* find_family(std::string_view model_type);
std::vector<std::string_view> family_names();
const Family& inline_family();  // a shape without model_type: RMSNorm, SwiGLU, untied

// The kind of architecture (for instance "state-space hybrid") that keeps this config from being
// priced; empty when nothing does. `name` fits catalogue names too.
std::string unpriceable_model_type(std::string_view model_type);
std::string unpriceable_config(const Json& config);
std::string unpriceable_name(std::string_view name);

}  // namespace trifold::model

// SPDX-License-Identifier: Apache-2.0
//
// Parameters are counted from the shapes, term by term: techniques.md (b) "Parameters and FLOPs",
// with biases, norms, sinks and the router's balancing bias, which that line leaves out.
//
// FLOPs per token follow Megatron-LM's num_floating_point_operations (megatron.md section 6,
// flops.md section 1): 6 = 2 (multiply-add) x 3 (forward, data gradient, weight gradient) per
// weight; causal attention counts s/2 keys, a window its exact mean; MTP depths count as layers of
// the last kind, plus 6(3h + 2h^2) and one more vocabulary projection each. Router, norms, softmax,
// biases and recompute are not counted. Known difference: Megatron has no chunked attention, so for
// Llama-4 beyond its chunk this is our own count (C/2 keys).
#include "model/size.h"

#include <algorithm>

#include "base/math.h"

namespace trifold::model {

namespace {

std::int64_t norm_width(const Model& m) {
  return m.norm == Norm::layernorm ? 2 * m.hidden : m.hidden;
}

std::int64_t feed_forward(const Model& m, std::int64_t width) {
  if (width == 0) return 0;
  const std::int64_t inputs = is_gated(m.activation) ? 2 : 1;
  const std::int64_t bias = m.linear_bias ? inputs * width + m.hidden : 0;
  return (inputs + 1) * m.hidden * width + bias;
}

std::int64_t mla_parameters(const Model& m) {
  const Attention& a = m.attention;
  const std::int64_t query = a.q_lora_rank > 0
                                 ? a.q_lora_rank * (m.hidden + a.heads * a.qk_dim() + 1)
                                 : m.hidden * a.heads * a.qk_dim();
  const std::int64_t key_value = m.hidden * (a.kv_lora_rank + a.qk_rope_dim) + a.kv_lora_rank +
                                 a.kv_lora_rank * a.heads * (a.qk_nope_dim + a.v_dim);
  const std::int64_t output = a.heads * a.v_dim * m.hidden;
  const std::int64_t bias = (a.qkv_bias ? a.q_lora_rank + a.kv_lora_rank + a.qk_rope_dim : 0) +
                            (a.output_bias ? m.hidden : 0);
  return query + key_value + output + bias;
}

std::int64_t gqa_parameters(const Model& m) {
  const Attention& a = m.attention;
  const std::int64_t outputs = a.head_dim * (a.heads * (a.output_gate ? 2 : 1) + 2 * a.kv_heads);
  std::int64_t total = m.hidden * outputs + a.heads * a.head_dim * m.hidden;
  if (a.qkv_bias) total += outputs;
  if (a.output_bias) total += m.hidden;
  if (a.qk_norm) total += 2 * a.head_dim;
  if (a.sinks) total += a.heads;
  return total;
}

double projection_flops(const Model& m) {
  const Attention& a = m.attention;
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const double h = d(m.hidden), heads = d(a.heads);
  if (a.kind == AttentionKind::gqa) {
    const double gate = a.output_gate ? heads : 0;
    return h * d(a.head_dim) * (heads + 2 * d(a.kv_heads) + gate) + d(a.head_dim) * heads * h;
  }
  const double query = a.q_lora_rank > 0 ? d(a.q_lora_rank) * (h + heads * d(a.qk_dim()) + 1)
                                         : h * heads * d(a.qk_dim());
  return query + d(a.kv_lora_rank) * (h + heads * d(a.qk_nope_dim + a.v_dim) + 1) +
         h * d(a.qk_rope_dim) + heads * d(a.v_dim) * h;
}

// Multiply-adds per token and layer, forward.
double layer_work(const Model& m, LayerKind kind, std::int64_t sequence_length,
                  FlopsConvention convention) {
  const Attention& a = m.attention;
  const double keys = convention == FlopsConvention::full_attention
                          ? static_cast<double>(sequence_length)
                          : mean_keys(a, kind.windowed, sequence_length);
  const double core = static_cast<double>(a.heads * (a.qk_dim() + a.value_dim())) * keys;
  const std::int64_t width =
      kind.moe ? m.moe.expert_ffn * m.moe.top_k + m.moe.shared_ffn : m.dense_ffn;
  const double matrices = is_gated(m.activation) ? 3 : 2;
  return projection_flops(m) + core + matrices * static_cast<double>(m.hidden * width);
}

}  // namespace

LayerParameters layer_parameters(const Model& m, LayerKind kind) {
  LayerParameters p;
  p.attention = m.attention.kind == AttentionKind::mla ? mla_parameters(m) : gqa_parameters(m);
  p.norms = (m.post_norms ? 4 : 2) * norm_width(m);
  if (!kind.moe) {
    p.dense_ffn = feed_forward(m, m.dense_ffn);
    return p;
  }
  const std::int64_t router_biases = (m.moe.expert_bias ? 1 : 0) + (m.linear_bias ? 1 : 0);
  p.router = m.moe.experts * (m.hidden + router_biases);
  const std::int64_t expert = feed_forward(m, m.moe.expert_ffn);
  p.experts = m.moe.experts * expert;
  p.expert_active = m.moe.top_k * expert;
  p.shared = feed_forward(m, m.moe.shared_ffn) + (m.moe.shared_gate ? m.hidden : 0);
  return p;
}

std::int64_t mtp_parameters(const Model& m) {
  return layer_parameters(m, m.mtp_kind()).total() + 2 * m.hidden * m.hidden + 3 * norm_width(m);
}

Parameters count_parameters(const Model& m) {
  Parameters p;
  p.embedding = m.vocab * m.hidden + (m.rope.none ? m.max_position * m.hidden : 0);
  p.head = m.tied_embeddings ? 0 : m.vocab * m.hidden;
  p.final_norm = norm_width(m);
  for (int i = 0; i < kLayerKinds; ++i) {
    const LayerKind kind = LayerKind::from_index(i);
    const std::int64_t n = m.count(kind);
    if (n == 0) continue;
    const LayerParameters layer = layer_parameters(m, kind);
    p.attention += n * layer.attention;
    p.norms += n * layer.norms;
    p.dense_ffn += n * layer.dense_ffn;
    p.router += n * layer.router;
    p.experts += n * layer.experts;
    p.expert_active += n * layer.expert_active;
    p.shared += n * layer.shared;
  }
  p.mtp = m.mtp_layers > 0 ? m.mtp_layers * mtp_parameters(m) : 0;
  return p;
}

std::int64_t padded_vocab(const Model& m, std::int64_t tp) { return round_up(m.vocab, 128 * tp); }

double mean_causal_keys(std::int64_t sequence_length, std::int64_t window) {
  const auto s = static_cast<double>(sequence_length), w = static_cast<double>(window);
  if (window <= 0 || window >= sequence_length) return s / 2;
  return w - w * (w - 1) / (2 * s);
}

double mean_keys(const Attention& attention, bool windowed, std::int64_t sequence_length) {
  if (!windowed) return mean_causal_keys(sequence_length, 0);
  if (!attention.chunked) return mean_causal_keys(sequence_length, attention.window);
  const auto s = static_cast<double>(sequence_length), c = static_cast<double>(attention.window);
  if (attention.window <= 0 || attention.window >= sequence_length) return s / 2;
  const double whole = std::floor(s / c) * c, rest = s - whole;
  return (whole * c / 2 + rest * rest / 2) / s;
}

double train_flops_per_token(const Model& m, std::int64_t sequence_length, std::int64_t tp,
                             FlopsConvention convention) {
  double work = 0;
  for (int i = 0; i < kLayerKinds; ++i) {
    const LayerKind kind = LayerKind::from_index(i);
    const std::int64_t n =
        m.count(kind) + (m.mtp_layers > 0 && kind == m.mtp_kind() ? m.mtp_layers : 0);
    if (n > 0) work += static_cast<double>(n) * layer_work(m, kind, sequence_length, convention);
  }
  const auto h = static_cast<double>(m.hidden), depths = static_cast<double>(m.mtp_layers);
  work += depths * (3 * h + 2 * h * h);
  work += h * static_cast<double>(padded_vocab(m, tp)) * (1 + depths);
  return 6 * work;
}

}  // namespace trifold::model

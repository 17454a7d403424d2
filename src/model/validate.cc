// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::model {

namespace {

constexpr std::int64_t kWidest = std::int64_t{1} << 24;
constexpr double kMostParameters = 1e15;

struct Named {
  const char* name;
  std::int64_t value;
  std::int64_t low;
};

Result<void> in_range(std::initializer_list<Named> widths, const std::string& where) {
  for (const Named& w : widths)
    if (w.value < w.low || w.value > kWidest)
      return input_error(fmt::format("{} is {}, outside {}..{}", w.name, w.value, w.low, kWidest),
                         where);
  return {};
}

Result<void> validate_attention(const Model& m, const std::string& where) {
  const Attention& a = m.attention;
  TRIFOLD_TRY(in_range(
      {{"num_attention_heads", a.heads, 1}, {"num_key_value_heads", a.kv_heads, 1}}, where));
  if (a.heads % a.kv_heads != 0)
    return input_error(fmt::format("{} attention heads are not divisible by {} key/value heads",
                                   a.heads, a.kv_heads),
                       where, "each key/value head serves the same number of query heads");
  if (a.kind == AttentionKind::gqa)
    TRIFOLD_TRY(in_range({{"head_dim", a.head_dim, 1}}, where));
  else
    TRIFOLD_TRY(in_range({{"q_lora_rank", a.q_lora_rank, 0},
                          {"kv_lora_rank", a.kv_lora_rank, 1},
                          {"qk_nope_head_dim", a.qk_nope_dim, 1},
                          {"qk_rope_head_dim", a.qk_rope_dim, 0},
                          {"v_head_dim", a.v_dim, 1}},
                         where));
  const bool windowed =
      std::any_of(m.layers.begin(), m.layers.end(), [](LayerKind k) { return k.windowed; });
  if (a.window < 0 || (windowed && a.window == 0))
    return input_error(fmt::format("window is {}", a.window), where,
                       "windowed layers need a positive sliding_window");
  return {};
}

Result<void> validate_moe(const Model& m, const std::string& where) {
  const Moe& e = m.moe;
  if (m.moe_layers() > 0 && e.experts <= 0)
    return input_error("MoE layers without experts", where, "set num_experts");
  if (!m.is_moe()) return {};
  TRIFOLD_TRY(in_range({{"num_experts", e.experts, 1},
                        {"num_experts_per_tok", e.top_k, 1},
                        {"moe_intermediate_size", e.expert_ffn, 1},
                        {"shared_expert_intermediate_size", e.shared_ffn, 0},
                        {"n_group", e.groups, 1},
                        {"topk_group", e.top_groups, 1}},
                       where));
  if (e.top_k > e.experts)
    return input_error(fmt::format("top-{} of {} experts", e.top_k, e.experts), where,
                       "num_experts_per_tok cannot exceed the number of experts");
  if (e.experts % e.groups != 0)
    return input_error(
        fmt::format("{} experts are not divisible into {} groups", e.experts, e.groups), where,
        "n_group must divide the number of experts");
  if (e.top_groups > e.groups)
    return input_error(fmt::format("topk_group {} of n_group {}", e.top_groups, e.groups), where);
  if (e.top_k > e.experts / e.groups * e.top_groups)
    return input_error(fmt::format("top-{} experts do not fit in {} groups of {}", e.top_k,
                                   e.top_groups, e.experts / e.groups),
                       where, "raise topk_group or lower num_experts_per_tok");
  if (m.moe_layers() == 0)
    return input_error("no layer is MoE although there are experts", where,
                       "the dense prefix leaves no layer for them");
  return {};
}

// An upper bound in floating point, so that the exact count cannot overflow afterwards.
double parameter_bound(const Model& m) {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const Attention& a = m.attention;
  const double heads = d(a.heads) * d(a.qk_dim() + 2 * a.value_dim() + 2 * a.qk_nope_dim);
  const double ranks = d(a.q_lora_rank + a.kv_lora_rank + a.qk_rope_dim);
  const double attention = (d(m.hidden) + ranks) * (3 * heads + ranks);
  const double experts = d(m.moe.experts) * (3 * d(m.moe.expert_ffn) + 3) * (d(m.hidden) + 3);
  const double dense = 3 * (d(m.dense_ffn) + d(m.moe.shared_ffn) + 1) * (d(m.hidden) + 3);
  const double positions = m.rope.none ? d(m.max_position) : 0;
  return d(m.num_layers() + m.mtp_layers) *
             (attention + experts + dense + 2 * d(m.hidden) * d(m.hidden)) +
         (2 * d(m.vocab) + positions) * d(m.hidden);
}

}  // namespace

Result<void> validate(const Model& m, const std::string& where) {
  if (m.layers.empty() || m.layers.size() > 10000)
    return input_error(fmt::format("num_hidden_layers is {}, outside 1..10000", m.layers.size()),
                       where);
  if (m.vocab < 1 || m.vocab > (std::int64_t{1} << 27))
    return input_error(fmt::format("vocab_size is {}, outside 1..{}", m.vocab, 1 << 27), where);
  TRIFOLD_TRY(in_range(
      {{"hidden_size", m.hidden, 1}, {"num_nextn_predict_layers", m.mtp_layers, 0}}, where));
  TRIFOLD_TRY(validate_attention(m, where));
  TRIFOLD_TRY(validate_moe(m, where));
  if (m.dense_layers() > 0 && (m.dense_ffn < 1 || m.dense_ffn > kWidest))
    return input_error(fmt::format("{} dense layers but the dense feed-forward width is {}",
                                   m.dense_layers(), m.dense_ffn),
                       where, "set intermediate_size (dense_ffn)");
  if (m.rope.none && m.max_position < 1)
    return input_error("learned positions without a length", where, "set max_position_embeddings");
  if (const double bound = parameter_bound(m); !(bound < kMostParameters))
    return input_error(fmt::format("about {:.1e} parameters is no model that can exist", bound),
                       where, "check the widths and counts");
  return {};
}

}  // namespace trifold::model

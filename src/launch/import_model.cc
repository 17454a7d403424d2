// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "launch/importer.h"
#include "launch/layer_list.h"

namespace trifold::launch {
namespace {

using model::Activation;

// One entry per layer: is it MoE (or windowed)?
std::vector<int> per_layer(Importer& in, const char* flag, std::int64_t layers, bool window) {
  const std::string text = in.text(flag);
  const std::size_t n = static_cast<std::size_t>(layers);
  if (text.empty()) return std::vector<int>(n, 1);
  const Result<LayerList> read = parse_layer_list(text, flag);
  if (!read) {
    in.fail(read.error().message, read.error().hint);
    return std::vector<int>(n, 1);
  }
  if (read->is_list) {
    if (read->list.size() != n) in.fail(std::string(flag) + " has not one entry per layer");
    std::vector<int> list = read->list;
    list.resize(n, 1);
    return list;
  }
  std::vector<int> list(n, 0);
  const std::size_t every = static_cast<std::size_t>(std::max(1, read->every));
  // Windows count layers from one and leave every Nth out; MoE counts from zero and takes it.
  for (std::size_t i = 0; i < n; ++i)
    list[i] = window ? ((i + 1) % every != 0 ? 1 : 0) : (i % every == 0 ? 1 : 0);
  return list;
}

void read_layers(Importer& in, model::Model& m) {
  const std::int64_t layers = in.need("--num-layers");
  if (layers < 1 || layers > 10000) return in.fail("--num-layers is out of range");
  const std::vector<int> moe = per_layer(in, "--moe-layer-freq", layers, false);
  std::vector<int> windowed(static_cast<std::size_t>(layers), 0);
  const std::string window = in.text("--window-size");
  in.mark("--window-attn-skip-freq");
  if (!window.empty()) {
    windowed = per_layer(in, "--window-attn-skip-freq", layers, true);
    const std::size_t digit = window.find_first_of("0123456789");
    m.attention.window =
        digit == std::string::npos ? 0 : std::strtoll(window.c_str() + digit, nullptr, 10) + 1;
  }
  for (std::size_t i = 0; i < moe.size(); ++i)
    m.layers.push_back({in.settings.moe && moe[i] != 0, windowed[i] != 0});
}

void read_attention(Importer& in, model::Model& m) {
  model::Attention& a = m.attention;
  a.heads = in.need("--num-attention-heads");
  const bool grouped = in.has("--group-query-attention");
  const std::int64_t groups = in.integer("--num-query-groups", 1);
  const std::int64_t channels = in.integer("--kv-channels", a.heads > 0 ? m.hidden / a.heads : 0);
  const bool layernorm = in.has("--qk-layernorm");
  if (in.has("--multi-latent-attention")) {
    a.kind = model::AttentionKind::mla;
    a.kv_heads = a.heads;
    a.q_lora_rank = in.integer("--q-lora-rank");
    a.kv_lora_rank = in.integer("--kv-lora-rank");
    a.qk_nope_dim = in.integer("--qk-head-dim");
    a.qk_rope_dim = in.integer("--qk-pos-emb-head-dim");
    a.v_dim = in.integer("--v-head-dim");
  } else {
    a.kv_heads = grouped ? groups : a.heads;
    a.head_dim = channels;
    a.qk_norm = layernorm;
  }
  m.linear_bias = !in.has("--disable-bias-linear");
  a.qkv_bias = in.has("--add-qkv-bias") || m.linear_bias;
  a.output_bias = m.linear_bias;
  a.output_gate = in.has("--attention-output-gate");
  const std::string softmax = in.text("--softmax-type");
  a.sinks = softmax == "learnable";
  if (softmax == "off-by-one") in.lost("--softmax-type off-by-one");
}

void read_positions(Importer& in, model::Model& m) {
  model::Rope& r = m.rope;
  m.max_position = in.need("--max-position-embeddings");
  std::string kind = in.text("--position-embedding-type");
  if (in.has("--use-rotary-position-embeddings")) kind = "rope";
  r.none = kind != "rope" && kind != "yarn";
  if (r.none && kind != "learned_absolute" && kind != "none")
    in.lost("--position-embedding-type " + kind);
  if (r.none) return;
  r.base = in.real("--rotary-base");
  r.percent = in.real("--rotary-percent");
  const double factor = in.real("--rotary-scaling-factor"), mscale = in.real("--mscale"),
               all = in.real("--mscale-all-dim");
  std::string rope_type = in.text("--rope-type");
  const bool mla = m.attention.kind == model::AttentionKind::mla;
  if (mla && rope_type.empty()) rope_type = "yarn";
  const bool mla_yarn = mla && rope_type == "yarn" && factor != 1.0;
  if (mla_yarn || kind == "yarn") {
    r.scaling = "yarn";
    r.factor = factor;
    r.mscale = mscale;
    r.mscale_all_dim = all;
    r.original_max_position = in.real("--yarn-original-max-position-embeddings", 4096);
    r.beta_fast = in.real("--yarn-beta-fast", 32);
    r.beta_slow = in.real("--yarn-beta-slow", 1);
    in.mark("--no-yarn-correction-range-round-to-int");
    in.mark("--yarn-correction-range-round-to-int");
  } else if (in.has("--use-rope-scaling")) {
    r.scaling = "llama3";
    r.factor = in.real("--rope-scaling-factor");
    r.original_max_position = 8192;  // Megatron's constant
  } else if (in.has("--rotary-seq-len-interpolation-factor")) {
    r.scaling = "linear";
    r.factor = in.real("--rotary-seq-len-interpolation-factor");
  }
}

void read_activation(Importer& in, model::Model& m) {
  m.activation = Activation::gelu;
  if (in.has("--swiglu")) m.activation = Activation::swiglu;
  if (in.has("--quick-geglu")) m.activation = Activation::quick_geglu;
  if (in.has("--squared-relu")) m.activation = Activation::squared_relu;
  m.activation_clamp = in.real("--activation-func-clamp-value");
  in.mark("--glu-linear-offset");
  in.mark("--no-bias-gelu-fusion");
  in.mark("--no-bias-dropout-fusion");
}

void read_moe(Importer& in, model::Model& m, std::int64_t ffn) {
  model::Moe& e = m.moe;
  e.experts = in.integer("--num-experts");
  if (e.experts == 0) return;
  e.top_k = in.integer("--moe-router-topk", 2);
  e.expert_ffn = in.integer("--moe-ffn-hidden-size", ffn);
  e.shared_ffn = in.integer("--moe-shared-expert-intermediate-size");
  e.shared_gate = in.has("--moe-shared-expert-gate");
  const std::string score = in.text("--moe-router-score-function");
  e.score = score == "softmax" ? model::RouterScore::softmax : model::RouterScore::sigmoid;
  if (score == "sqrtsoftplus")
    in.lost("--moe-router-score-function sqrtsoftplus: taken as sigmoid");
  const bool before = in.has("--moe-router-pre-softmax");
  e.normalize_top_k = e.score == model::RouterScore::sigmoid || !before;
  const std::int64_t groups = in.integer("--moe-router-num-groups", 1);
  const std::int64_t kept = in.integer("--moe-router-group-topk", groups);
  e.groups = kept < groups ? groups : 1;
  e.top_groups = kept < groups ? kept : 1;
  e.routed_scaling = in.real("--moe-router-topk-scaling-factor", 1);
  e.expert_bias = in.has("--moe-router-enable-expert-bias");
  in.mark("--moe-router-bias-update-rate");
  const std::string balancing = in.text("--moe-router-load-balancing-type");
  e.aux_loss = balancing == "none" ? 0 : in.real("--moe-aux-loss-coeff");
  in.mark("--moe-aux-loss-coeff");
  in.mark("--moe-router-dtype");
}

// Where the vocabulary is the tokenizer's: a catalogue model of the same size lends its own.
void lend_vocabulary(Importer& in, model::Model& m) {
  if (m.vocab != 0) return;
  for (const model::Model& known : in.options.known_models) {
    const bool same = known.hidden == m.hidden && known.layers.size() == m.layers.size() &&
                      known.attention.heads == m.attention.heads &&
                      known.attention.kind == m.attention.kind &&
                      known.moe.experts == m.moe.experts && known.dense_ffn == m.dense_ffn &&
                      known.moe.expert_ffn == m.moe.expert_ffn;
    if (!same) continue;
    m.vocab = known.vocab;
    m.name = known.name + "-like";
    in.result.assumed.push_back(fmt::format(
        "vocabulary {}: {}'s, whose size this model has; the arguments leave it to the tokenizer",
        known.vocab, known.name));
    return;
  }
  in.fail("the vocabulary is the tokenizer's and not in the arguments",
          "add --vocab-size N to what you import");
}

}  // namespace

void import_model(Importer& in) {
  model::Model m;
  m.name = "imported";
  m.source = in.options.file;
  m.hidden = in.need("--hidden-size");
  const std::int64_t padded = in.integer("--padded-vocab-size");
  m.vocab = in.integer("--vocab-size", padded);
  read_layers(in, m);
  read_attention(in, m);
  read_positions(in, m);
  read_activation(in, m);
  // Megatron's own default: a multiple of 64 near 8h/3 for SwiGLU, else 4h.
  const std::int64_t usual =
      m.activation == Activation::swiglu ? m.hidden * 8 / 3 / 64 * 64 : 4 * m.hidden;
  const std::int64_t ffn = in.integer("--ffn-hidden-size", usual);
  read_moe(in, m, ffn);
  const bool dense =
      std::any_of(m.layers.begin(), m.layers.end(), [](model::LayerKind k) { return !k.moe; });
  m.dense_ffn = dense ? ffn : 0;
  m.norm = in.text("--normalization") == "RMSNorm" ? model::Norm::rmsnorm : model::Norm::layernorm;
  m.norm_epsilon = in.real("--norm-epsilon");
  m.init_std = in.real("--init-method-std");
  m.tied_embeddings = !in.has("--untie-embeddings-and-output-weights");
  m.mtp_layers = in.integer("--mtp-num-layers");
  in.mark("--mtp-loss-scaling-factor");
  lend_vocabulary(in, m);
  for (const model::Model& known : in.options.known_models)
    if (same_shape(known, m)) m.name = known.name, m.family = known.family, m.source = known.source;
  in.result.job.model = std::move(m);
}

bool same_shape(const model::Model& a, const model::Model& b) {
  const model::Attention &x = a.attention, &y = b.attention;
  const bool attention = x.kind == y.kind && x.heads == y.heads && x.kv_heads == y.kv_heads &&
                         x.head_dim == y.head_dim && x.q_lora_rank == y.q_lora_rank &&
                         x.kv_lora_rank == y.kv_lora_rank && x.qk_nope_dim == y.qk_nope_dim &&
                         x.qk_rope_dim == y.qk_rope_dim && x.v_dim == y.v_dim &&
                         x.window == y.window && x.qk_norm == y.qk_norm &&
                         x.qkv_bias == y.qkv_bias && x.output_bias == y.output_bias &&
                         x.output_gate == y.output_gate && x.sinks == y.sinks;
  const model::Moe &e = a.moe, &f = b.moe;
  const bool moe = e.experts == f.experts && e.top_k == f.top_k && e.expert_ffn == f.expert_ffn &&
                   e.shared_ffn == f.shared_ffn && e.shared_gate == f.shared_gate &&
                   e.score == f.score && e.group_limited() == f.group_limited() &&
                   (!e.group_limited() || (e.groups == f.groups && e.top_groups == f.top_groups)) &&
                   e.routed_scaling == f.routed_scaling && e.expert_bias == f.expert_bias &&
                   e.normalize_top_k == f.normalize_top_k && e.aux_loss == f.aux_loss;
  const model::Rope &r = a.rope, &s = b.rope;
  const bool rope =
      r.none == s.none && (r.none || (r.base == s.base && r.percent == s.percent &&
                                      r.scaling == s.scaling && r.factor == s.factor));
  return attention && moe && rope && a.hidden == b.hidden && a.vocab == b.vocab &&
         a.dense_ffn == b.dense_ffn && a.activation == b.activation && a.norm == b.norm &&
         a.norm_epsilon == b.norm_epsilon && a.init_std == b.init_std &&
         a.linear_bias == b.linear_bias && a.post_norms == b.post_norms &&
         a.tied_embeddings == b.tied_embeddings && a.mtp_layers == b.mtp_layers &&
         a.activation_clamp == b.activation_clamp && a.layers == b.layers;
}

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parameters on a rank, by sharding group: dense ones over dp x cp, experts over edp (megatron.md
// 5.1, 5.2). A sink receives (class, name, shard, elements). Element counts follow from widths; at
// tp = ep = etp = 1 they equal model::layer_parameters (unit test).

#include "memory/sizes.h"

namespace trifold::memory {

// linear: held in the GEMM format; other: embedding, head, norms, router; expert: linear, over edp.
enum class Class : std::uint8_t { linear, other, expert };
inline constexpr int kClasses = 3;

struct CountSink {
  std::int64_t elements[kClasses] = {};
  void add(Class c, const char*, const Shard&, std::int64_t count) {
    elements[static_cast<int>(c)] += count;
  }
};

template <class Sink>
void add_attention_parameters(const job::Job& job, const Sizes& s, Sink& sink) {
  const model::Attention& a = job.model.attention;
  if (s.mla) {
    const std::int64_t down = (s.q_lora > 0 ? s.h * s.q_lora : 0) + s.h * (s.kv_lora + s.rope_dim);
    const std::int64_t up = (s.q_lora > 0 ? s.q_lora : s.h) * s.heads * s.dk +
                            s.kv_lora * s.heads * (s.nope_dim + s.dv);
    const std::int64_t bias = a.qkv_bias ? s.q_lora + s.kv_lora + s.rope_dim : 0;
    sink.add(Class::linear, "MLA down projections", Shard{}, down + bias);
    sink.add(Class::linear, "MLA up projections", s.by_tp_heads, up);
    sink.add(Class::linear, "attention output projection", s.by_tp_heads,
             s.heads * s.dv * s.h + (a.output_bias ? s.h : 0));
    sink.add(Class::other, "latent norms", Shard{}, s.q_lora + s.kv_lora);
    return;
  }
  const std::int64_t qkv = (s.heads * (a.output_gate ? 2 : 1) + 2 * s.kv_heads) * s.dk;
  sink.add(Class::linear, "qkv projection", s.by_tp_heads, s.h * qkv + (a.qkv_bias ? qkv : 0));
  sink.add(Class::linear, "attention output projection", s.by_tp_heads,
           s.heads * s.dv * s.h + (a.output_bias ? s.h : 0));
  if (a.qk_norm) sink.add(Class::other, "q and k norms", Shard{}, 2 * s.dk);
  if (a.sinks) sink.add(Class::other, "attention sinks", s.by_tp_heads, s.heads);
}

template <class Sink>
void add_layer_parameters(const job::Job& job, const Sizes& s, model::LayerKind kind, Sink& sink) {
  const model::Model& m = job.model;
  const std::int64_t norm = m.norm == model::Norm::layernorm ? 2 : 1, bias = m.linear_bias ? 1 : 0;
  const auto mlp = [&](std::int64_t ffn) {
    return (s.gate + 1) * s.h * ffn + bias * (s.gate * ffn + s.h);
  };
  add_attention_parameters(job, s, sink);
  sink.add(Class::other, "layer norms", Shard{}, norm * (m.post_norms ? 4 : 2) * s.h);
  if (!kind.moe) {
    sink.add(Class::linear, "dense feed-forward", s.by_tp_ffn, mlp(s.ffn));
    return;
  }
  sink.add(Class::other, "router", Shard{}, s.experts * s.h + bias * s.experts);
  sink.add(Class::expert, "experts", s.by_ep, s.local_experts * mlp(s.expert_ffn));
  if (s.shared_ffn > 0)
    sink.add(Class::linear, "shared expert", s.by_tp_ffn,
             mlp(s.shared_ffn) + (m.moe.shared_gate ? s.h : 0));
}

template <class Sink>
void add_mtp_parameters(const job::Job& job, const Sizes& s, Sink& sink) {
  const std::int64_t norm = job.model.norm == model::Norm::layernorm ? 2 : 1;
  sink.add(Class::linear, "MTP projection", s.by_tp_heads, 2 * s.h * (s.h / s.tp));
  sink.add(Class::other, "MTP norms", Shard{}, 3 * norm * s.h);
}

template <class Sink>
void add_embedding_parameters(const job::Job& job, const Sizes& s, Sink& sink) {
  sink.add(Class::other, "embedding", s.by_tp_vocab, s.h * s.vocab);
  if (job.model.rope.none)
    sink.add(Class::other, "learned positions", Shard{}, job.model.max_position * s.h);
}

// `output` is false where the head's weight is the embedding already held by the stage.
template <class Sink>
void add_head_parameters(const job::Job& job, const Sizes& s, bool output, Sink& sink) {
  const std::int64_t norm = job.model.norm == model::Norm::layernorm ? 2 : 1;
  if (output) sink.add(Class::other, "output layer", s.by_tp_vocab, s.h * s.vocab);
  sink.add(Class::other, "final norm", Shard{}, norm * s.h);
}

// Bytes of the three state parts on a rank, from elements by class.
struct StateBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;
};

// Shards are powers of two nearly always, and a division costs as much as a stage otherwise does.
inline std::int64_t share(std::int64_t value, std::int64_t by) {
  if ((by & (by - 1)) != 0) return value / by;
  return value >> __builtin_ctzll(static_cast<unsigned long long>(by));
}

inline StateBytes state_bytes(const Sizes& s, const std::int64_t (&count)[kClasses]) {
  // Buffers are padded to lcm(shards, 128) elements a bucket, so shards are whole.
  const std::int64_t dense = count[0] + count[1];
  const std::int64_t pad = round_to(dense, s.dense_unit) - dense;
  const std::int64_t expert = round_to(count[2], s.expert_unit);
  const StateWidths& w = s.states;
  const std::int64_t other = count[1] + pad;
  std::int64_t linear_weights = (count[0] * w.linear.numerator) >> w.linear.shift;
  std::int64_t other_weights = other * w.other.numerator;
  std::int64_t expert_weights = (expert * w.linear.numerator) >> w.linear.shift;
  const std::int64_t by = s.dense_shards, expert_by = s.expert_shards;
  std::int64_t dense_gradients = (dense + pad) * w.gradient, expert_gradients = expert * w.gradient;
  StateBytes out;
  out.optimizer =
      (count[0] * w.optimizer + other * w.optimizer_other) / by + expert / expert_by * w.optimizer;
  if (s.fsdp) {
    linear_weights /= by, other_weights /= by, dense_gradients /= by;
    expert_weights /= expert_by, expert_gradients /= expert_by;
  }
  out.weights = linear_weights + other_weights + expert_weights;
  out.gradients = dense_gradients + expert_gradients;
  return out;
}

}  // namespace trifold::memory

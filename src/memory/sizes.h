// SPDX-License-Identifier: Apache-2.0
#pragma once

// Internal to memory/: every width of a Job as one rank sees it, and the vocabulary in which terms
// are written once and both summed (evaluate) and printed (explain).

#include <cstdint>

#include "job/job.h"
#include "layout/pipeline.h"
#include "memory/memory.h"

namespace trifold::memory {

// One factor of a product, with the words that go beside it.
struct Factor {
  std::int64_t value = 1;
  const char* label = "";
};

// Bytes an element: numerator / 2^shift, so that MXFP8's 33/32 stays an integer computation.
struct Width {
  std::int64_t numerator = 2;
  int shift = 0;
  const char* label = "2 B (bf16)";
};
inline constexpr Width kBf16{2, 0, "2 B (bf16)"};
inline constexpr Width kFp32{4, 0, "4 B (fp32)"};
inline constexpr Width kOneByte{1, 0, "1 B"};

// Which group divides a term, and why. by == 1: replicated.
struct Shard {
  std::int64_t by = 1;
  const char* group = "";
  const char* why = "held whole by every rank";
};

// What happens to a tensor between its forward and its backward.
enum class Keep : std::uint8_t { kept, rebuilt, offloaded };
// Attention half and feed-forward half of a layer: their backward transients do not coincide.
enum class Half : std::uint8_t { attention, feed_forward };

// Sums without a trace. `rebuilt` and `offloaded` are one layer's bytes.
struct SumSink {
  std::int64_t bytes[2][3] = {};  // [half][keep]
  Half half = Half::attention;
  template <class... Fs>
  void add(Keep keep, const char*, const Shard&, Width w, Fs... factors) {
    bytes[static_cast<int>(half)][static_cast<int>(keep)] +=
        ((factors.value * ... * w.numerator)) >> w.shift;
  }
  std::int64_t kept(Half h) const { return bytes[static_cast<int>(h)][0]; }
  std::int64_t rebuilt(Half h) const { return bytes[static_cast<int>(h)][1]; }
  std::int64_t offloaded() const { return bytes[0][2] + bytes[1][2]; }
  std::int64_t saved() const { return kept(Half::attention) + kept(Half::feed_forward); }
};

struct StateWidths {
  Width linear, other;          // weights: what a GEMM format may hold; embeddings, norms, router
  std::int64_t gradient = 4;    // bytes an element of the gradient buffer
  std::int64_t optimizer = 12;  // matrices
  std::int64_t optimizer_other = 12;  // embedding, head, norms (Muon keeps Adam for them)
};

struct Sizes {
  // Tokens of one micro-batch: on a context rank, and what h-wide tensors hold (divided by tp with
  // sequence parallelism).
  std::int64_t n = 0, local = 0, sequence = 0, batch = 0;
  std::int64_t rows = 0, worst_rows = 0, sent_rows = 0;  // saved and transient at the slowest rank
  std::int64_t h = 0, heads = 0, kv_heads = 0, dk = 0, dv = 0;  // heads on this rank
  std::int64_t kv_activation_heads = 0;                         // Ulysses may replicate K and V
  std::int64_t q_lora = 0, kv_lora = 0, rope_dim = 0, nope_dim = 0;
  std::int64_t ffn = 0, shared_ffn = 0, expert_ffn = 0, gate = 2;  // gate: 2 where gated, else 1
  std::int64_t experts = 0, local_experts = 0, top_k = 0, vocab = 0;
  std::int64_t tp = 1, dense_shards = 1, expert_shards = 1, dense_unit = 128, expert_unit = 128;
  std::int64_t offload_layers = 0;
  bool unfused_attention = false;  // probabilities are kept
  std::int64_t keys = 0;           // of one query: the whole sequence
  Width linear_input = kBf16;      // how a linear layer keeps its input
  StateWidths states;
  bool mla = false, local_modules = false, sequence_parallel = false, low_precision = false,
       attention_all_to_all = false, fused_loss = false, sar = false, fsdp = false;
  Shard by_tp_heads, by_tp_ffn, by_tp_sequence, by_etp, by_ep, by_tp_vocab;
};

// `rows_scale` multiplies the slowest rank's routed tokens (out_of_memory_risk); 1 elsewhere.
Sizes sizes_of(const job::Job& job, double rows_scale = 1.0);

std::int64_t round_to(std::int64_t value, std::int64_t unit);

}  // namespace trifold::memory

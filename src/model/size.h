// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parameter counts per term, and model FLOPs per token by Megatron's current formula
// (shared/reference/flops.md, megatron.md section 6): 6 per weight and token, causal attention
// counted half, MTP and its vocabulary projection counted, router, norms and recompute not.

#include <cstdint>

#include "model/model.h"

namespace trifold::model {

// Elements. "norms" covers the vectors of the block's own norms (those of q, k and the MLA latents
// count with attention).
struct LayerParameters {
  std::int64_t attention = 0;  // projections and their biases, MLA latents' norms, q/k norms, sinks
  std::int64_t norms = 0;
  std::int64_t dense_ffn = 0;
  std::int64_t router = 0;         // weights and expert bias
  std::int64_t experts = 0;        // all routed experts
  std::int64_t expert_active = 0;  // the top-k of them
  std::int64_t shared = 0;         // shared expert and its gate
  std::int64_t total() const { return attention + norms + dense_ffn + router + experts + shared; }
  std::int64_t active() const {
    return attention + norms + dense_ffn + router + expert_active + shared;
  }
};

struct Parameters {
  std::int64_t embedding = 0;  // learned positions included
  std::int64_t head = 0;       // 0 when tied
  std::int64_t final_norm = 0;
  std::int64_t attention = 0, norms = 0, dense_ffn = 0, router = 0, experts = 0,
               shared = 0;  // decoder layers
  std::int64_t expert_active = 0;
  std::int64_t mtp = 0;  // everything of the MTP depths but shared embedding and head
  // As publishers count: decoder + embedding + head, without MTP.
  std::int64_t total() const {
    return embedding + head + final_norm + attention + norms + dense_ffn + router + experts +
           shared;
  }
  std::int64_t active() const { return total() - experts + expert_active; }
  // gpt-oss and others leave the input embedding out of the active count: a lookup multiplies
  // nothing.
  std::int64_t active_without_embedding() const { return active() - embedding; }
};

LayerParameters layer_parameters(const Model& model, LayerKind kind);
std::int64_t mtp_parameters(
    const Model& model);  // one depth: layer, projection 2h -> h, three norms
Parameters count_parameters(const Model& model);

// Padded vocabulary: to a multiple of 128 * tp (Megatron's default divisor).
std::int64_t padded_vocab(const Model& model, std::int64_t tp = 1);

enum class FlopsConvention : std::uint8_t { causal_half, full_attention };

// Training FLOPs per token (forward, data gradient, weight gradient).
double train_flops_per_token(const Model& model, std::int64_t sequence_length, std::int64_t tp = 1,
                             FlopsConvention convention = FlopsConvention::causal_half);

// Mean number of keys a query sees under a causal mask, with an optional window: (s+1)/2 is counted
// as s/2 (the published convention); a window W gives W - W(W-1)/(2s).
double mean_causal_keys(std::int64_t sequence_length, std::int64_t window);

// The same for a layer of a model: its window, or its chunk (a query sees its own chunk only: C/2).
double mean_keys(const Attention& attention, bool windowed, std::int64_t sequence_length);

}  // namespace trifold::model

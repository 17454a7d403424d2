// SPDX-License-Identifier: Apache-2.0
#pragma once

// Jobs built in memory, without the catalogue.

#include "job/job.h"
#include "memory/memory.h"

namespace trifold::memory_test {

inline model::Model dense_model() {
  model::Model m;
  m.name = "dense";
  m.hidden = 1024;
  m.vocab = 32000;  // a multiple of 128 for tp 1 and 2
  m.dense_ffn = 4096;
  m.max_position = 4096;
  m.attention = {.kind = model::AttentionKind::gqa, .heads = 16, .kv_heads = 4, .head_dim = 64};
  m.layers.assign(8, model::LayerKind{});
  return m;
}

inline model::Model moe_model() {
  model::Model m = dense_model();
  m.name = "moe";
  m.moe = {.experts = 16, .top_k = 2, .expert_ffn = 512};
  m.layers.assign(8, model::LayerKind{true, false});
  return m;
}

inline model::Model mla_model() {
  model::Model m = moe_model();
  m.name = "mla";
  m.attention = {.kind = model::AttentionKind::mla,
                 .heads = 16,
                 .kv_heads = 16,
                 .q_lora_rank = 256,
                 .kv_lora_rank = 128,
                 .qk_nope_dim = 64,
                 .qk_rope_dim = 32,
                 .v_dim = 64};
  m.layers[0] = model::LayerKind{};
  return m;
}

inline job::Job job_of(model::Model m, int gpus) {
  job::Job j;
  j.model = std::move(m);
  j.gpus = gpus;
  j.cluster.gpu.hbm = Bytes(std::int64_t{80} << 30);
  j.training.sequence_length = 2048;
  j.training.global_batch_size = 256;
  j.techniques.routing.balance = job::Balance::forced;
  return j;
}

inline layout::Pipeline cut(const job::Job& j) {
  return layout::build_pipeline(j.model, j.layout).value();
}

inline memory::Memory evaluate(const job::Job& j) {
  memory::Memory m;
  memory::evaluate(j, cut(j), m);
  return m;
}

}  // namespace trifold::memory_test

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Internal to memory/: one pass over a Job (Tables), then one stage at a time (StagePlan).
// evaluate() keeps the sums, explain() prints what they were made of.

#include "memory/activations.h"
#include "memory/buffers.h"
#include "memory/sizes.h"
#include "memory/states.h"

namespace trifold::memory {

struct LayerBytes {
  std::int64_t kept = 0;       // saved between forward and backward
  std::int64_t offloaded = 0;  // on the host unless within the margin
  std::int64_t backward = 0;   // alive beyond the saved tensors at the worst moment of its backward
  std::int64_t rebuilt = 0;    // of `backward`: brought back by recompute
  std::int64_t freed = 0;      // of `backward`, negative: the feed-forward half is gone already
  std::int64_t released = 0;   // of `backward`, negative: attention, before the forward beside it
  Moment moment = Moment::fc2;
};

struct Tables {
  Sizes s;
  LayerBytes layer[2];  // dense, MoE
  std::int64_t mtp_extra = 0;
  std::int64_t loss = 0;
  LossMoment loss_moment = LossMoment::cross_entropy;
  CountSink layer_count[2], mtp_count, embedding_count, head_count, final_norm_count;
  std::int64_t largest_unit[2] = {};  // parameters of a layer on a rank before FSDP shards it
};

// The moment of a stage's peak: the loss, a layer's backward, or (parked optimizer states alone)
// the update, when no activation is alive.
enum class StageMoment : std::uint8_t { loss, layer, update };

struct StagePlan {
  int stage = 0, mirror = -1;  // DualPipe: the other direction's stage, held too
  std::int64_t layers[2] = {}, units[2] = {}, hosted[2] = {};  // layers; layer-units in flight
  std::int64_t mtp = 0, mtp_units = 0;
  int embeddings = 0;
  bool head = false, output = false;
  StageMoment moment = StageMoment::layer;
  bool moe_backward = false;
  std::int64_t count[kClasses] = {};
  StateBytes states;
  std::int64_t beside = 0;  // merged units: the layer that the forward fills beside the backward
  std::int64_t activations = 0, buffers = 0;
  std::int64_t peak() const {
    return states.weights + states.gradients + states.optimizer + activations + buffers;
  }
};

Tables tables_of(const job::Job& job, const layout::Pipeline& pipeline, double rows_scale = 1.0);
StagePlan plan_stage(const job::Job& job, const layout::Pipeline& pipeline, const Tables& tables,
                     const layout::ScheduleShape& shape, int stage);

// What one micro-batch sends to the host from a dense or MoE layer's forward, and fetches before
// its backward.
std::int64_t host_bytes(const job::Job& job, bool moe);

void evaluate_scaled(const job::Job& job, const layout::Pipeline& pipeline, double rows_scale,
                     Memory& out);

// Everything beside states, activations and the moment's transients.
template <class Sink>
void add_persistent_buffers(const job::Job& job, const Tables& t, const StagePlan& p, Sink& sink) {
  const bool dense = p.layers[0] > 0, moe = p.layers[1] > 0;
  add_workspaces(job, t.s, moe, sink);
  add_dummy_gradients(t.s, dense, moe, sink);
  add_pipeline_buffers(job, t.s, p.stage, sink);
  if (moe) add_dispatcher_buffers(job, t.s, sink);
  add_graph_buffers(job, t.s, p.units[0] + p.units[1], sink);
  add_merged_buffers(job, t.s, p.layers[0] + p.layers[1], sink);
  add_fsdp_units(job, t.s, std::max(dense ? t.largest_unit[0] : 0, moe ? t.largest_unit[1] : 0),
                 sink);
}

}  // namespace trifold::memory

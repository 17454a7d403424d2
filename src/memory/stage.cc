// SPDX-License-Identifier: Apache-2.0
#include "memory/stage.h"

// A stage's peak. Saved activations = layer-units in flight x bytes a layer (layout/in_flight.h);
// with interleaving the mix of chunks in flight changes through the steady state while their number
// does not, so the heaviest mix is searched at the points where either order of units moves on to
// another chunk. Source of the orders: megatron.md 4.2.

#include <algorithm>
#include <array>

#include "base/check.h"
#include "layout/in_flight.h"

namespace trifold::memory {

namespace {

constexpr int kMaxChunks = 128;

LayerBytes layer_bytes(const job::Job& job, const Sizes& s, bool moe) {
  SumSink saved;
  add_layer(job, s, model::LayerKind{moe, false}, saved);
  LayerBytes out;
  out.kept = saved.saved();
  out.offloaded = saved.offloaded();
  const bool full = job.techniques.has(job::Recompute::full);
  const std::int64_t attention = saved.rebuilt(Half::attention);
  const std::int64_t feed_forward = saved.rebuilt(Half::feed_forward);
  // Merged units build one layer while they free another; released early, the attention of the one
  // is gone before the experts of the other are there.
  if (job.techniques.has(job::Overlap::early_attn_release))
    out.released = -std::min(saved.kept(Half::attention), saved.kept(Half::feed_forward));
  for (int i = 0; i < kMoments; ++i) {
    const auto moment = static_cast<Moment>(i);
    if (moment == Moment::combine && !moe) continue;
    SumSink extra;
    add_layer_backward(job, s, moe, moment, extra);
    const bool half = moment == Moment::attention;
    const std::int64_t rebuilt = half ? attention : feed_forward + (full ? attention : 0);
    const std::int64_t freed = half ? -saved.kept(Half::feed_forward) : 0;
    const std::int64_t total = extra.saved() + rebuilt + freed + out.released;
    if (total <= out.backward && i > 0) continue;
    out.backward = total, out.rebuilt = rebuilt, out.freed = freed, out.moment = moment;
  }
  return out;
}

void add_counts(const CountSink& from, std::int64_t times, std::int64_t (&to)[kClasses]) {
  for (int c = 0; c < kClasses; ++c) to[c] += from.elements[c] * times;
}

// What the chunks of a stage hold, gathered once.
struct ChunkLayers {
  std::int64_t dense, moe, mtp;
};
using StageChunks = std::array<ChunkLayers, kMaxChunks>;

void count_stage(const layout::Pipeline& pipeline, int stage, bool tied, StageChunks& chunks,
                 StagePlan& p) {
  bool embedding = false, mtp = false, loss = false;
  for (int k = 0; k < pipeline.vpp; ++k) {
    const layout::Chunk& c = pipeline.at(stage, k);
    const std::int64_t moe = c.of_kind[1] + c.of_kind[3];
    chunks[static_cast<std::size_t>(k)] = ChunkLayers{c.layers - moe, moe, c.mtp};
    p.layers[1] += moe, p.layers[0] += c.layers - moe;
    p.mtp += c.mtp;
    embedding |= c.embedding, loss |= c.loss, mtp |= c.mtp > 0;
  }
  p.embeddings += embedding || mtp ? 1 : 0;
  p.head |= loss;
  p.output |= loss && !(tied && (embedding || mtp));
}

std::int64_t chunk_weight(const Tables& t, const ChunkLayers& c, int mtp_kind) {
  const auto layer = [&](int kind) { return t.layer[kind].kept + t.layer[kind].offloaded; };
  return c.moe * layer(1) + c.dense * layer(0) + c.mtp * (layer(mtp_kind) + t.mtp_extra);
}

// Moves `units` from the first peak to the heaviest mix of the steady state; false: it is the
// first.
bool heaviest_mix(const layout::ScheduleShape& shape, const std::int64_t* weight, int* units) {
  const int v = shape.vpp, group = shape.group();
  if (shape.kind != layout::ScheduleKind::interleaved) return false;
  if (std::all_of(weight, weight + v, [&](std::int64_t w) { return w == weight[0]; })) return false;
  if (shape.microbatches % group != 0) return false;
  int first = 0;
  for (int k = 0; k < v; ++k) first += units[k];
  const int room = std::min(shape.microbatches * v - first, group * v);
  std::array<int, kMaxChunks> now;
  std::copy_n(units, v, now.begin());
  std::int64_t change = 0, best_change = 0;
  int forward = first / group % v, backward = v - 1;
  int forward_left = group - first % group, backward_left = group;
  for (int done = 0; done < room;) {
    const int step = std::min({forward_left, backward_left, room - done});
    now[static_cast<std::size_t>(forward)] += step;
    now[static_cast<std::size_t>(backward)] -= step;
    change += step * (weight[forward] - weight[backward]);
    if (change > best_change) {
      best_change = change;
      std::copy_n(now.begin(), v, units);
    }
    done += step;
    if ((forward_left -= step) == 0)
      forward_left = group, forward = forward + 1 == v ? 0 : forward + 1;
    if ((backward_left -= step) == 0)
      backward_left = group, backward = backward == 0 ? v - 1 : backward - 1;
  }
  return best_change > 0;
}

struct Units {
  std::int64_t layers[2] = {}, hosted[2] = {};
  std::int64_t mtp = 0;
  std::int64_t bytes = 0;
};

// Layer-units from chunk units; those whose tensors are on the host (whole layers, TE's CPU
// offload of the first layers of each chunk).
void add_units(const StageChunks& chunks, int vpp, const Sizes& s, const int* units, int mtp_kind,
               Units& out) {
  for (int k = 0; k < vpp; ++k) {
    const ChunkLayers& c = chunks[static_cast<std::size_t>(k)];
    const std::int64_t u = units[k];
    out.layers[0] += u * c.dense, out.layers[1] += u * c.moe, out.mtp += u * c.mtp;
    if (s.offload_layers == 0) continue;
    const std::int64_t hosted = std::min(s.offload_layers, c.dense + c.moe);
    const std::int64_t dense = std::min(hosted, c.dense);
    out.hosted[0] += u * dense, out.hosted[1] += u * (hosted - dense);
  }
  out.layers[mtp_kind] += out.mtp;
}

void finish_units(const job::Job& job, const Tables& t, Units& u) {
  const double fraction = job.techniques.offload.fraction;
  for (int kind = 0; kind < 2; ++kind) {
    const LayerBytes& b = t.layer[kind];
    const std::int64_t n = u.layers[kind];
    if (n == 0) continue;
    if (b.offloaded > 0)
      u.hosted[kind] =
          std::max(u.hosted[kind], static_cast<std::int64_t>(static_cast<double>(n) * fraction));
    // Layers being copied back stay on the GPU.
    u.hosted[kind] = std::max<std::int64_t>(0, u.hosted[kind] - 1);
    const std::int64_t host = t.s.offload_layers > 0 ? b.kept + b.offloaded : b.offloaded;
    u.bytes += n * (b.kept + b.offloaded) - u.hosted[kind] * host;
  }
  u.bytes += u.mtp * t.mtp_extra;
}

void take(const Units& u, StagePlan& p) {
  std::copy_n(u.layers, 2, p.units);
  std::copy_n(u.hosted, 2, p.hosted);
  p.mtp_units = u.mtp;
  p.activations = u.bytes;
}

// Layers, copies of the embedding and parameters of the stage (and, with DualPipe, its mirror's).
void fill_states(const job::Job& job, const layout::Pipeline& pipeline, const Tables& t,
                 int mtp_kind, StageChunks& own, StageChunks& mirror, StagePlan& p) {
  const bool tied = job.model.tied_embeddings;
  count_stage(pipeline, p.stage, tied, own, p);
  if (p.mirror >= 0) count_stage(pipeline, p.mirror, tied, mirror, p);
  if (p.mtp > 0) {
    add_counts(t.mtp_count, p.mtp, p.count);
    add_counts(t.layer_count[mtp_kind], p.mtp, p.count);
  }
  for (int kind = 0; kind < 2; ++kind) add_counts(t.layer_count[kind], p.layers[kind], p.count);
  if (p.mtp > 0) p.layers[mtp_kind] += p.mtp;
  if (p.embeddings > 0) add_counts(t.embedding_count, p.embeddings, p.count);
  if (p.head) add_counts(p.output ? t.head_count : t.final_norm_count, 1, p.count);
  p.states = state_bytes(t.s, p.count);
}

// In flight at the first peak (when the first loss is computed) and at the heaviest one.
void fill_units(const job::Job& job, int vpp, const Tables& t, const layout::ScheduleShape& shape,
                int mtp_kind, const StageChunks& own, const StageChunks& mirror, const StagePlan& p,
                Units& first, Units& worst) {
  std::array<int, kMaxChunks> units;
  layout::in_flight_units(shape, p.stage, units.data());
  if (p.mirror >= 0) {
    // p + 1 stages of activations, half in each direction.
    std::for_each_n(units.begin(), vpp, [](int& u) { u = (u + 1) / 2; });
    Units other;
    add_units(mirror, vpp, t.s, units.data(), mtp_kind, other);
    add_units(own, vpp, t.s, units.data(), mtp_kind, first);
    for (int kind = 0; kind < 2; ++kind) {
      first.layers[kind] += other.layers[kind];
      first.hosted[kind] += other.hosted[kind];
    }
    first.mtp += other.mtp;
  } else {
    add_units(own, vpp, t.s, units.data(), mtp_kind, first);
  }
  worst = first;
  if (vpp > 1 && p.mirror < 0) {
    std::array<std::int64_t, kMaxChunks> weight;
    for (std::size_t k = 0; k < static_cast<std::size_t>(vpp); ++k)
      weight[k] = chunk_weight(t, own[k], mtp_kind);
    if (heaviest_mix(shape, weight.data(), units.data())) {
      worst = Units{};
      add_units(own, vpp, t.s, units.data(), mtp_kind, worst);
    }
  }
  finish_units(job, t, worst);
  if (p.head) finish_units(job, t, first);
}

}  // namespace

std::int64_t host_bytes(const job::Job& job, bool moe) {
  const job::Offload& o = job.techniques.offload;
  SumSink saved;
  add_layer(job, sizes_of(job, 1), model::LayerKind{moe, false}, saved);
  const std::int64_t bytes = saved.offloaded() + (o.activation_layers > 0 ? saved.saved() : 0);
  return static_cast<std::int64_t>(static_cast<double>(bytes) * o.fraction);
}

Tables tables_of(const job::Job& job, const layout::Pipeline& pipeline, double rows_scale) {
  Tables t;
  t.s = sizes_of(job, rows_scale);
  bool used[2] = {false, false};
  for (const layout::Chunk& c : pipeline.chunks) {
    const int moe = c.of_kind[1] + c.of_kind[3];
    used[1] |= moe > 0, used[0] |= c.layers > moe;
  }
  if (job.model.mtp_layers > 0) used[job.model.mtp_kind().moe ? 1 : 0] = true;
  for (int kind = 0; kind < 2; ++kind) {
    if (!used[kind]) continue;
    t.layer[kind] = layer_bytes(job, t.s, kind == 1);
    add_layer_parameters(job, t.s, model::LayerKind{kind == 1, false}, t.layer_count[kind]);
    for (std::int64_t e : t.layer_count[kind].elements) t.largest_unit[kind] += e;
  }
  if (job.model.mtp_layers > 0) {
    SumSink extra;
    add_mtp_extra(t.s, extra);
    t.mtp_extra = extra.saved();
    add_mtp_parameters(job, t.s, t.mtp_count);
  }
  add_embedding_parameters(job, t.s, t.embedding_count);
  add_head_parameters(job, t.s, true, t.head_count);
  add_head_parameters(job, t.s, false, t.final_norm_count);
  SumSink entropy, output;
  add_loss(job, t.s, LossMoment::cross_entropy, entropy);
  add_loss(job, t.s, LossMoment::output_layer, output);
  t.loss = std::max(entropy.saved(), output.saved());
  t.loss_moment =
      entropy.saved() >= output.saved() ? LossMoment::cross_entropy : LossMoment::output_layer;
  return t;
}

StagePlan plan_stage(const job::Job& job, const layout::Pipeline& pipeline, const Tables& t,
                     const layout::ScheduleShape& shape, int stage) {
  TRIFOLD_CHECK(pipeline.vpp <= kMaxChunks);
  StagePlan p;
  p.stage = stage;
  if (shape.kind == layout::ScheduleKind::dualpipe && pipeline.pp > 1)
    p.mirror = pipeline.pp - 1 - stage;
  const int mtp_kind = job.model.mtp_layers > 0 && job.model.mtp_kind().moe ? 1 : 0;
  StageChunks own, mirror;
  fill_states(job, pipeline, t, mtp_kind, own, mirror, p);
  Units first, worst;
  fill_units(job, pipeline.vpp, t, shape, mtp_kind, own, mirror, p, first, worst);

  const std::int64_t dense = p.layers[0] > 0 ? t.layer[0].backward : 0;
  const std::int64_t moe = p.layers[1] > 0 ? t.layer[1].backward : 0;
  p.moe_backward = moe > dense;
  p.moment = StageMoment::layer;
  if (shape.ep_overlap) {
    for (int kind = 0; kind < 2; ++kind)
      if (p.layers[kind] > 0)
        p.beside = std::max(p.beside, t.layer[kind].kept + t.layer[kind].offloaded);
  }
  std::int64_t transient = std::max(dense, moe) + p.beside;
  if (p.head && first.bytes + t.loss > worst.bytes + transient) {
    p.moment = StageMoment::loss;
    transient = t.loss;
    take(first, p);
  } else {
    take(worst, p);
  }
  if (job.techniques.offload.optimizer == job::OptimizerOffload::states_parked_on_host) {
    if (p.states.optimizer > p.activations + transient) {
      p.moment = StageMoment::update;
      transient = 0;
      take(Units{}, p);
    } else {
      p.states.optimizer = 0;
    }
  }
  SumSink persistent;
  add_persistent_buffers(job, t, p, persistent);
  p.buffers = persistent.saved() + transient;
  return p;
}

}  // namespace trifold::memory

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one pipeline stage does for one micro-batch, in seconds: the sums that the pipeline formula
// works on.

#include <array>

#include "cost/price.h"
#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::estimate {

enum class Comm : std::uint8_t { ep, tp, cp, pp, dp };
inline constexpr int kComms = 5;
inline constexpr const char* kCommNames[kComms] = {"ep", "tp", "cp", "pp", "dp"};

// One direction of some work, split by why it takes time.
struct Duration {
  double compute = 0, recompute = 0, host = 0;
  std::array<double, kComms> exposed{};
  double sum() const {
    double s = compute + recompute + host;
    for (double e : exposed) s += e;
    return s;
  }
  Duration& operator+=(const Duration& o);
  Duration scaled(double factor) const;
};

struct LayerTime {
  Duration forward, backward;  // nothing overlaps across micro-batches
  Duration pair;  // one forward merged with one backward (EP overlap); equals their sum elsewhere
  std::array<double, kComms> total_comm{};  // forward + backward, as if nothing overlapped
};

struct StageTime {
  LayerTime work;                                // all chunks of the stage, one micro-batch
  double forward_chunk = 0, backward_chunk = 0;  // mean over the stage's chunks, un-overlapped
  double wgrad_chunk = 0;  // the part of backward_chunk that zero-bubble schedules defer
  double basis_seconds[4] = {0, 0, 0, 0};
  double variance = 0;
};

LayerTime layer_time(const job::Job& job, const cost::BlockCost& cost,
                     const cost::Constants& constants, double sm_share);

// Of one micro-batch, one way: what the offloaded activations of a dense or MoE layer take to the
// host or back.
double host_copy_seconds(const job::Job& job, const cost::Pricer& pricer, bool moe);

// Layer times of one Job by role and kind, each computed when first asked for.
class BlockTimes {
 public:
  void reset(const job::Job& job, cost::Pricer& pricer);
  struct Entry {
    LayerTime time;
    double forward_s = 0, backward_s = 0, pair_s = 0;  // sums of `time`
    const cost::BlockCost* cost = nullptr;
  };
  const Entry& get(layer::BlockRole role, model::LayerKind kind);

 private:
  const job::Job* job_ = nullptr;
  cost::Pricer* pricer_ = nullptr;
  layer::BlockKey key_;
  double sm_share_ = 0;
  std::array<Entry, model::kLayerKinds + 3> entries_;
};

// What some chunks hold together, a stage's or one; stages with equal contents take equal times.
struct StageContent {
  std::array<int, model::kLayerKinds> layers{};  // MTP depths' layers included
  int decoder_layers = 0, embeddings = 0, mtp = 0, heads = 0;
  void add(const job::Job& job, const layout::Chunk& chunk);
  bool operator==(const StageContent&) const = default;
};
// visit(role, kind, count) for every kind of block that the content has.
template <class Visit>
void for_each_block(const StageContent& content, Visit visit) {
  for (std::size_t i = 0; i < content.layers.size(); ++i)
    if (content.layers[i] > 0)
      visit(layer::BlockRole::layer, model::LayerKind::from_index(static_cast<int>(i)),
            content.layers[i]);
  if (content.embeddings > 0) visit(layer::BlockRole::embedding, {}, content.embeddings);
  if (content.mtp > 0) visit(layer::BlockRole::mtp_projection, {}, content.mtp);
  if (content.heads > 0) visit(layer::BlockRole::head, {}, content.heads);
}
StageContent content_of(const job::Job& job, const layout::Pipeline& pipeline, int stage);
void stage_time(const job::Job& job, const StageContent& content, int vpp,
                const cost::Pricer& pricer, BlockTimes& blocks, StageTime& out);

// Fills `out` for `stage`; embedding, head, MTP and offload copies included.
void stage_time(const job::Job& job, const layout::Pipeline& pipeline, int stage,
                const cost::Pricer& pricer, BlockTimes& blocks, StageTime& out);

}  // namespace trifold::estimate

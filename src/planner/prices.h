// SPDX-License-Identifier: Apache-2.0
#pragma once

// Seconds of every block of the model for one micro-batch, priced once for each distinct way of
// cutting and running it: they do not depend on pp, vpp, the schedule, FSDP or the rank order, so
// thousands of layouts share them.

#include <array>
#include <unordered_map>

#include "estimate/stage_time.h"
#include "planner/space.h"

namespace trifold::planner {

struct BlockSeconds {
  double forward = 0, backward = 0;
  double pair = 0;   // the two merged; their sum where nothing merges
  double wgrad = 0;  // the part of backward that zero-bubble schedules defer
};

// Slots as in estimate::BlockTimes: layer kinds, embedding, head, MTP projection.
inline constexpr int kSlots = model::kLayerKinds + 3;
constexpr int slot_of(layer::BlockRole role) {
  return model::kLayerKinds - 1 + static_cast<int>(role);
}
using BlockTable = std::array<BlockSeconds, kSlots>;

// Blocks of each slot in the whole model, and the sum over them.
std::array<int, kSlots> whole_model(const model::Model& model);
BlockSeconds sum_of(const BlockTable& table, const std::array<int, kSlots>& counts);

class Prices {
 public:
  Prices(const Query& query, const Space& space, cost::Pricer& pricer);
  // The reference holds until the next call. Of `geometry` (its pp, FSDP and order do not matter)
  // under a transport and the recompute set space.recomputes[recompute].
  const BlockTable& table(const Geometry& geometry, int transport, int recompute);
  // Kernels alone, weight gradients with the backward: the least over what may move the tokens.
  BlockTable kernels(const Geometry& geometry);

 private:
  // Keys of blocks' costs: a MoE layer's, and everything else's, which no dispatcher touches.
  struct Keys {
    std::uint64_t moe, dense;
  };
  Keys enter(const Geometry& geometry, std::uint64_t index, const Transport& transport,
             int recompute);
  struct Slot {
    int index;
    layer::BlockRole role;
    model::LayerKind kind;
  };
  const cost::BlockCost& cost(const Keys& keys, const Slot& slot);
  const cost::BlockCost& cost(std::uint64_t key, layer::BlockRole role, model::LayerKind kind);
  std::uint64_t block_index(const Geometry& geometry);

  const Query& query_;
  const Space& space_;
  cost::Pricer& pricer_;
  job::Job job_;
  layer::Block scratch_;
  std::vector<Slot> slots_;  // that the model has
  std::unordered_map<std::uint64_t, std::uint64_t> indices_;
  std::unordered_map<std::uint64_t, cost::BlockCost> costs_;
  std::unordered_map<std::uint64_t, BlockTable> tables_;
};

}  // namespace trifold::planner

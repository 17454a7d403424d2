// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cuts by (pp, depth, relative costs of the blocks), each made once: costs are compared in steps of
// 1/32 of a layer, so that layouts which differ little share a cut.

#include <map>
#include <string>
#include <vector>

#include "planner/balance.h"
#include "planner/prices.h"

namespace trifold::planner {

// Consecutive stages that hold the same.
struct StageGroup {
  std::array<int, kSlots> blocks{};
  int first = 0, count = 0;
  int decoder_layers() const;  // of one stage, without MTP depths' layers
};

// Of one chunk, by slot.
std::array<int, kSlots> blocks_of(const layout::Chunk& chunk, const model::Model& model);

struct CutEntry {
  layout::Pipeline pipeline;  // no chunks: impossible
  std::string text;           // Megatron's layout string; empty where the even cut is meant
  std::vector<StageGroup> groups;
};

class Cuts {
 public:
  explicit Cuts(const model::Model& model) : model_(model) {}
  const CutEntry& get(int pp, const Depth& depth, const BlockTable& table);

 private:
  using Key = std::array<int, 3 + kSlots>;
  CutEntry make(int pp, const Depth& depth, const Key& key) const;
  const model::Model& model_;
  std::map<Key, CutEntry> entries_;
};

}  // namespace trifold::planner

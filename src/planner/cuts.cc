// SPDX-License-Identifier: Apache-2.0
#include "planner/cuts.h"

#include <algorithm>
#include <cmath>

namespace trifold::planner {

namespace {

constexpr auto at(int i) { return static_cast<std::size_t>(i); }
constexpr int kSteps = 32;  // of one layer of the last kind

}  // namespace

std::array<int, kSlots> blocks_of(const layout::Chunk& chunk, const model::Model& model) {
  std::array<int, kSlots> blocks{};
  for (std::size_t i = 0; i < chunk.of_kind.size(); ++i) blocks[i] += chunk.of_kind[i];
  blocks[at(model.mtp_kind().index())] += chunk.mtp;
  blocks[at(slot_of(layer::BlockRole::mtp_projection))] += chunk.mtp;
  blocks[at(slot_of(layer::BlockRole::embedding))] += chunk.embedding;
  if (chunk.loss)
    blocks[at(slot_of(layer::BlockRole::head))] += 1 + static_cast<int>(model.mtp_layers);
  return blocks;
}

int StageGroup::decoder_layers() const {
  int layers = -blocks[at(slot_of(layer::BlockRole::mtp_projection))];
  for (int k = 0; k < model::kLayerKinds; ++k) layers += blocks[at(k)];
  return layers;
}

CutEntry Cuts::make(int pp, const Depth& depth, const Key& key) const {
  ChunkCosts costs;
  for (int k = 0; k < model::kLayerKinds; ++k) costs.layer[at(k)] = key[at(3 + k)];
  const auto cost = [&](layer::BlockRole role) {
    return static_cast<double>(key[at(3 + slot_of(role))]);
  };
  const int last = model_.mtp_kind().index();
  costs.embedding = cost(layer::BlockRole::embedding);
  costs.loss = cost(layer::BlockRole::head) * static_cast<double>(1 + model_.mtp_layers);
  costs.mtp = cost(layer::BlockRole::mtp_projection) + costs.layer[at(last)];
  const auto placement =
      layout::is_vee(depth.kind) ? layout::Placement::vee : layout::Placement::loop;
  CutEntry entry;
  entry.pipeline = balanced_pipeline(model_, pp, depth.vpp, costs, placement);
  if (entry.pipeline.chunks.empty()) return entry;
  layout::Layout even;
  even.pp = pp, even.vpp = depth.vpp;
  layout::Pipeline plain;
  const bool is_even = layout::cut_pipeline(model_, even, plain, placement).ok() &&
                       plain.chunks == entry.pipeline.chunks;
  if (!is_even) entry.text = layout::print_pipeline_layout(entry.pipeline);
  for (int r = 0; r < pp; ++r) {
    std::array<int, kSlots> blocks{};
    for (int k = 0; k < depth.vpp; ++k) {
      const std::array<int, kSlots> chunk = blocks_of(entry.pipeline.at(r, k), model_);
      for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] += chunk[i];
    }
    if (!entry.groups.empty() && entry.groups.back().blocks == blocks)
      ++entry.groups.back().count;
    else
      entry.groups.push_back({blocks, r, 1});
  }
  return entry;
}

const CutEntry& Cuts::get(int pp, const Depth& depth, const BlockTable& table) {
  Key key{};
  key[0] = pp, key[1] = depth.vpp, key[2] = layout::is_vee(depth.kind) ? 1 : 0;
  const BlockSeconds& unit = table[at(model_.layers.back().index())];
  const double one = (unit.forward + unit.backward) / kSteps;
  for (int i = 0; i < kSlots; ++i) {
    const double cost = table[at(i)].forward + table[at(i)].backward;
    // A block that exists weighs something, so that stages are told apart.
    if (cost > 0) key[at(3 + i)] = std::max(1, static_cast<int>(std::lround(cost / one)));
  }
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  return entries_.emplace(key, make(pp, depth, key)).first->second;
}

}  // namespace trifold::planner

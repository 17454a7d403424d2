// SPDX-License-Identifier: Apache-2.0
#include "planner/prices.h"

#include <algorithm>

namespace trifold::planner {

namespace {

// Entries kept before a cache starts anew: a few megabytes each, enough for one geometry's
// neighbours.
constexpr std::size_t kMostCosts = 4096, kMostTables = 1 << 16;

constexpr auto at(int i) { return static_cast<std::size_t>(i); }

// What only a MoE layer's price depends on is left out of the key of every other block.
std::uint64_t dense_key(const Geometry& g) {
  return (static_cast<std::uint64_t>(g.tp) << 30) |
         (static_cast<std::uint64_t>(g.ulysses_sp) << 20) |
         (static_cast<std::uint64_t>(g.cp) << 6) | static_cast<std::uint64_t>(g.micro_batch_size);
}

}  // namespace

std::array<int, kSlots> whole_model(const model::Model& model) {
  std::array<int, kSlots> counts{};
  for (const model::LayerKind kind : model.layers) ++counts[at(kind.index())];
  const int mtp = static_cast<int>(model.mtp_layers);
  if (mtp > 0) counts[at(model.mtp_kind().index())] += mtp;
  counts[at(slot_of(layer::BlockRole::embedding))] = 1;
  counts[at(slot_of(layer::BlockRole::head))] = 1 + mtp;
  counts[at(slot_of(layer::BlockRole::mtp_projection))] = mtp;
  return counts;
}

BlockSeconds sum_of(const BlockTable& table, const std::array<int, kSlots>& counts) {
  BlockSeconds sum;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double n = counts[i];
    sum.forward += n * table[i].forward;
    sum.backward += n * table[i].backward;
    sum.pair += n * table[i].pair;
    sum.wgrad += n * table[i].wgrad;
  }
  return sum;
}

Prices::Prices(const Query& query, const Space& space, cost::Pricer& pricer)
    : query_(query),
      space_(space),
      pricer_(pricer),
      job_(base_job(query)),
      counts_(whole_model(query.model)) {}

std::uint64_t Prices::block_index(const Geometry& g) {
  const std::uint64_t key = (dense_key(g) << 24) ^ (static_cast<std::uint64_t>(g.ep) << 8) ^
                            static_cast<std::uint64_t>(g.etp);
  return indices_.emplace(key, indices_.size()).first->second;
}

const cost::BlockCost& Prices::cost(std::uint64_t key, layer::BlockRole role,
                                    model::LayerKind kind) {
  const auto found = costs_.find(key);
  if (found != costs_.end()) return found->second;
  if (costs_.size() >= kMostCosts) costs_.clear();
  layer::build_operators(job_, role, kind, scratch_);
  return costs_.emplace(key, pricer_.price_block(scratch_, job_.techniques)).first->second;
}

const BlockTable& Prices::table(const Geometry& g, int transport, int recompute) {
  const std::uint64_t index = block_index(g);
  const std::uint64_t key = (index << 24) | (static_cast<std::uint64_t>(transport) << 8) |
                            static_cast<std::uint64_t>(recompute);
  const auto found = tables_.find(key);
  if (found != tables_.end()) return found->second;
  if (tables_.size() >= kMostTables) tables_.clear();
  Geometry bare = g;
  bare.pp = 1, bare.fsdp = false;
  set_geometry(bare, job_);
  const Transport& t = space_.transports[at(transport)];
  set_variant(query_, Depth{}, t, MemorySaving{space_.recomputes[at(recompute)], {}, false}, job_);
  const double share =
      static_cast<double>(pricer_.dispatcher_sms(job_.techniques)) / pricer_.cluster().gpu.sms;
  // 1: a MoE layer; 0: everything else, which no dispatcher touches.
  const std::uint64_t common = (static_cast<std::uint64_t>(recompute) << 1) | (t.graphs ? 1u : 0u);
  const std::uint64_t moe_key = (std::uint64_t{1} << 63) | (index << 32) |
                                (static_cast<std::uint64_t>(t.dispatcher) << 26) |
                                (static_cast<std::uint64_t>(t.sms) << 16) | (common << 3);
  const std::uint64_t dense = (dense_key(g) << 20) | (common << 3);
  BlockTable table;
  for (int slot = 0; slot < kSlots; ++slot) {
    if (counts_[at(slot)] == 0) continue;
    const bool is_layer = slot < model::kLayerKinds;
    const auto kind = is_layer ? model::LayerKind::from_index(slot) : model::LayerKind{};
    const auto role = is_layer ? layer::BlockRole::layer
                               : static_cast<layer::BlockRole>(slot - model::kLayerKinds + 1);
    const cost::BlockCost& c =
        cost((kind.moe ? moe_key : dense) | static_cast<std::uint64_t>(slot), role, kind);
    const estimate::LayerTime time = estimate::layer_time(job_, c, pricer_.constants(), share);
    table[at(slot)] = {time.forward.sum(), time.backward.sum(), time.pair.sum(),
                       c.compute_of(layer::Pass::wgrad)};
  }
  return tables_.emplace(key, table).first->second;
}

}  // namespace trifold::planner

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
    : query_(query), space_(space), pricer_(pricer), job_(base_job(query)) {
  const std::array<int, kSlots> counts = whole_model(query.model);
  for (int i = 0; i < kSlots; ++i) {
    if (counts[at(i)] == 0) continue;
    if (i < model::kLayerKinds)
      slots_.push_back({i, layer::BlockRole::layer, model::LayerKind::from_index(i)});
    else
      slots_.push_back({i, static_cast<layer::BlockRole>(i - model::kLayerKinds + 1), {}});
  }
}

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

const cost::BlockCost& Prices::cost(const Keys& keys, const Slot& slot) {
  return cost((slot.kind.moe ? keys.moe : keys.dense) | static_cast<std::uint64_t>(slot.index),
              slot.role, slot.kind);
}

Prices::Keys Prices::enter(const Geometry& g, std::uint64_t index, const Transport& t,
                           int recompute) {
  Geometry bare = g;
  bare.pp = 1, bare.fsdp = false;
  set_geometry(bare, job_);
  set_variant(query_, Depth{}, t, MemorySaving{space_.recomputes[at(recompute)], {}, false}, job_);
  const std::uint64_t common = (static_cast<std::uint64_t>(recompute) << 1) | (t.graphs ? 1u : 0u);
  return {(std::uint64_t{1} << 63) | (index << 32) |
              (static_cast<std::uint64_t>(t.dispatcher) << 26) |
              (static_cast<std::uint64_t>(t.sms) << 16) | (common << 3),
          (dense_key(g) << 20) | (common << 3)};
}

const BlockTable& Prices::table(const Geometry& g, int transport, int recompute) {
  const std::uint64_t index = block_index(g);
  const std::uint64_t key = (index << 24) | (static_cast<std::uint64_t>(transport) << 8) |
                            static_cast<std::uint64_t>(recompute);
  const auto found = tables_.find(key);
  if (found != tables_.end()) return found->second;
  if (tables_.size() >= kMostTables) tables_.clear();
  const Keys keys = enter(g, index, space_.transports[at(transport)], recompute);
  const double share =
      static_cast<double>(pricer_.dispatcher_sms(job_.techniques)) / pricer_.cluster().gpu.sms;
  BlockTable table;
  for (const Slot& slot : slots_) {
    const cost::BlockCost& c = cost(keys, slot);
    const estimate::LayerTime time = estimate::layer_time(job_, c, pricer_.constants(), share);
    table[at(slot.index)] = {time.forward.sum(), time.backward.sum(), time.pair.sum(),
                             c.compute_of(layer::Pass::wgrad)};
  }
  return tables_.emplace(key, table).first->second;
}

BlockTable Prices::kernels(const Geometry& g) {
  const std::uint64_t index = block_index(g);
  BlockTable least;
  std::array<bool, 2 * std::size(job::kDispatchers)> seen{};
  for (const Transport& t : space_.transports) {
    bool& known = seen[2 * static_cast<std::size_t>(t.dispatcher) + (t.graphs ? 1 : 0)];
    if (known) continue;
    known = true;
    const Keys keys = enter(g, index, t, 0);
    for (const Slot& slot : slots_) {
      const cost::BlockCost& c = cost(keys, slot);
      const double forward = c.compute_of(layer::Pass::forward);
      const double backward = c.compute_of(layer::Pass::dgrad) + c.compute_of(layer::Pass::wgrad);
      BlockSeconds& s = least[at(slot.index)];
      const bool first = s.forward + s.backward <= 0;
      s.forward = first ? forward : std::min(s.forward, forward);
      s.backward = first ? backward : std::min(s.backward, backward);
    }
  }
  return least;
}

}  // namespace trifold::planner

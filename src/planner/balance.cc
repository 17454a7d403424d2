// SPDX-License-Identifier: Apache-2.0

// Smallest feasible maximum by bisection over chunk budgets (the classic linear partition), then a
// local pass that moves one layer across a chunk boundary while that lowers the slowest rank. Cost:
// O(layers x 40) plus O(chunks) moves.

#include "planner/balance.h"

#include <algorithm>

namespace trifold::planner {

namespace {

struct Cut {
  std::vector<int> layers;  // decoder layers of each chunk, flat order
};

double fixed_cost(const model::Model& model, const ChunkCosts& costs, std::size_t chunk,
                  std::size_t chunks) {
  double cost = chunk == 0 ? costs.embedding : 0;
  if (chunk + 1 == chunks) cost += costs.loss + static_cast<double>(model.mtp_layers) * costs.mtp;
  return cost;
}

// Fills chunks in order up to `budget`; every chunk but the last few must take a layer. False when
// layers are left over.
bool fill(const model::Model& model, const ChunkCosts& costs, double budget, Cut& cut) {
  const std::size_t chunks = cut.layers.size();
  std::size_t next = 0;
  const std::size_t total = model.layers.size();
  for (std::size_t c = 0; c < chunks; ++c) {
    double used = fixed_cost(model, costs, c, chunks);
    int taken = 0;
    // Leave one layer for each later chunk but the last, which the loss may fill alone.
    const std::size_t reserve = chunks - c > 2 ? chunks - c - 2 : 0;
    while (next < total - std::min(total, reserve)) {
      const double layer = costs.layer[static_cast<std::size_t>(model.layers[next].index())];
      const bool must = taken == 0 && c + 1 < chunks;
      if (!must && used + layer > budget) break;
      used += layer;
      ++next, ++taken;
      if (must && used > budget) break;
    }
    cut.layers[c] = taken;
  }
  return next == total;
}

std::vector<double> rank_costs(const model::Model& model, const ChunkCosts& costs, const Cut& cut,
                               int pp) {
  std::vector<double> ranks(static_cast<std::size_t>(pp));
  std::size_t next = 0;
  for (std::size_t c = 0; c < cut.layers.size(); ++c) {
    double cost = fixed_cost(model, costs, c, cut.layers.size());
    for (int i = 0; i < cut.layers[c]; ++i)
      cost += costs.layer[static_cast<std::size_t>(model.layers[next++].index())];
    ranks[c % static_cast<std::size_t>(pp)] += cost;
  }
  return ranks;
}

double slowest(const model::Model& model, const ChunkCosts& costs, const Cut& cut, int pp) {
  const std::vector<double> ranks = rank_costs(model, costs, cut, pp);
  return *std::max_element(ranks.begin(), ranks.end());
}

void improve(const model::Model& model, const ChunkCosts& costs, int pp, Cut& cut) {
  double best = slowest(model, costs, cut, pp);
  for (int round = 0; round < 4 * pp; ++round) {
    const std::vector<double> ranks = rank_costs(model, costs, cut, pp);
    const auto hot =
        static_cast<std::size_t>(std::max_element(ranks.begin(), ranks.end()) - ranks.begin());
    Cut best_cut = cut;
    bool improved = false;
    for (std::size_t from = hot; from < cut.layers.size(); from += static_cast<std::size_t>(pp)) {
      for (std::size_t to = 0; to < cut.layers.size(); ++to) {
        if (cut.layers[from] <= (from + 1 == cut.layers.size() ? 0 : 1) || to == from) continue;
        Cut moved = cut;
        --moved.layers[from], ++moved.layers[to];
        const double value = slowest(model, costs, moved, pp);
        if (value < best * (1 - 1e-9)) best = value, best_cut = moved, improved = true;
      }
    }
    if (!improved) return;
    cut = best_cut;
  }
}

layout::Pipeline to_pipeline(const model::Model& model, int pp, int vpp, const Cut& cut) {
  layout::Pipeline pipeline;
  pipeline.pp = pp;
  pipeline.vpp = vpp;
  int next = 0;
  for (std::size_t c = 0; c < cut.layers.size(); ++c) {
    layout::Chunk chunk;
    chunk.first_layer = next;
    chunk.layers = cut.layers[c];
    for (int i = 0; i < cut.layers[c]; ++i)
      ++chunk.of_kind[static_cast<std::size_t>(
          model.layers[static_cast<std::size_t>(next++)].index())];
    chunk.embedding = c == 0;
    chunk.loss = c + 1 == cut.layers.size();
    chunk.mtp = chunk.loss ? static_cast<int>(model.mtp_layers) : 0;
    pipeline.chunks.push_back(chunk);
  }
  return pipeline;
}

}  // namespace

layout::Pipeline balanced_pipeline(const model::Model& model, int pp, int vpp,
                                   const ChunkCosts& costs) {
  Cut cut{std::vector<int>(static_cast<std::size_t>(pp) * static_cast<std::size_t>(vpp))};
  double low = 0,
         high = costs.embedding + costs.loss + static_cast<double>(model.mtp_layers) * costs.mtp;
  for (const model::LayerKind kind : model.layers)
    high += costs.layer[static_cast<std::size_t>(kind.index())];
  Cut best = cut;
  fill(model, costs, high, best);
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    if (fill(model, costs, middle, cut))
      best = cut, high = middle;
    else
      low = middle;
  }
  improve(model, costs, pp, best);
  return to_pipeline(model, pp, vpp, best);
}

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0

// One chunk a rank: bisection over the budget with the classic linear partition, filled from the
// end, so that the first stages, which keep the most units in flight, get what slack there is.
// Several: bisection over the ranks' sums (a rank takes as many layers as its budget allows beside
// embedding or loss), each rank's layers spread evenly over its chunks, then moves of one layer
// from the slowest rank to another while that lowers the maximum.

#include "planner/balance.h"

#include <algorithm>

namespace trifold::planner {

namespace {

using Counts = std::vector<int>;  // decoder layers of each chunk, in order of the layers
constexpr auto at(int i) { return static_cast<std::size_t>(i); }

struct Problem {
  const model::Model& model;
  const ChunkCosts& costs;
  int pp, vpp;
  layout::Placement placement;
  std::vector<double> prefix;  // cost of the first i layers

  int chunks() const { return pp * vpp; }
  int layers() const { return static_cast<int>(model.layers.size()); }
  int rank(int position) const {
    const int k = position / pp, r = position % pp;
    return placement == layout::Placement::vee && k % 2 == 1 ? pp - 1 - r : r;
  }
  double fixed(int position) const {
    double cost = position == 0 ? costs.embedding : 0;
    if (position + 1 == chunks())
      cost += costs.loss + static_cast<double>(model.mtp_layers) * costs.mtp;
    return cost;
  }
  int least(int position) const {  // the first and the last chunk have something without a layer
    return position == 0 || position + 1 == chunks() ? 0 : 1;
  }
};

std::vector<double> rank_sums(const Problem& p, const Counts& counts) {
  std::vector<double> sums(at(p.pp));
  int next = 0;
  for (int c = 0; c < p.chunks(); ++c) {
    const int end = next + counts[at(c)];
    sums[at(p.rank(c))] += p.fixed(c) + p.prefix[at(end)] - p.prefix[at(next)];
    next = end;
  }
  return sums;
}

double slowest(const Problem& p, const Counts& counts) {
  const std::vector<double> sums = rank_sums(p, counts);
  return *std::max_element(sums.begin(), sums.end());
}

// From the last chunk to the first, as many layers as the budget takes; false: layers are left.
bool fill_from_end(const Problem& p, double budget, Counts& counts) {
  int left = p.layers();
  for (int c = p.chunks() - 1; c >= 0; --c) {
    int reserve = 0;  // each chunk before this one needs its least
    if (c > 1) reserve = c - 1;
    double used = p.fixed(c);
    int taken = 0;
    while (left > reserve) {
      const double layer = p.prefix[at(left)] - p.prefix[at(left - 1)];
      if (taken >= p.least(c) && used + layer > budget) break;
      used += layer, --left, ++taken;
    }
    if (used > budget || taken < p.least(c)) return false;
    counts[at(c)] = taken;
  }
  return left == 0;
}

Counts partition(const Problem& p) {
  double low = 0, high = p.prefix.back() + p.fixed(0) + p.fixed(p.chunks() - 1);
  Counts counts(at(p.chunks())), best = counts;
  if (!fill_from_end(p, high * (1 + 1e-9), best)) return {};
  high = slowest(p, best);
  for (int step = 0; step < 60 && high - low > 1e-12 * high; ++step) {
    const double middle = (low + high) / 2;
    if (fill_from_end(p, middle, counts))
      best = counts, high = std::min(middle, slowest(p, counts));
    else
      low = middle;
  }
  return best;
}

// Layers of each rank under a budget for its sum; the first layers count with the first rank.
int rank_layers(const Problem& p, double budget, Counts& of_rank) {
  const double typical = p.prefix[at(p.layers())] - p.prefix[at(p.layers() - 1)];
  int total = 0;
  for (int r = 0; r < p.pp; ++r) {
    double used = 0;
    int least = 0;
    for (int k = 0; k < p.vpp; ++k)
      for (int c = k * p.pp; c < (k + 1) * p.pp; ++c)
        if (p.rank(c) == r) used += p.fixed(c), least += p.least(c);
    int n = 0;
    if (r == 0) {
      while (n < p.layers() && used + p.prefix[at(n + 1)] <= budget) ++n;
    } else {
      n = std::max(0, static_cast<int>((budget - used) / typical + 1e-9));
    }
    if (n < least) return -1;
    of_rank[at(r)] = n;
    total += n;
  }
  return total;
}

// Even chunks of each rank's layers: the longer ones first, but those of embedding and loss last.
Counts spread(const Problem& p, const Counts& of_rank) {
  Counts counts(at(p.chunks()));
  for (int r = 0; r < p.pp; ++r) {
    std::vector<int> chunks;
    for (int c = 0; c < p.chunks(); ++c)
      if (p.rank(c) == r) chunks.push_back(c);
    std::stable_sort(chunks.begin(), chunks.end(),
                     [&](int a, int b) { return p.least(a) > p.least(b); });
    const int n = of_rank[at(r)], each = n / p.vpp, more = n % p.vpp;
    for (int i = 0; i < p.vpp; ++i) counts[at(chunks[at(i)])] = each + (i < more ? 1 : 0);
  }
  return counts;
}

Counts interleave(const Problem& p) {
  Counts of_rank(at(p.pp));
  double low = 0, high = p.prefix.back() + p.fixed(0) + p.fixed(p.chunks() - 1);
  if (rank_layers(p, high, of_rank) < p.layers()) return {};
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    (rank_layers(p, middle, of_rank) >= p.layers() ? high : low) = middle;
  }
  int surplus = rank_layers(p, high, of_rank) - p.layers();
  // The slack goes to the first ranks, which keep the most in flight.
  while (surplus > 0) {
    const int before = surplus;
    for (int r = 0; r < p.pp && surplus > 0; ++r)
      if (of_rank[at(r)] > p.vpp) --of_rank[at(r)], --surplus;
    if (surplus == before) return {};
  }
  return spread(p, of_rank);
}

// One layer from the slowest rank to another while that lowers the maximum.
void improve(const Problem& p, Counts& counts) {
  double best = slowest(p, counts);
  for (int round = 0; round < 16; ++round) {
    const std::vector<double> sums = rank_sums(p, counts);
    const auto hot = static_cast<int>(std::max_element(sums.begin(), sums.end()) - sums.begin());
    Counts found;
    for (int from = 0; from < p.chunks(); ++from) {
      if (p.rank(from) != hot || counts[at(from)] <= p.least(from)) continue;
      for (int to = 0; to < p.chunks(); ++to) {
        if (p.rank(to) == hot || sums[at(p.rank(to))] >= best) continue;
        --counts[at(from)], ++counts[at(to)];
        const double value = slowest(p, counts);
        if (value < best * (1 - 1e-9)) best = value, found = counts;
        ++counts[at(from)], --counts[at(to)];
      }
    }
    if (found.empty()) return;
    counts = found;
  }
}

layout::Pipeline to_pipeline(const Problem& p, const Counts& counts) {
  layout::Pipeline pipeline;
  pipeline.pp = p.pp;
  pipeline.vpp = p.vpp;
  pipeline.placement = p.placement;
  pipeline.chunks.resize(counts.size());
  int next = 0;
  for (int c = 0; c < p.chunks(); ++c) {
    layout::Chunk& chunk = pipeline.chunks[at(c / p.pp * p.pp + p.rank(c))];
    chunk.first_layer = next;
    chunk.layers = counts[at(c)];
    for (int i = 0; i < chunk.layers; ++i) ++chunk.of_kind[at(p.model.layers[at(next++)].index())];
    chunk.embedding = c == 0;
    chunk.loss = c + 1 == p.chunks();
    chunk.mtp = chunk.loss ? static_cast<int>(p.model.mtp_layers) : 0;
  }
  return pipeline;
}

}  // namespace

double slowest_rank(const layout::Pipeline& pipeline, const ChunkCosts& costs) {
  double most = 0;
  for (int r = 0; r < pipeline.pp; ++r) {
    double sum = 0;
    for (int k = 0; k < pipeline.vpp; ++k) {
      const layout::Chunk& chunk = pipeline.at(r, k);
      for (std::size_t i = 0; i < costs.layer.size(); ++i) sum += chunk.of_kind[i] * costs.layer[i];
      sum += (chunk.embedding ? costs.embedding : 0) + chunk.mtp * costs.mtp +
             (chunk.loss ? costs.loss : 0);
    }
    most = std::max(most, sum);
  }
  return most;
}

layout::Pipeline balanced_pipeline(const model::Model& model, int pp, int vpp,
                                   const ChunkCosts& costs, layout::Placement placement) {
  Problem p{model, costs, pp, vpp, placement, {0}};
  for (const model::LayerKind kind : model.layers)
    p.prefix.push_back(p.prefix.back() + costs.layer[at(kind.index())]);
  Counts counts = vpp == 1 ? partition(p) : interleave(p);
  if (counts.empty()) counts = partition(p);
  if (counts.empty()) return {};
  if (vpp > 1) improve(p, counts);
  layout::Pipeline own = to_pipeline(p, counts);
  const double limit = slowest_rank(own, costs) * 1.001;
  layout::Layout plain;
  plain.pp = pp, plain.vpp = vpp;
  for (int i = 0; i < 2; ++i) {
    if (i == 1) plain.pipeline_layout = layout::filled_pipeline_layout(model, pp, vpp);
    if (i == 1 && plain.pipeline_layout.empty()) break;
    layout::Pipeline other;
    if (!layout::cut_pipeline(model, plain, other, placement).ok()) continue;
    if (slowest_rank(other, costs) <= limit) return other;
  }
  return own;
}

}  // namespace trifold::planner

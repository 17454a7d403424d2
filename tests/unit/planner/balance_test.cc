// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "planner/balance.h"

// Every way of cutting a few layers, against the planner's cut.

namespace trifold::planner {
namespace {

struct Case {
  model::Model model;
  ChunkCosts costs;
};

Case random_case(Random& random) {
  Case c;
  const int layers = 5 + static_cast<int>(random.below(5));
  const int dense = static_cast<int>(random.below(3));
  for (int i = 0; i < layers; ++i) c.model.layers.push_back({i >= dense, false});
  c.model.mtp_layers = static_cast<int>(random.below(2));
  c.costs.layer[0] = 0.5 + random.uniform();
  c.costs.layer[1] = 1 + random.uniform();
  c.costs.embedding = 0.2 * random.uniform();
  c.costs.loss = 1.5 * random.uniform();
  c.costs.mtp = 1 + random.uniform();
  return c;
}

// Smallest maximum over the ranks of every composition, chunks without a layer only at the ends.
double exhaustive(const Case& c, int pp, int vpp, int chunk, int next, std::vector<double>& ranks) {
  const int chunks = pp * vpp, layers = static_cast<int>(c.model.layers.size());
  if (chunk == chunks)
    return next == layers ? *std::max_element(ranks.begin(), ranks.end()) : INFINITY;
  double fixed = chunk == 0 ? c.costs.embedding : 0;
  if (chunk + 1 == chunks)
    fixed += c.costs.loss + static_cast<double>(c.model.mtp_layers) * c.costs.mtp;
  double& rank = ranks[static_cast<std::size_t>(chunk % pp)];
  const double before = rank;
  double best = INFINITY, cost = fixed;
  const int least = chunk == 0 || chunk + 1 == chunks ? 0 : 1;
  for (int n = 0; next + n <= layers; ++n) {
    if (n > 0)
      cost += c.costs.layer[static_cast<std::size_t>(
          c.model.layers[static_cast<std::size_t>(next + n - 1)].index())];
    if (n < least) continue;
    rank = before + cost;
    best = std::min(best, exhaustive(c, pp, vpp, chunk + 1, next + n, ranks));
  }
  rank = before;
  return best;
}

double exhaustive(const Case& c, int pp, int vpp) {
  std::vector<double> ranks(static_cast<std::size_t>(pp));
  return exhaustive(c, pp, vpp, 0, 0, ranks);
}

TEST(Balance, OneChunkARankIsOptimal) {
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    const Case c = random_case(random);
    const int pp = 2 + static_cast<int>(random.below(4));
    const layout::Pipeline cut = balanced_pipeline(c.model, pp, 1, c.costs);
    const double best = exhaustive(c, pp, 1);
    // A plainer cut may cost 0.1 %.
    EXPECT_LE(slowest_rank(cut, c.costs), best * 1.001 + 1e-12);
  }
}

TEST(Balance, InterleavedCutsAreNearlyOptimal) {
  Random random(5);
  double sum = 0;
  int count = 0;
  for (int i = 0; i < 200; ++i) {
    const Case c = random_case(random);
    const layout::Pipeline cut = balanced_pipeline(c.model, 2, 2, c.costs);
    const double ratio = slowest_rank(cut, c.costs) / exhaustive(c, 2, 2);
    EXPECT_LE(ratio, 1.2);  // one layer of ten on the wrong rank
    sum += ratio, ++count;
  }
  EXPECT_LE(sum / count, 1.02);
}

TEST(Balance, CutsAreMegatronsStrings) {
  Random random(9);
  for (int i = 0; i < 200; ++i) {
    const Case c = random_case(random);
    const int pp = 2 + static_cast<int>(random.below(2)),
              vpp = 1 + static_cast<int>(random.below(2));
    const layout::Pipeline cut = balanced_pipeline(c.model, pp, vpp, c.costs);
    ASSERT_FALSE(cut.chunks.empty());
    layout::Layout layout;
    layout.pp = pp, layout.vpp = vpp;
    layout.pipeline_layout = layout::print_pipeline_layout(cut);
    const Result<layout::Pipeline> read = layout::build_pipeline(c.model, layout);
    ASSERT_TRUE(read) << layout.pipeline_layout;
    EXPECT_EQ(read->chunks, cut.chunks);
  }
}

// Sixteen equal layers over four ranks need no string: 4 4 4 4 is Megatron's even cut.
TEST(Balance, EvenLayersStayEven) {
  model::Model m;
  m.layers.assign(16, {true, false});
  ChunkCosts costs;
  costs.layer[1] = 1;
  for (int vpp : {1, 2, 4}) {
    layout::Layout even;
    even.pp = 4, even.vpp = vpp;
    EXPECT_EQ(balanced_pipeline(m, 4, vpp, costs).chunks,
              layout::build_pipeline(m, even).value().chunks);
  }
}

}  // namespace
}  // namespace trifold::planner

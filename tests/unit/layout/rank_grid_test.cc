// SPDX-License-Identifier: Apache-2.0
#include "layout/rank_grid.h"

#include <gtest/gtest.h>

#include <algorithm>

// Worked examples of megatron.md section 3, which were read off Megatron's own process groups.

namespace trifold::layout {
namespace {

std::vector<int> values(const std::vector<RankId>& ranks) {
  std::vector<int> out;
  for (RankId r : ranks) out.push_back(r.value());
  return out;
}

using Ranks = std::vector<int>;

Layout world64(int ep) {
  Layout layout;
  layout.tp = 2;
  layout.cp = 2;
  layout.pp = 2;
  layout.ep = ep;
  return layout;
}

TEST(RankGrid, World64DenseGroups) {
  const RankGrid grid(world64(8), 64);  // d = 64/(2*2*2) = 8, EDP = 64/(8*2) = 4
  EXPECT_EQ(grid.axis(Axis::dp).size, 8);
  EXPECT_EQ(grid.axis(Axis::edp).size, 4);
  const auto tp = grid.groups({Axis::tp});
  EXPECT_EQ(tp.size(), 32u);
  EXPECT_EQ(values(tp[0]), (Ranks{0, 1}));
  EXPECT_EQ(values(tp[1]), (Ranks{2, 3}));
  const auto cp = grid.groups({Axis::cp});
  EXPECT_EQ(values(cp[0]), (Ranks{0, 2}));
  EXPECT_EQ(values(cp[1]), (Ranks{1, 3}));
  EXPECT_EQ(values(cp[2]), (Ranks{4, 6}));
  const auto dp = grid.groups({Axis::dp});
  EXPECT_EQ(values(dp[0]), (Ranks{0, 4, 8, 12, 16, 20, 24, 28}));
  EXPECT_EQ(values(dp[1]), (Ranks{1, 5, 9, 13, 17, 21, 25, 29}));
  const auto pp = grid.groups({Axis::pp});
  EXPECT_EQ(values(pp[0]), (Ranks{0, 32}));
  EXPECT_EQ(values(pp[1]), (Ranks{1, 33}));
}

TEST(RankGrid, World64DpCpGroupsVaryCpFirst) {
  const auto groups = RankGrid(world64(8), 64).groups({Axis::cp, Axis::dp});
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(values(groups[0]), (Ranks{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}));
  EXPECT_EQ(groups[1].front().value(), 1);
  EXPECT_EQ(groups[1].back().value(), 31);
  EXPECT_EQ(groups[2].front().value(), 32);
  EXPECT_EQ(groups[3].front().value(), 33);
}

TEST(RankGrid, World64ExpertGroups) {
  const RankGrid grid(world64(8), 64);
  const auto ep = grid.groups({Axis::ep});
  EXPECT_EQ(values(ep[0]), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values(ep[1]), (Ranks{8, 9, 10, 11, 12, 13, 14, 15}));
  const auto edp = grid.groups({Axis::edp});
  EXPECT_EQ(values(edp[0]), (Ranks{0, 8, 16, 24}));
  EXPECT_EQ(values(edp[1]), (Ranks{1, 9, 17, 25}));
}

TEST(RankGrid, PpBeforeDpNeedsEqualGrids) {
  Layout layout = world64(8);
  layout.order = RankOrder::tp_cp_ep_pp_dp;
  EXPECT_FALSE(RankGrid::valid(layout, 64));  // DP 8 != EDP 4
  layout = world64(4);                        // t*c = 4 = ETP*e
  layout.order = RankOrder::tp_cp_ep_pp_dp;
  ASSERT_TRUE(RankGrid::valid(layout, 64));
  const RankGrid grid(layout, 64);
  EXPECT_EQ(values(grid.groups({Axis::edp})[0]), (Ranks{0, 8, 16, 24, 32, 40, 48, 56}));
  EXPECT_EQ(values(grid.groups({Axis::ep})[0]), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(values(grid.groups({Axis::ep})[1]), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(values(grid.groups({Axis::pp})[0]), (Ranks{0, 4}));  // stride t*c
}

TEST(RankGrid, World1024ExpertsSpanEightNodes) {
  Layout layout;
  layout.tp = 2;
  layout.pp = 8;
  layout.ep = 64;
  const RankGrid grid(layout, 1024);
  EXPECT_EQ(grid.axis(Axis::dp).size, 64);
  EXPECT_EQ(grid.axis(Axis::edp).size, 2);
  const std::vector<RankId> ep = grid.group(RankId(70), {Axis::ep});
  EXPECT_EQ(ep.size(), 64u);
  EXPECT_EQ(ep.front().value(), 64);
  EXPECT_EQ(ep.back().value(), 127);
  EXPECT_EQ(values(grid.group(RankId(70), {Axis::edp})), (Ranks{6, 70}));
}

TEST(RankGrid, UlyssesRanksSitOnTheCpAxis) {
  Layout layout;
  layout.cp = 2;
  layout.ulysses_sp = 4;
  const RankGrid grid(layout, 16);
  EXPECT_EQ(grid.axis(Axis::cp).size, 8);
  EXPECT_EQ(grid.axis(Axis::dp).size, 2);
}

TEST(RankGrid, EtpIsTheFastestExpertAxis) {
  Layout layout;
  layout.etp = 2;
  layout.ep = 4;
  const RankGrid grid(layout, 16);
  EXPECT_EQ(values(grid.group(RankId(3), {Axis::etp})), (Ranks{2, 3}));
  EXPECT_EQ(values(grid.group(RankId(3), {Axis::ep})), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(values(grid.group(RankId(3), {Axis::edp})), (Ranks{3, 11}));
}

// Classic frameworks take EP out of DP, so EP 8 beside CP 8 needs 8 * 8 = 64 GPUs. Folding only
// asks that both products divide the world: 8 GPUs serve both (2504.14960).
TEST(RankGrid, FoldingNeedsEightGpusForEp8WithCp8) {
  Layout layout;
  layout.cp = 8;
  layout.ep = 8;
  const auto classic = [&](int gpus) {
    return RankGrid::valid(layout, gpus) && layout.dp(gpus) % layout.ep == 0;
  };
  int smallest_folded = 0, smallest_classic = 0;
  for (int gpus = 1; gpus <= 64; ++gpus) {
    if (smallest_folded == 0 && RankGrid::valid(layout, gpus)) smallest_folded = gpus;
    if (smallest_classic == 0 && classic(gpus)) smallest_classic = gpus;
  }
  EXPECT_EQ(smallest_folded, 8);
  EXPECT_EQ(smallest_classic, 64);
  const RankGrid grid(layout, 8);
  EXPECT_EQ(values(grid.group(RankId(5), {Axis::ep})), values(grid.group(RankId(5), {Axis::cp})));
}

TEST(RankGrid, InvalidSizes) {
  Layout layout;
  layout.tp = 3;
  EXPECT_FALSE(RankGrid::valid(layout, 8));
  layout.tp = 1;
  layout.ep = 16;
  EXPECT_FALSE(RankGrid::valid(layout, 8));
  EXPECT_FALSE(RankGrid::valid(Layout{}, 0));
}

}  // namespace
}  // namespace trifold::layout

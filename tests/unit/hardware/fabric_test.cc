// SPDX-License-Identifier: Apache-2.0
#include "hardware/fabric.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace trifold::hardware {
namespace {

Cluster catalogue(const std::string& name) {
  Result<Cluster> cluster = load_cluster(name, TRIFOLD_SOURCE_DIR);
  EXPECT_TRUE(cluster) << cluster.error().to_string();
  return *cluster;
}

std::vector<RankId> grid(int base, int inner_count, int inner_stride, int outer_count,
                         int outer_stride) {
  std::vector<RankId> members;
  for (int o = 0; o < outer_count; ++o)
    for (int i = 0; i < inner_count; ++i)
      members.emplace_back(base + o * outer_stride + i * inner_stride);
  return members;
}

std::string describe(const GroupSpan& s) {
  return "ranks " + std::to_string(s.ranks) + " domains " + std::to_string(s.domains) + " max " +
         std::to_string(s.max_ranks_per_domain) + " min " + std::to_string(s.min_ranks_per_domain) +
         " leaves " + std::to_string(s.leaves) + " scaleup " + std::to_string(s.scaleup.value()) +
         " scaleout " + std::to_string(s.scaleout.value());
}

TEST(Fabric, ExpertGroupOf64StaysInsideAnNvl72Domain) {
  const Cluster c = catalogue("gb200-nvl72");
  for (const int base : {0, 64, 128}) {
    const GroupSpan span = span_of(c, base, 64, 1);
    EXPECT_EQ(span.domains, 1);
    EXPECT_EQ(span.max_ranks_per_domain, 64);
    EXPECT_FALSE(span.crosses_domains());
  }
}

TEST(Fabric, With72UsedASecondGroupOf64Crosses) {
  // Ranks 64..127 with 72 a domain: 8 in the first domain, 56 in the second.
  Cluster c = catalogue("gb200-nvl72");
  c.gpus_used_per_domain = 72;
  EXPECT_EQ(span_of(c, 0, 72, 1).domains, 1);
  const GroupSpan span = span_of(c, 64, 64, 1);
  EXPECT_EQ(span.domains, 2);
  EXPECT_EQ(span.min_ranks_per_domain, 8);
  EXPECT_EQ(span.max_ranks_per_domain, 56);
}

TEST(Fabric, ExpertGroupOf64SpansEightDgxNodes) {
  const GroupSpan span = span_of(catalogue("dgx-h100"), 0, 64, 1);
  EXPECT_EQ(span.domains, 8);
  EXPECT_EQ(span.min_ranks_per_domain, 8);
  EXPECT_EQ(span.max_ranks_per_domain, 8);
  EXPECT_EQ(span.leaves, 1);
  EXPECT_EQ(span.scaleup.value(), 450e9);
  EXPECT_EQ(span.scaleout.value(), 50e9);
}

TEST(Fabric, StridedGroups) {
  // tp 8, so a data-parallel group takes one rank of each node; tp 4: two of each.
  const Cluster c = catalogue("dgx-h100");
  EXPECT_EQ(span_of(c, 3, 16, 8).domains, 16);
  EXPECT_EQ(span_of(c, 3, 16, 8).max_ranks_per_domain, 1);
  EXPECT_EQ(span_of(c, 1, 16, 4).domains, 8);
  EXPECT_EQ(span_of(c, 1, 16, 4).min_ranks_per_domain, 2);
  // dp-cp with tp 2, cp 2, pp 2 outside ep..: {0, 2} + 8 o: two ranks of each of four nodes.
  const GroupSpan two_axes = span_of(c, 0, 2, 2, 4, 8);
  EXPECT_EQ(two_axes.ranks, 8);
  EXPECT_EQ(two_axes.domains, 4);
  EXPECT_EQ(two_axes.max_ranks_per_domain, 2);
}

TEST(Fabric, OversubscriptionBitesOnlyAcrossLeaves) {
  Cluster c = catalogue("dgx-h100");
  ASSERT_EQ(c.nodes_per_leaf, 32);  // so 256 GPUs under a leaf
  c.leaf_oversubscription = 4;
  EXPECT_EQ(span_of(c, 0, 256, 1).scaleout.value(), 50e9);
  EXPECT_EQ(span_of(c, 0, 256, 1).leaves, 1);
  EXPECT_EQ(span_of(c, 0, 512, 1).leaves, 2);
  EXPECT_EQ(span_of(c, 0, 512, 1).scaleout.value(), 12.5e9);
  EXPECT_EQ(span_of(c, 248, 2, 8).scaleout.value(),
            12.5e9);  // nodes 31 and 32: neighbours, two leaves
}

TEST(Fabric, OneDomainUnderTwoLeavesNeverPaysForTheUplink) {
  // NVL72: 18 nodes a domain, 32 a leaf: the second domain's nodes are 18..35, of leaves 0 and 1.
  Cluster c = catalogue("gb200-nvl72");
  c.leaf_oversubscription = 2;
  const GroupSpan span = span_of(c, 64, 64, 1);
  EXPECT_EQ(span.domains, 1);
  EXPECT_EQ(span.leaves, 2);
  EXPECT_EQ(span.scaleout.value(), 50e9);
  EXPECT_EQ(span, route_group(c, 128, grid(64, 64, 1, 1, 64)));
}

TEST(Fabric, PartialLastDomain) {
  const Cluster c = catalogue("gb200-nvl72");
  const GroupSpan span = span_of(c, 0, 80, 1);
  EXPECT_EQ(span.domains, 2);
  EXPECT_EQ(span.min_ranks_per_domain, 16);
  EXPECT_EQ(span, route_group(c, 80, grid(0, 80, 1, 1, 80)));
}

TEST(Fabric, MoreLinkRateNeverGivesLess) {
  Cluster slow = catalogue("dgx-h100");
  slow.leaf_oversubscription = 2;
  Cluster fast = slow;
  fast.scaleout_bandwidth *= 2;
  fast.scaleup_bandwidth *= 2;
  for (int count = 1; count <= 1024; count *= 2) {
    EXPECT_GE(span_of(fast, 0, count, 1).scaleout, span_of(slow, 0, count, 1).scaleout);
    EXPECT_GE(span_of(fast, 0, count, 1).scaleup, span_of(slow, 0, count, 1).scaleup);
  }
}

// Shapes of real and odd machines: domain below, equal to and above a node; partly used; small
// leaves.
Cluster random_cluster(Random& random) {
  struct Shape {
    int domain, used, node;
  };
  constexpr Shape kShapes[] = {{8, 8, 8}, {72, 64, 4}, {72, 72, 4}, {8, 6, 4},  {2, 2, 8},
                               {4, 3, 8}, {72, 50, 4}, {1, 1, 8},   {36, 33, 4}};
  Cluster c = catalogue("dgx-h100");
  const Shape shape = kShapes[random.below(std::size(kShapes))];
  c.domain_gpus = shape.domain;
  c.gpus_used_per_domain = shape.used;
  c.gpus_per_node = shape.node;
  c.nodes_per_leaf = 1 + static_cast<int>(random.below(20));
  c.leaf_oversubscription = 1 + static_cast<double>(random.below(4));
  return c;
}

TEST(Fabric, ClosedFormEqualsRouting) {
  Random random(20261129);
  int crossing = 0, leaf_crossing = 0;
  for (int round = 0; round < 1500; ++round) {
    const Cluster c = random_cluster(random);
    // Nested axes as a rank grid has them: inner (n, s), outer a multiple of the inner's extent.
    const auto pick = [&](std::uint64_t n) { return 1 + static_cast<int>(random.below(n)); };
    const int inner_stride = random.below(2) == 0 ? 1 << random.below(5) : pick(9);
    const int inner_count = pick(8);
    const int outer_stride = inner_stride * inner_count * pick(4), outer_count = pick(5);
    const int base = static_cast<int>(random.below(100));
    const int last = base + (inner_count - 1) * inner_stride + (outer_count - 1) * outer_stride;
    const int gpus = last + pick(40);
    const GroupSpan routed =
        route_group(c, gpus, grid(base, inner_count, inner_stride, outer_count, outer_stride));
    const GroupSpan closed = span_of(c, base, inner_count, inner_stride, outer_count, outer_stride);
    ASSERT_EQ(closed, routed) << "round " << round << "\n"
                              << describe(closed) << "\n"
                              << describe(routed);
    ASSERT_EQ(span_of(c, base, outer_count, outer_stride, inner_count, inner_stride), routed);
    if (outer_count == 1) {
      ASSERT_EQ(span_of(c, base, inner_count, inner_stride), routed);
    }
    crossing += routed.domains > 1 ? 1 : 0;
    leaf_crossing += routed.scaleout < c.scaleout_bandwidth ? 1 : 0;
  }
  EXPECT_GT(crossing, 100);
  EXPECT_GT(leaf_crossing, 50);
}

}  // namespace
}  // namespace trifold::hardware

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/sampling.h"

#include <gtest/gtest.h>

namespace trifold::calibrate {
namespace {

TEST(Percentile, InterpolatesBetweenOrderStatistics) {
  // Sorted 1 2 3 4: position 0.5 * 3 = 1.5, halfway between 2 and 3.
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.5), 2.5);
  // Position 0.9 * 3 = 2.7: 3 + 0.7.
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(percentile({7}, 0.1), 7);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 1), 4);
}

TEST(Percentile, SpreadIsRelativeToTheMedian) {
  // 0 .. 10: p10 = 1, p90 = 9, median 5: (9 - 1) / 5.
  EXPECT_DOUBLE_EQ(relative_spread({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 1.6);
  EXPECT_DOUBLE_EQ(relative_spread({3, 3, 3}), 0);
}

TEST(InnerCount, SpansAHundredMicroseconds) {
  const SampleRule rule;
  EXPECT_EQ(inner_count(rule, 250), 1);
  EXPECT_EQ(inner_count(rule, 100), 1);
  EXPECT_EQ(inner_count(rule, 30), 4);  // 3.3 rounds up
  EXPECT_EQ(inner_count(rule, 0.01), rule.max_inner);
  EXPECT_EQ(inner_count(rule, 0), rule.max_inner);
}

TEST(WarmUp, SettlesOnThreeSamplesWithinTwoPercent) {
  WarmUp warm{SampleRule{}};
  EXPECT_FALSE(warm.add(200, 1));
  EXPECT_FALSE(warm.add(120, 2));
  EXPECT_FALSE(warm.add(101, 3));   // 101 .. 200
  EXPECT_FALSE(warm.add(100, 4));   // 100 .. 120
  EXPECT_TRUE(warm.add(101.5, 5));  // 100 .. 101.5
  EXPECT_TRUE(warm.settled());
}

TEST(WarmUp, GivesUpAfterItsPatience) {
  WarmUp warm{SampleRule{}};
  EXPECT_FALSE(warm.add(100, 10));
  EXPECT_FALSE(warm.add(200, 49));
  EXPECT_TRUE(warm.add(100, 51));
  EXPECT_FALSE(warm.settled());
}

TEST(Enough, StopsOnLowNoiseNotBefore) {
  const SampleRule rule;
  const std::vector<double> eight(8, 100.0), nine(9, 100.0);
  EXPECT_FALSE(enough(rule, eight, 1));
  EXPECT_TRUE(enough(rule, nine, 1));
}

TEST(Enough, NoiseRunsToTheMostSamplesOrTheBudget) {
  const SampleRule rule;
  std::vector<double> noisy;
  for (int i = 0; i < 30; ++i) noisy.push_back(i % 2 == 0 ? 100 : 120);
  EXPECT_FALSE(enough(rule, noisy, 1));
  EXPECT_TRUE(enough(rule, noisy, rule.budget_ms + 1));
  noisy.push_back(110);
  EXPECT_TRUE(enough(rule, noisy, 1));            // 31
  EXPECT_FALSE(enough(rule, {1, 2, 3, 4}, 1e9));  // never fewer than five
}

}  // namespace
}  // namespace trifold::calibrate

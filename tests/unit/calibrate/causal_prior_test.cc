// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/causal_prior.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trifold::fit {
namespace {

double tiles(double s, double heads_batch) { return heads_batch * s / 128; }

std::vector<Sample> samples(double s_half, double c_half, const std::map<double, double>& level) {
  std::vector<Sample> out;
  for (const auto& [dim, u] : level)
    for (const double s : {512., 1024., 2048., 4096., 8192., 16384.})
      for (const double heads : {8., 32., 128.}) {
        const double c = tiles(s, heads);
        out.push_back({s, dim, heads, u * s / (s + s_half) * c / (c + c_half)});
      }
  return out;
}

TEST(CausalPrior, FindsItsOwnParameters) {
  const CausalPrior found = fit_causal_prior(samples(600, 180, {{64, 0.5}, {128, 0.7}}));
  EXPECT_NEAR(found.s_half / 600, 1, 0.02);
  EXPECT_NEAR(found.c_half / 180, 1, 0.02);
  ASSERT_EQ(found.level.size(), 2u);
  EXPECT_NEAR(found.level.at(64), 0.5, 0.005);
  EXPECT_NEAR(found.level.at(128), 0.7, 0.007);
  // Beyond what it saw: 0.7 x 32768/33368 x 2048/2228.
  EXPECT_NEAR(found(32768, 128, 8), 0.7 * 32768 / 33368 * 2048 / 2228, 0.01);
}

TEST(CausalPrior, AHeadDimThatItNeverSawTakesTheNearest) {
  const CausalPrior prior{0, 0, {{64, 0.4}, {128, 0.6}, {256, 0.5}}};
  EXPECT_DOUBLE_EQ(prior(4096, 16, 32), 0.4);
  EXPECT_DOUBLE_EQ(prior(4096, 90, 32), 0.4);
  EXPECT_DOUBLE_EQ(prior(4096, 100, 32), 0.6);
  EXPECT_DOUBLE_EQ(prior(4096, 128, 32), 0.6);
  EXPECT_DOUBLE_EQ(prior(4096, 200, 32), 0.5);
  EXPECT_DOUBLE_EQ(prior(4096, 512, 32), 0.5);
}

TEST(CausalPrior, OneOutlierDoesNotMoveALevel) {
  auto all = samples(600, 180, {{128, 0.7}});
  all[7].u *= 3;
  EXPECT_NEAR(fit_causal_prior(all).level.at(128), 0.7, 0.02);
}

}  // namespace
}  // namespace trifold::fit

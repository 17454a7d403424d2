// SPDX-License-Identifier: Apache-2.0
// The references are what the kernels are held to, so they have tests of their own.
#include "calibrate/kernels/reference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trifold::kernels::reference {
namespace {

TEST(Route, SoftmaxTopK) {
  // exp(0) = 1, exp(ln 2) = 2, exp(ln 5) = 5, sum 8: the best two are 5/8 and 2/8; normalised 5/7,
  // 2/7.
  const double logits[] = {0, std::log(2.0), std::log(5.0)};
  Router r;
  r.experts = 3, r.k = 2;
  const Choice c = route(r, logits, nullptr);
  EXPECT_EQ(c.experts, (std::vector<int>{2, 1}));
  EXPECT_NEAR(c.probabilities[0], 5.0 / 7, 1e-12);
  r.normalise = false;
  EXPECT_NEAR(route(r, logits, nullptr).probabilities[1], 2.0 / 8, 1e-12);
}

TEST(Route, BiasMovesTheChoiceNotTheWeight) {
  const double logits[] = {0, 0, 0, 3}, bias[] = {0.9, 0, 0, 0};
  Router r;
  r.experts = 4, r.k = 1, r.sigmoid = true, r.normalise = false;
  // sigmoid(0) = 0.5, + 0.9 beats sigmoid(3) = 0.953; the weight stays 0.5.
  const Choice c = route(r, logits, bias);
  EXPECT_EQ(c.experts[0], 0);
  EXPECT_DOUBLE_EQ(c.probabilities[0], 0.5);
}

TEST(Route, GroupsAreScoredByTheirBestTwo) {
  // Group 0 holds the best expert (sigmoid(4) + sigmoid(-9) = 0.982), group 1 the better pair
  // (2 sigmoid(1) = 1.46): with one group allowed, expert 0 is out.
  const double logits[] = {4, -9, 1, 1};
  Router r;
  r.experts = 4, r.k = 1, r.groups = 2, r.top_groups = 1, r.sigmoid = true;
  EXPECT_EQ(route(r, logits, nullptr).experts[0], 2);
}

TEST(Swiglu, GradientAgreesWithFiniteDifferences) {
  const std::vector<double> x = {0.3, -1.2, 0.7, 2.0};  // gate 2, up 2
  const std::vector<double> dy = {1.0, -0.5};
  double dp = 0;
  const Values dx = swiglu_gradient(dy.data(), x.data(), 2, 0.8, dp);
  const double h = 1e-6;
  const auto value = [&](const std::vector<double>& at, double p) {
    const Values y = swiglu(at.data(), 2, p);
    return y[0] * dy[0] + y[1] * dy[1];
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<double> up = x, down = x;
    up[i] += h, down[i] -= h;
    EXPECT_NEAR(dx[i], (value(up, 0.8) - value(down, 0.8)) / (2 * h), 1e-8);
  }
  EXPECT_NEAR(dp, (value(x, 0.8 + h) - value(x, 0.8 - h)) / (2 * h), 1e-8);
}

TEST(Rmsnorm, UnitRms) {
  const double x[] = {3, 4}, w[] = {1, 2};
  // mean square 12.5.
  const Values y = rmsnorm(x, w, 2, 0);
  EXPECT_NEAR(y[0], 3 / std::sqrt(12.5), 1e-12);
  EXPECT_NEAR(y[1], 8 / std::sqrt(12.5), 1e-12);
}

TEST(Adam, FirstStepMovesByTheRate) {
  // Step 1 with corrections 1 - beta: m/c1 = g, sqrt(v/c2) = |g|: a step of the rate.
  const AdamState s = adam({1, 0, 0}, 0.3, 0.01, 0.9, 0.95, 0, 0, 0.1, 0.05);
  EXPECT_NEAR(s.master, 1 - 0.01, 1e-12);
}

TEST(CrossEntropy, UniformLogits) {
  Values logits(4, 2.0);
  EXPECT_NEAR(cross_entropy(logits, 1, 2.0), std::log(4.0), 1e-12);
  EXPECT_NEAR(logits[0], 0.5, 1e-12);   // 2 / 4
  EXPECT_NEAR(logits[1], -1.5, 1e-12);  // 2 / 4 - 2
}

TEST(E4m3, Values) {
  EXPECT_EQ(e4m3_value(0x7e), 448);  // 1111.110: 1.75 * 2^8
  EXPECT_EQ(e4m3_value(0x38), 1);    // exponent 7
  EXPECT_EQ(e4m3_value(0xb8), -1);
  EXPECT_EQ(e4m3_value(0x01), 1.0 / 512);  // smallest subnormal, 2^-9
  EXPECT_EQ(e4m3_value(0x08), 1.0 / 64);   // smallest normal, 2^-6
  EXPECT_TRUE(std::isnan(e4m3_value(0x7f)));
}

}  // namespace
}  // namespace trifold::kernels::reference

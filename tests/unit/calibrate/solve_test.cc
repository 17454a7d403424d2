// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/solve.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "calibrate/fit/traffic.h"

namespace trifold::fit {
namespace {

TEST(Nnls, ClampsWhatLeastSquaresWouldMakeNegative) {
  // Line through (1,3), (2,2), (3,1): intercept 4, slope -1. With slope >= 0 the best is slope 0
  // and the mean, 2.
  Eigen::MatrixXd a(3, 2);
  a << 1, 1, 1, 2, 1, 3;
  Eigen::VectorXd b(3);
  b << 3, 2, 1;
  const Eigen::VectorXd x = nnls(a, b, 0);
  EXPECT_NEAR(x[0], 2, 1e-9);
  EXPECT_EQ(x[1], 0);
}

TEST(Nnls, AgreesWithLeastSquaresInTheInterior) {
  // 5 + 2 t exactly.
  Eigen::MatrixXd a(4, 2);
  Eigen::VectorXd b(4);
  for (int i = 0; i < 4; ++i) {
    a(i, 0) = 1;
    a(i, 1) = i * 1e6;  // columns of very different size
    b[i] = 5 + 2e6 * i;
  }
  const Eigen::VectorXd x = nnls(a, b, 0);
  EXPECT_NEAR(x[0], 5, 1e-5);
  EXPECT_NEAR(x[1], 2, 1e-9);
}

TEST(Nnls, MeetsTheOptimalityConditionsOnRandomProblems) {
  // Karush-Kuhn-Tucker: gradient 0 where x > 0, and >= 0 (of 1/2|Ax-b|^2) where x = 0.
  Random random(7);
  for (int trial = 0; trial < 50; ++trial) {
    Eigen::MatrixXd a(12, 5);
    Eigen::VectorXd b(12);
    for (int i = 0; i < 12; ++i) {
      b[i] = random.normal();
      for (int j = 0; j < 5; ++j) a(i, j) = random.normal();
    }
    const Eigen::VectorXd x = nnls(a, b, 0);
    const Eigen::VectorXd gradient = a.transpose() * (a * x - b);
    for (int j = 0; j < 5; ++j) {
      EXPECT_GE(x[j], 0);
      if (x[j] > 0)
        EXPECT_NEAR(gradient[j], 0, 1e-8);
      else
        EXPECT_GE(gradient[j], -1e-8);
    }
  }
}

TEST(Isotonic, PoolsAdjacentViolators) {
  // 3, 2 pool to 2.5; with weights 1 and 3 to (3 + 6)/4 = 2.25.
  EXPECT_EQ(isotonic({1, 3, 2, 4}, {1, 1, 1, 1}), (std::vector<double>{1, 2.5, 2.5, 4}));
  EXPECT_EQ(isotonic({1, 3, 2, 4}, {1, 1, 3, 1}), (std::vector<double>{1, 2.25, 2.25, 4}));
  // A falling sequence becomes its mean.
  EXPECT_EQ(isotonic({3, 2, 1}, {1, 1, 1}), (std::vector<double>{2, 2, 2}));
}

TEST(BoxSearch, FindsAnInteriorMinimumAndACorner) {
  const auto bowl = [](const std::vector<double>& p) {
    return (p[0] - 0.3) * (p[0] - 0.3) + (p[1] - 5) * (p[1] - 5);
  };
  const std::vector<double> p = box_search(bowl, {0.9, 0}, {{0, 1}, {0, 2}});
  EXPECT_NEAR(p[0], 0.3, 1e-4);
  EXPECT_EQ(p[1], 2);  // the minimum at 5 lies outside
}

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({1, 2}, 0.9), 1.9);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

TEST(Traffic, CountsDistinctParts) {
  // 4 experts in 2 parts, 2 picks: a part is missed with C(2,2)/C(4,2) = 1/6; 2 (1 - 1/6) = 5/3.
  EXPECT_NEAR(expected_parts({4, 2, 0, 0}, 2), 5.0 / 3, 1e-9);
}

TEST(Traffic, GroupLimitsReduceDistinctParts) {
  // 8 experts in 4 groups, 2 groups used, 2 picks, 2 parts of 2 groups. Both groups in the other
  // part: 1/6, missed. One in each: 4/6, missed with C(2,2)/C(4,2) = 1/6. So missed 1/6 + 4/36 =
  // 5/18.
  EXPECT_NEAR(expected_parts({8, 2, 4, 2}, 2), 2 * (1 - 5.0 / 18), 1e-9);
  // One expert a part: as many parts as picks, whatever the limit.
  EXPECT_NEAR(expected_parts({8, 2, 4, 2}, 8), 2, 1e-9);
}

TEST(Traffic, ReplicatedSendsEveryCopyOnce) {
  // 16 ranks in domains of 8, top 4, 100 tokens of 10 B: 4000 B; 7/16 stay inside, 8/16 leave, 1/16
  // is its own.
  const Traffic t = replicated({64, 4, 0, 0}, 16, 8, 100, 10);
  EXPECT_DOUBLE_EQ(t.scaleup, 1750);
  EXPECT_DOUBLE_EQ(t.scaleout, 2000);
}

TEST(Traffic, DeduplicatedSendsOneCopyADomain) {
  // As above: of 2 domains a token misses one with C(32,4)/C(64,4) = 35960/635376; half of the
  // domains reached are remote.
  const double domains = 2 * (1 - 35960.0 / 635376.0);
  EXPECT_NEAR(deduplicated({64, 4, 0, 0}, 16, 8, 100, 10).scaleout, 1000 * domains / 2, 1e-6);
  EXPECT_EQ(deduplicated({64, 4, 0, 0}, 8, 8, 100, 10).scaleout, 0);
}

}  // namespace
}  // namespace trifold::fit

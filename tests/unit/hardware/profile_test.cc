// SPDX-License-Identifier: Apache-2.0
#include "hardware/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace trifold::hardware {
namespace {

std::vector<double> logs(std::vector<double> values) {
  for (double& v : values) v = std::log(v);
  return values;
}

Grid3 make_grid(std::vector<double> x, std::vector<double> y, std::vector<double> z,
                std::vector<double> u) {
  Grid3 grid;
  grid.axes = {logs(std::move(x)), logs(std::move(y)), logs(std::move(z))};
  grid.values = logs(std::move(u));
  grid.support.assign(grid.values.size(), 1);
  return grid;
}

Grid3 cube() {
  // u = 0.1, 0.2, ... 0.8 in row-major order.
  return make_grid({100, 10000}, {10, 1000}, {1, 100}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8});
}

std::size_t at(Dtype dtype) { return static_cast<std::size_t>(dtype); }
std::size_t at(GemmPass pass) { return static_cast<std::size_t>(pass); }

TEST(Grid, NodesAreExactAndLastAxisIsFastest) {
  const Grid3 grid = cube();
  EXPECT_NEAR(grid.at(100, 10, 1).value, 0.1, 1e-12);
  EXPECT_NEAR(grid.at(100, 10, 100).value, 0.2, 1e-12);
  EXPECT_NEAR(grid.at(100, 1000, 1).value, 0.3, 1e-12);
  EXPECT_NEAR(grid.at(10000, 10, 1).value, 0.5, 1e-12);
  EXPECT_NEAR(grid.at(10000, 1000, 100).value, 0.8, 1e-12);
}

TEST(Grid, MidpointsAreGeometricMeans) {
  // Half way in logs along one axis: sqrt(100 * 10000) = 1000, and sqrt(0.1 * 0.5) = 0.2236.
  const Grid3 grid = cube();
  EXPECT_NEAR(grid.at(1000, 10, 1).value, std::sqrt(0.1 * 0.5), 1e-12);
  // The centre: the geometric mean of all eight.
  double product = 1;
  for (double u : {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}) product *= u;
  EXPECT_NEAR(grid.at(1000, 100, 10).value, std::pow(product, 1.0 / 8), 1e-12);
}

TEST(Grid, OutsideHoldsTheEdgeAndSaysSo) {
  const Grid3 grid = cube();
  const Known inside = grid.at(1000, 100, 10), outside = grid.at(1e9, 1e9, 1e9);
  EXPECT_NEAR(outside.value, 0.8, 1e-12);
  EXPECT_NEAR(grid.at(0, 10, 1).value, 0.1, 1e-12);
  EXPECT_EQ(inside.basis, Basis::interpolated);
  EXPECT_EQ(outside.basis, Basis::scaled);
  EXPECT_GT(outside.error, inside.error);
}

TEST(Grid, NodesThatNoPointPinnedAreScaled) {
  Grid3 grid = cube();
  grid.basis = Basis::measured;
  EXPECT_EQ(grid.at(100, 10, 1).basis, Basis::measured);
  EXPECT_EQ(grid.at(150, 10, 1).basis, Basis::interpolated);
  grid.support.assign(8, 0);
  EXPECT_EQ(grid.at(100, 10, 1).basis, Basis::scaled);
  EXPECT_NEAR(grid.at(100, 10, 1).error, 2 * grid.error, 1e-12);
}

TEST(Grid, SingleNodeAxes) {
  const Grid3 grid = make_grid({512, 4096}, {128}, {64}, {0.2, 0.6});
  EXPECT_NEAR(grid.at(4096, 128, 64).value, 0.6, 1e-12);
  EXPECT_NEAR(grid.at(4096, 192, 8).value, 0.6, 1e-12);
  EXPECT_EQ(grid.at(4096, 192, 8).basis, Basis::scaled);
}

TEST(Grid, StaysBetweenItsNodes) {
  Random random(7);
  const Grid3 grid = cube();
  for (int i = 0; i < 2000; ++i) {
    const auto draw = [&] { return std::exp(14 * random.uniform() - 2); };
    const double u = grid.at(draw(), draw(), draw()).value;
    EXPECT_GE(u, 0.1 - 1e-12);
    EXPECT_LE(u, 0.8 + 1e-12);
  }
}

TEST(Profile, PassesFallBackToForward) {
  Profile p;
  p.gemm[at(Dtype::bf16)][at(GemmPass::forward)] = cube();
  const Known forward = p.gemm_utilisation(Dtype::bf16, GemmPass::forward, 1000, 100, 10);
  const Known wgrad = p.gemm_utilisation(Dtype::bf16, GemmPass::wgrad, 1000, 100, 10);
  EXPECT_EQ(forward.basis, Basis::interpolated);
  EXPECT_EQ(wgrad.value, forward.value);
  EXPECT_EQ(wgrad.basis, Basis::scaled);
  EXPECT_GT(wgrad.error, forward.error);
}

TEST(Profile, DtypesFallBackThroughFp8ToBf16) {
  Profile p;
  Grid3 bf16 = cube();
  p.gemm[at(Dtype::bf16)][at(GemmPass::forward)] = bf16;
  const auto ask = [&](Dtype d) { return p.gemm_utilisation(d, GemmPass::forward, 100, 10, 1); };
  EXPECT_NEAR(ask(Dtype::fp8_block).value, 0.1, 1e-12);
  EXPECT_EQ(ask(Dtype::fp8_block).basis, Basis::assumed);
  EXPECT_EQ(ask(Dtype::nvfp4).basis, Basis::assumed);
  p.gemm[at(Dtype::fp8_tensor)][at(GemmPass::forward)] = make_grid({100}, {10}, {1}, {0.77});
  EXPECT_NEAR(ask(Dtype::fp8_block).value, 0.77, 1e-12);
  EXPECT_EQ(ask(Dtype::fp8_block).basis, Basis::scaled);
  EXPECT_NEAR(ask(Dtype::nvfp4).value, 0.77, 1e-12);
  EXPECT_NEAR(ask(Dtype::bf16).value, 0.1, 1e-12);
}

TEST(Profile, GroupedFallsBackToDense) {
  Profile p;
  p.gemm[at(Dtype::bf16)][at(GemmPass::forward)] = cube();
  EXPECT_EQ(p.grouped_utilisation(Dtype::bf16, GemmPass::forward, 100, 10, 1).basis, Basis::scaled);
  p.grouped_gemm[at(Dtype::bf16)][at(GemmPass::forward)] = make_grid({100}, {10}, {1}, {0.33});
  EXPECT_NEAR(p.grouped_utilisation(Dtype::bf16, GemmPass::forward, 100, 10, 1).value, 0.33, 1e-12);
}

// Groups of one launch share the SMs like one GEMM of all rows, in whole tiles; a loop does not.
TEST(Profile, OneLaunchRunsAtTheDenseRateOfAllRows) {
  Profile p;
  p.gemm[at(Dtype::bf16)][at(GemmPass::forward)] = make_grid({128, 1024}, {10}, {1}, {0.1, 0.8});
  const auto rate = [&](GroupedKernel kernel, double rows) {
    return p.grouped_rate(kernel, Dtype::bf16, GemmPass::forward, 8, rows, 10, 1);
  };
  const auto set = [&](GroupedKernel kernel, GroupedLaunch launch) {
    launch.efficiency = 0.5, launch.weight_rate = 0.7, launch.launch_s = 2e-6;
    p.grouped_launch[static_cast<std::size_t>(kernel)][at(Dtype::bf16)] = launch;
  };
  set(GroupedKernel::strided, {});
  set(GroupedKernel::loop, {});
  GroupedLaunch tiled;
  tiled.tile_rows = 128;
  set(GroupedKernel::cutlass, tiled);
  GroupedLaunch capped;
  capped.ceiling = 0.3;
  set(GroupedKernel::batched, capped);
  EXPECT_NEAR(rate(GroupedKernel::strided, 128).utilisation.value, 0.5 * 0.8, 1e-12);
  EXPECT_EQ(rate(GroupedKernel::strided, 128).weight_rate, 0.7);
  EXPECT_EQ(rate(GroupedKernel::strided, 128).launch_s, 2e-6);
  EXPECT_NEAR(rate(GroupedKernel::loop, 128).utilisation.value, 0.5 * 0.1, 1e-12);
  EXPECT_NEAR(rate(GroupedKernel::cutlass, 96).utilisation.value, 0.5 * 0.8 * 96 / 128, 1e-12);
  EXPECT_NEAR(rate(GroupedKernel::batched, 128).utilisation.value, 0.3, 1e-12);
  // Another format's launch stands in; without any there is a default, and both say so.
  EXPECT_EQ(p.grouped_rate(GroupedKernel::loop, Dtype::mxfp8, GemmPass::forward, 8, 128, 10, 1)
                .utilisation.basis,
            Basis::assumed);
  EXPECT_EQ(Profile{}
                .grouped_rate(GroupedKernel::loop, Dtype::bf16, GemmPass::forward, 8, 128, 10, 1)
                .utilisation.basis,
            Basis::assumed);
}

TEST(Profile, PriorsAreSaturatingAndAssumed) {
  const Profile p;
  const auto u = [&](double m) {
    return p.gemm_utilisation(Dtype::bf16, GemmPass::forward, m, 4096, 4096).value;
  };
  EXPECT_LT(u(64), u(512));
  EXPECT_LT(u(512), u(8192));
  EXPECT_LT(u(1e9), 0.8);
  EXPECT_EQ(p.gemm_utilisation(Dtype::bf16, GemmPass::forward, 1, 1, 1).basis, Basis::assumed);
  EXPECT_LT(p.attention_utilisation(true, 4096, 128, 64).value,
            p.attention_utilisation(false, 4096, 128, 64).value);
}

TEST(Constants, SpecsAreSaneAndUnique) {
  std::vector<std::string> keys;
  for (const ConstantSpec& spec : constant_specs()) {
    keys.emplace_back(spec.key);
    EXPECT_LE(spec.low, spec.value) << spec.key;
    EXPECT_LE(spec.value, spec.high) << spec.key;
    EXPECT_LT(spec.low, spec.high) << spec.key;
    EXPECT_GT(std::string(spec.meaning).size(), 10u) << spec.key;
    // A key that ends in _s is in seconds, and no other is.
    const std::string& key = keys.back();
    EXPECT_EQ(key.substr(key.size() - 2) == "_s", std::string(spec.unit) == "s") << key;
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST(Constants, EveryProfileHasEveryKey) {
  Result<Cluster> cluster = load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(cluster);
  const Profile p = assumed_profile(*cluster);
  for (const ConstantSpec& spec : constant_specs())
    EXPECT_EQ(p.constant(spec.key), spec.value) << spec.key;
  EXPECT_DEATH(p.constant("no_such_constant"), "broken invariant");
}

TEST(Profile, MadeForComparesWholeWords) {
  Profile p;
  Gpu b200, gb200;
  b200.name = "B200 SXM";
  gb200.name = "GB200 NVL72";
  p.provenance.gpu = "NVIDIA GB200";
  EXPECT_TRUE(made_for(p, gb200));
  EXPECT_FALSE(made_for(p, b200));
  p.provenance.gpu = "NVIDIA B200";
  EXPECT_TRUE(made_for(p, b200));
  EXPECT_FALSE(made_for(p, gb200));
}

}  // namespace
}  // namespace trifold::hardware

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "calibrate/fit/points.h"
#include "calibrate/fit/profile_fit.h"
#include "calibrate/fit/solve.h"
#include "calibrate/layer/predict.h"
#include "hardware/cluster.h"

// Our own run on 2x H200 (README.md here): how well the fit predicts points that it did not see,
// and whole MoE layers from parts. Bounds are the where it has them; where the run misses
// one, what it reached, which may only be tightened.

namespace trifold {
namespace {

const std::string kFolder =
    std::string(TRIFOLD_SOURCE_DIR) + "/tests/observations/h200x2-2026-11-30";

struct OwnRun {
  hardware::Cluster cluster;
  fit::FittedProfile fitted;
};

const OwnRun& own_run() {
  static const OwnRun once = [] {
    const auto points = fit::read_points(kFolder + "/points.jsonl");
    auto cluster = hardware::load_cluster("dgx-h200", TRIFOLD_SOURCE_DIR);
    const auto base = hardware::load_profile("h200", TRIFOLD_SOURCE_DIR);
    EXPECT_TRUE(points && cluster && base);
    if (!points || !cluster || !base) return OwnRun{};
    auto fitted = fit::fit_points(*points, *cluster, *base, "h200-measured");
    EXPECT_TRUE(fitted) << fitted.error().to_string();
    return fitted ? OwnRun{std::move(*cluster), std::move(*fitted)} : OwnRun{};
  }();
  return once;
}

TEST(MeasuredH200, LeftOutPointsAreFound) {
  const OwnRun& r = own_run();
  ASSERT_GE(r.fitted.reports.size(), 19u);
  int surfaces = 0, launches = 0;
  for (const fit::ErrorReport& report : r.fitted.reports) {
    if (report.family.rfind("grouped bf16", 0) == 0 && !report.gated) {
      ++launches;
      EXPECT_LE(report.point_median, 0.08) << report.family;
    }
    if (!report.gated) continue;  // one efficiency for many kernels: reported, not held to this
    ++surfaces;
    // The bounds are 5, 15 and 10 %; this run does better.
    EXPECT_LE(report.point_median, 0.035) << report.family;
    EXPECT_LE(report.point_p90, 0.15) << report.family;
    EXPECT_LE(report.curve_median, 0.06) << report.family;
    EXPECT_LE(report.curve_p90, 0.17) << report.family;
    EXPECT_LE(report.holdout_median, 0.06) << report.family;
    EXPECT_LE(report.noise, 0.01) << report.family;
  }
  EXPECT_EQ(surfaces, 16);
  EXPECT_EQ(launches, 3);  // a loop, a strided batch, cuBLAS' grouped call
  EXPECT_TRUE(fit::gate(r.fitted.reports).empty());
}

TEST(MeasuredH200, LayersFromParts) {
  const OwnRun& r = own_run();
  const auto compared = calibrate::compare_layers(kFolder + "/layer.jsonl", r.cluster,
                                                  r.fitted.benchmark, TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(compared) << compared.error().to_string();
  ASSERT_EQ(compared->size(), 48u);  // 3 models x EP 1, 2 x 4 passes x (launches, graph)
  for (const calibrate::LayerComparison& c : *compared) {
    const std::string name = c.measured.model + " EP " + std::to_string(c.measured.ep) + " " +
                             c.measured.pass + (c.measured.graph ? " graph" : "");
    const double worst = std::max(std::abs(c.closed_error()), std::abs(c.simulated_error()));
    // Wanted: 10 % one after the other, 15 % overlapped.
    EXPECT_LE(worst, c.measured.overlapped() ? 0.07 : 0.06) << name;
  }
}

TEST(MeasuredH200, TheCommittedProfileIsThisRuns) {
  const OwnRun& r = own_run();
  const auto committed = hardware::load_profile("h200-measured", TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(committed) << committed.error().to_string();
  EXPECT_EQ(committed->provenance.driver, r.fitted.profile.provenance.driver);
  EXPECT_EQ(committed->provenance.date, "2026-11-30");
  for (const double m : {256.0, 1024.0, 8192.0}) {
    const auto u = [&](const hardware::Profile& p) {
      return p.gemm_utilisation(hardware::Dtype::bf16, hardware::GemmPass::forward, m, 4096, 7168);
    };
    EXPECT_NEAR(u(*committed).value / u(r.fitted.profile).value, 1, 0.02) << m;
    EXPECT_LE(u(*committed).basis, hardware::Basis::interpolated);
  }
}

}  // namespace
}  // namespace trifold

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "calibrate/fit/curve_fit.h"
#include "calibrate/fit/profile_fit.h"
#include "calibrate/fit/solve.h"

namespace trifold::fit {
namespace {

using hardware::Basis;
using hardware::Collective;
using hardware::Dtype;
using hardware::GemmPass;

// A machine whose costs are known.
constexpr SaturatingPrior kTruth{0.72, {240, 130, 320}};
constexpr double kAlpha = 9e-6, kBandwidth = 2.6e11;

hardware::Cluster cluster(const std::string& gpu) {
  hardware::Cluster c;
  c.name = "test";
  c.gpu.name = gpu;
  c.gpu.bf16 = FlopsPerSecond(1e15);
  c.gpu.fp8 = FlopsPerSecond(2e15);
  c.gpu.hbm_bandwidth = BytesPerSecond(4e12);
  c.gpu.sms = 132;
  c.scaleup_bandwidth = BytesPerSecond(450e9);
  c.scaleout_bandwidth = BytesPerSecond(50e9);
  c.host_bandwidth = BytesPerSecond(64e9);
  return c;
}

Point point(PointFamily family, const std::string& op, std::array<double, 4> shape, double us) {
  Point p;
  p.family = family;
  p.op = op;
  p.shape = shape;
  p.us = us;
  p.us_p10 = us * 0.99;
  p.us_p90 = us * 1.01;
  return p;
}

PointsFile measurements() {
  PointsFile file;
  file.provenance.gpu = "NVIDIA T1000X";
  Random random(3);
  const auto noisy = [&] { return std::exp(0.01 * random.normal()); };
  for (double n : {1000, 2048, 3072, 6000, 14336})
    for (double k : {768, 1536, 4096, 7168, 12000})
      for (double m : {128, 384, 1024, 3000, 8192})
        file.points.push_back(point(PointFamily::gemm, "forward", {m, n, k, 0},
                                    2e6 * m * n * k / (1e15 * kTruth.at(m, n, k)) * noisy()));
  for (double bytes = 1024; bytes <= 1 << 29; bytes *= 2) {
    Point p = point(PointFamily::collective, "all_gather", {4, bytes, 0, 0},
                    1e6 * (kAlpha + bytes / kBandwidth) * noisy());
    p.variant = "stream";
    file.points.push_back(p);
  }
  // 4 kB/us at 100 us: 0.8 of 4 TB/s would be 320 MB; a hot point says 2 and must not count.
  for (int i = 0; i < 3; ++i)
    file.points.push_back(point(PointFamily::memory_bound, "permute", {3.2e8, 0, 0, 0}, 100));
  file.points.push_back(point(PointFamily::memory_bound, "permute", {8e8, 0, 0, 0}, 100));
  file.points.back().flags.insert(PointFlag::hot);
  return file;
}

TEST(FitPoints, RecoversAMachineItWasShown) {
  const hardware::Cluster c = cluster("T1000X");
  const auto fitted = fit_points(measurements(), c, hardware::assumed_profile(c), "here");
  ASSERT_TRUE(fitted) << fitted.error().to_string();
  const hardware::Profile& p = fitted->profile;
  std::vector<double> errors;
  for (double n : {1500, 2500, 5000, 9000})  // shapes that it never saw
    for (double k : {1000, 2000, 6000, 9000})
      for (double m : {200, 700, 2000, 5000}) {
        const hardware::Known u = p.gemm_utilisation(Dtype::bf16, GemmPass::forward, m, n, k);
        errors.push_back(std::abs(u.value / kTruth.at(m, n, k) - 1));
        EXPECT_LE(u.basis, Basis::scaled);
      }
  EXPECT_LT(quantile(errors, 0.5), 0.02);
  EXPECT_LT(quantile(errors, 1), 0.06);
  for (double bytes : {3000.0, 5e5, 3e7, 4e8}) {
    const double truth = kAlpha + bytes / kBandwidth;
    EXPECT_NEAR(p.collective_seconds(Collective::all_gather, 4, bytes).value / truth, 1, 0.05);
  }
  EXPECT_NEAR(p.constant("hbm_efficiency"), 0.8, 1e-9);
  EXPECT_EQ(p.constants.at("hbm_efficiency").basis, Basis::measured);
  EXPECT_EQ(p.provenance.gpu, "NVIDIA T1000X");
  EXPECT_TRUE(gate(fitted->reports).empty()) << error_table(fitted->reports);
}

TEST(FitPoints, TheProfileReadsBack) {
  const hardware::Cluster c = cluster("T1000X");
  const auto fitted = fit_points(measurements(), c, hardware::assumed_profile(c), "here");
  ASSERT_TRUE(fitted);
  const auto json = parse_json(hardware::dump_profile(fitted->profile), "p");
  ASSERT_TRUE(json);
  const auto again = hardware::read_profile(*json, "p");
  ASSERT_TRUE(again) << again.error().to_string();
  const auto u = [](const hardware::Profile& p) {
    return p.gemm_utilisation(Dtype::bf16, GemmPass::forward, 2000, 2500, 6000).value;
  };
  EXPECT_NEAR(u(*again) / u(fitted->profile), 1, 1e-4);
}

TEST(FitPoints, RefusesAnotherGpu) {
  const hardware::Cluster other = cluster("H200");
  const auto fitted = fit_points(measurements(), other, hardware::assumed_profile(other), "here");
  ASSERT_FALSE(fitted);
  EXPECT_NE(fitted.error().message.find("NVIDIA T1000X"), std::string::npos);
  const hardware::Cluster right = cluster("T1000X");
  EXPECT_FALSE(fit_points(measurements(), right, hardware::assumed_profile(other), "here"))
      << "the base was made on another GPU";
}

TEST(FitPoints, BadPointsDoNotCount) {
  PointsFile file = measurements();
  for (Point& p : file.points)
    if (p.family == PointFamily::gemm) {
      Point wrong = p;
      wrong.us /= 10;
      wrong.flags.insert(PointFlag::bad);
      file.points.push_back(wrong);
      if (file.points.size() > 400) break;
    }
  const hardware::Cluster c = cluster("T1000X");
  const auto fitted = fit_points(file, c, hardware::assumed_profile(c), "here");
  ASSERT_TRUE(fitted);
  const double u =
      fitted->profile.gemm_utilisation(Dtype::bf16, GemmPass::forward, 2000, 2500, 6000).value;
  EXPECT_NEAR(u / kTruth.at(2000, 2500, 6000), 1, 0.05);
}

TEST(FitGrid, LearnsADepartureFromThePriorAndSaysSo) {
  std::vector<Sample> samples;
  int curve = 0;
  for (double n : {512, 2048, 8192})
    for (double k : {512, 4096}) {
      ++curve;
      for (double m : {128, 512, 2048, 8192})
        samples.push_back({m, n, k, kTruth.at(m, n, k), 1, curve});
    }
  const std::array<std::vector<double>, 3> nodes = {
      {{128, 512, 2048, 8192}, {512, 2048, 8192}, {512, 4096}}};
  const GridFit fit = fit_grid("t", samples, nodes, kTruth, Basis::measured);
  // The prior is the truth: nothing is left to explain, with or without a point.
  EXPECT_LT(fit.report.point_p90, 1e-9);
  EXPECT_LT(fit.report.curve_p90, 1e-9);
  EXPECT_LT(fit.report.holdout_p90, 1e-9);
  // A prior 10 % too low: a left-out point is predicted from its neighbours' departure.
  SaturatingPrior low = kTruth;
  low.u_max *= 0.9;
  const GridFit learned = fit_grid("t", samples, nodes, low, Basis::measured);
  EXPECT_LT(learned.report.fit_median, 0.01);
  EXPECT_LT(learned.report.point_median, 0.03);
  EXPECT_GT(learned.report.point_median, learned.report.fit_median);
}

TEST(FitCurve, IsMonotoneAndTakesMedians) {
  Timings t;
  t[1024] = {10e-6};
  t[2048] = {9e-6};                  // faster than the smaller size: pooled
  t[4096] = {12e-6, 100e-6, 11e-6};  // median 12
  const hardware::CollectiveCurve c = fit_curve(8, t, Basis::measured);
  ASSERT_EQ(c.seconds.size(), 3u);
  EXPECT_NEAR(c.seconds[0], std::sqrt(10e-6 * 9e-6), 1e-12);  // mean of logs
  EXPECT_EQ(c.seconds[0], c.seconds[1]);
  EXPECT_NEAR(c.seconds[2], 12e-6, 1e-15);
}

}  // namespace
}  // namespace trifold::fit

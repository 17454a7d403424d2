// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/scaleout_fit.h"

#include <gtest/gtest.h>

namespace trifold::fit {
namespace {

using hardware::Collective;

constexpr double kNic = 50e9, kEfficiency = 0.85, kLatency = 18e-6;

// 16 ranks in 2 domains of 8: all-reduce moves 2 S 15/16 over 8 NICs in 2 x 2 steps, the all-to-all
// half of S over one NIC in one.
std::vector<ScaleoutSample> samples(double factor_of_one = 1) {
  std::vector<ScaleoutSample> out;
  for (const double bytes : {1e4, 1e6, 1e8, 1e9}) {
    out.push_back({Collective::all_reduce, 16, 2, bytes,
                   2 * bytes * 15 / 16 / (8 * kNic * kEfficiency) + 4 * kLatency});
    out.push_back(
        {Collective::all_to_all, 16, 2, bytes, bytes / 2 / (kNic * kEfficiency) + kLatency});
    out.push_back({Collective::send_recv, 2, 2, bytes, bytes / (kNic * kEfficiency) + kLatency});
  }
  out[6].seconds *= factor_of_one;
  return out;
}

TEST(Scaleout, InvertsWhatCostSays) {
  const auto fit = fit_scaleout(samples(), kNic);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->efficiency, kEfficiency, 1e-4);
  EXPECT_NEAR(fit->latency_s, kLatency, 1e-8);
  EXPECT_LT(fit->report.worst, 1e-3);
  EXPECT_EQ(fit->report.samples, 12);
}

TEST(Scaleout, ItsReportSeesAPointThatDisagrees) {
  const auto fit = fit_scaleout(samples(2), kNic);
  ASSERT_TRUE(fit);
  // The others say half of what was measured.
  EXPECT_NEAR(fit->report.worst, 0.5, 0.05);
  EXPECT_LT(fit->report.point_median, 0.15);
}

TEST(Scaleout, NeedsTwoSizesAndFourPoints) {
  std::vector<ScaleoutSample> few = samples();
  few.resize(3);
  EXPECT_FALSE(fit_scaleout(few, kNic));
  std::vector<ScaleoutSample> one_size = samples();
  for (ScaleoutSample& s : one_size) s.bytes = 1e6;
  EXPECT_FALSE(fit_scaleout(one_size, kNic));
  EXPECT_FALSE(fit_scaleout(samples(), 0));
}

}  // namespace
}  // namespace trifold::fit

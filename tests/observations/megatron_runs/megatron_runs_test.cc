// SPDX-License-Identifier: Apache-2.0

// Plans of ours that Megatron-LM ran on two H200s: peak memory within 5 % of what its allocator
// reported.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "estimate/estimate.h"
#include "launch/compare.h"

namespace trifold {
namespace {

const std::string kFolder = std::string(TRIFOLD_SOURCE_DIR) + "/tests/observations/megatron_runs/";

class MegatronRun : public testing::TestWithParam<const char*> {};

TEST_P(MegatronRun, PeakMemoryIsPredicted) {
  const auto job = job::load_job(kFolder + GetParam() + ".json", {TRIFOLD_SOURCE_DIR, true});
  ASSERT_TRUE(job) << job.error().to_string();
  const auto estimate = estimate::estimate_job(*job, TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(estimate) << estimate.error().to_string();
  const auto text = read_text(kFolder + GetParam() + ".log");
  ASSERT_TRUE(text) << text.error().to_string();
  const auto log = launch::read_training_log(*text, GetParam());
  ASSERT_TRUE(log) << log.error().to_string();
  EXPECT_GE(log->iterations.size(), 4u);
  double measured = 0;  // rank 0: the first stage
  for (const launch::LogMemory& m : log->memory)
    if (m.rank == 0) measured = std::max(measured, m.peak_bytes);
  ASSERT_GT(measured, 0);
  const double predicted = static_cast<double>(estimate->memory.stages.front().peak.value());
  RecordProperty("relative_error", std::to_string(predicted / measured - 1));
  EXPECT_NEAR(predicted / measured, 1.0, 0.05);
}

INSTANTIATE_TEST_SUITE_P(TwoH200, MegatronRun,
                         testing::Values("dense_pp2", "moe_ep2", "moe_pp2", "moe_ep2_deep",
                                         "moe_ep2_merged"));

}  // namespace
}  // namespace trifold

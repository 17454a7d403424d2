// SPDX-License-Identifier: Apache-2.0
#include "launch/compare.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace trifold::launch {
namespace {

std::string iteration(int number, int planned, double ms, int batch = 8) {
  return " [2026-01-01 00:00:00.000000] iteration " + std::to_string(number) + "/ " +
         std::to_string(planned) +
         " | consumed samples: 8 | elapsed time per iteration (ms): " + std::to_string(ms) +
         " | throughput per GPU (TFLOP/s/GPU): 100.0 | global batch size: " +
         std::to_string(batch) +
         " | number of skipped iterations:   0 | number of nan iterations:   0 |\n";
}

// 9 iterations: a third is warm-up, so 4..9 count: 600, 600, 610, 620, 630, 640 ms, median 615.
std::string log_text() {
  std::string text =
      "using world size: 2, data-parallel size: 2, context-parallel size: 1, hierarchical "
      "context-parallel sizes: None, tensor-model-parallel size: 1, pipeline-model-parallel size: "
      "1\n";
  const double ms[] = {9000, 3000, 1000, 600, 640, 610, 630, 620, 600};
  for (int i = 0; i < 9; ++i) text += iteration(i + 1, 9, ms[i]);
  return text +
         "[Rank 0] (after 2 iterations) memory (MB) | allocated: 4190.28 | max allocated: 6144.00 "
         "| "
         "reserved: 6646.00 | max reserved: 6656.00\n";
}

Prediction prediction() {
  Prediction p;
  p.gpus = 2, p.tp = 1, p.cp = 1, p.pp = 1, p.global_batch = 8;
  p.step_time_s = 0.5, p.low_s = 0.45, p.high_s = 0.55;
  p.peak_bytes = 6.0 * 1024 * 1024 * 1024;
  p.terms = {{"compute", 0.35}, {"exposed ep", 0.05}, {"bubble", 0.0}};
  return p;
}

TEST(Compare, SaysHowFarOffAndWhatCouldExplainIt) {
  const Result<TrainingLog> log = read_training_log(log_text(), "train.log");
  ASSERT_TRUE(log);
  const Result<Comparison> c = compare(prediction(), *log);
  ASSERT_TRUE(c) << c.error().to_string();
  EXPECT_EQ(c->warmup, 3);
  ASSERT_FALSE(c->deviations.empty());
  EXPECT_NEAR(c->deviations[0].measured, 0.615, 1e-12);
  EXPECT_NEAR(c->time_factor, 1.23, 1e-12);
  EXPECT_FALSE(c->inside);
  // 0.115 s too slow: compute x1.33, exposed ep x3.3; an empty bubble explains nothing.
  ASSERT_EQ(c->suspects.size(), 2u);
  EXPECT_EQ(c->suspects[0].name, "compute");
  EXPECT_NEAR(c->suspects[1].times, 3.3, 1e-9);
  EXPECT_NEAR(c->memory_factor, 1.0, 1e-12);  // 6144 MiB are 6 GiB
}

TEST(Compare, ALogOfAnotherRunIsRefused) {
  const Result<TrainingLog> log = read_training_log(log_text(), "train.log");
  Prediction p = prediction();
  p.gpus = 4;
  const Result<Comparison> c = compare(p, *log);
  ASSERT_FALSE(c);
  EXPECT_NE(c.error().message.find("another run"), std::string::npos);
}

TEST(Compare, ATruncatedLogIsOneClearError) {
  const std::string whole = log_text();
  const std::size_t third = whole.find("iteration 3/");
  const Result<TrainingLog> cut = read_training_log(whole.substr(0, third + 40), "train.log");
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->iterations.size(), 2u);
  EXPECT_TRUE(cut->cut_short);
  const Result<Comparison> c = compare(prediction(), *cut);
  ASSERT_FALSE(c);
  EXPECT_NE(c.error().message.find("breaks off after 2"), std::string::npos);
  EXPECT_FALSE(read_training_log("hello\n", "train.log"));
}

// Lines of a real run on two H200 (shared/data/megatron_h200x2).
TEST(Compare, ReadsRealLogs) {
  const std::string directory =
      std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/megatron_h200x2/";
  const Result<std::string> text = read_text(directory + "moe_ep2.txt");
  if (!text) GTEST_SKIP() << directory << " is absent";
  const Result<TrainingLog> log = read_training_log(*text, "moe_ep2.txt");
  ASSERT_TRUE(log) << log.error().to_string();
  EXPECT_EQ(log->gpus, 2);
  ASSERT_EQ(log->iterations.size(), 8u);
  EXPECT_EQ(log->iterations[0].planned, 8);
  EXPECT_NEAR(log->iterations[2].seconds, 0.4973, 1e-12);
  EXPECT_EQ(log->iterations[2].global_batch, 8);
  ASSERT_EQ(log->memory.size(), 2u);
  EXPECT_NEAR(log->memory[1].peak_bytes, 6409.32 * 1024 * 1024, 1);
  for (const char* other : {"dense_pp2.txt", "moe_pp2.txt"})
    EXPECT_TRUE(read_training_log(*read_text(directory + other), other)) << other;
}

}  // namespace
}  // namespace trifold::launch

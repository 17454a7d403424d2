// SPDX-License-Identifier: Apache-2.0

// The error table against published runs, with bounds that only tighten: lower them when a change
// earns it.

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>

#include "observe/ranking.h"
#include "observe/validation_text.h"

namespace trifold::observe {
namespace {

class Validation : public testing::Test {
 protected:
  static void predict(const char* name, ObservationSet& set, std::vector<Row>& rows) {
    auto loaded = load_observations(std::string(TRIFOLD_SOURCE_DIR) + "/tests/observations/" + name,
                                    TRIFOLD_SOURCE_DIR);
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    set = std::move(*loaded);
    auto predicted = predict_all(set.observations, TRIFOLD_SOURCE_DIR);
    ASSERT_TRUE(predicted) << predicted.error().to_string();
    rows = std::move(*predicted);
  }
};

// Records share prices only where cluster and profile are the same, whatever they are called.
TEST_F(Validation, ARecordWithAnOverriddenClusterHasItsOwnPrices) {
  ObservationSet set;
  std::vector<Row> rows;
  predict("training_runs.json", set, rows);
  const auto across = std::find_if(rows.begin(), rows.end(), [](const Row& row) {
    const job::Job& j = row.observation->job;
    return row.usable && j.layout.ep > j.cluster.gpus_used_per_domain;
  });
  ASSERT_NE(across, rows.end());
  std::vector<Observation> two(2, *across->observation);
  two[1].job.cluster.scaleout_bandwidth = two[0].job.cluster.scaleout_bandwidth / 4;
  two[1].job.cluster_origin.fingerprint ^= 1;
  const auto predicted = predict_all(two, TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(predicted);
  EXPECT_GT((*predicted)[1].step_time_s, 1.01 * (*predicted)[0].step_time_s);
}

TEST_F(Validation, PublishedTrainingRuns) {
  ObservationSet set;
  std::vector<Row> rows;
  predict("training_runs.json", set, rows);
  // 325 records: 50 of architectures that cannot be priced.
  EXPECT_EQ(set.observations.size() + set.skipped.size(), 325u);
  EXPECT_EQ(set.skipped.size(), 50u);
  const Summary s = summarize(scored(rows));
  EXPECT_GE(s.count, 170);
  EXPECT_LE(s.mean_absolute_error, 0.037);
  EXPECT_LE(s.median_absolute_error, 0.028);
  EXPECT_LE(s.p90_absolute_error, 0.07);
  EXPECT_LE(std::abs(s.bias), 0.005);
  EXPECT_GE(s.interval_coverage, 0.72);
  EXPECT_LE(s.interval_coverage, 0.88);
  const Ranking r = rank(ranked_groups(rows));
  EXPECT_EQ(r.chosen_within_3_percent, r.groups);
  EXPECT_GE(r.stated_groups, 15);
  EXPECT_EQ(r.best_within_3_percent, r.stated_groups);
  EXPECT_GE(r.clear_ordered, 0.97 * r.clear_pairs);
  EXPECT_LE(r.mean_regret, 0.006);
  std::printf("%s", validation_text(rows, set.skipped, {false, false}).c_str());
}

TEST_F(Validation, MemoryOfOneNode) {
  ObservationSet set;
  std::vector<Row> rows;
  predict("single_node_runs.json", set, rows);
  double sum = 0, worst = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (!row.has_memory_error) continue;
    sum += std::abs(row.memory_relative_error);
    worst = std::max(worst, std::abs(row.memory_relative_error));
    ++count;
  }
  ASSERT_EQ(count, 22);
  EXPECT_LE(sum / count, 0.006);
  EXPECT_LE(worst, 0.015);
}

TEST_F(Validation, TheLadderOfDeepSeekOnGb200KeepsItsSigns) {
  ObservationSet set;
  std::vector<Row> rows;
  predict("training_runs.json", set, rows);
  std::vector<double> ladder;  // tokens/s/GPU by step
  for (const Row& row : rows)
    if (!row.observation->ladder.empty()) ladder.push_back(row.tokens_per_s_per_gpu);
  ASSERT_EQ(ladder.size(), 13u);
  // Steps that change a field: 3 DeepEP, 4 less recompute, 5 graphs, 7 processes bound, 10
  // HybridEP.
  for (std::size_t step : {3u, 4u, 5u, 7u, 10u})
    EXPECT_GT(ladder[step], ladder[step - 1]) << "step " << step;
  // Published: 494.46 to 970.01 TFLOP/s.
  EXPECT_NEAR(ladder.back() / ladder.front(), 970.01 / 494.46, 0.2 * 970.01 / 494.46);
}

}  // namespace
}  // namespace trifold::observe

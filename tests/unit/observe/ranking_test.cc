// SPDX-License-Identifier: Apache-2.0
#include "observe/ranking.h"

#include <gtest/gtest.h>

#include "hardware/catalogue.h"
#include "model/catalogue.h"

namespace trifold::observe {
namespace {

class Ranked : public testing::Test {
 protected:
  Ranked() {
    base_.model_name = "qwen3-30b-a3b";
    base_.job.model = model::load_model("qwen3-30b-a3b", TRIFOLD_SOURCE_DIR).value();
    base_.job.cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
    base_.job.gpus = 16;
    rows_.reserve(8);
    observations_.reserve(8);
  }

  // A record with expert parallelism `ep`; tokens/s/GPU.
  Observation& add(int ep, double measured, double predicted) {
    observations_.push_back(base_);
    Observation& o = observations_.back();
    o.job.layout.ep = ep;
    Row row;
    row.observation = &o;
    row.usable = row.has_error = true;
    row.tokens_per_s_per_gpu = predicted;
    row.relative_error = predicted / measured - 1;
    rows_.push_back(row);
    return o;
  }

  Observation base_;
  std::vector<Observation> observations_;
  std::vector<Row> rows_;
};

// Measured 100, 104, 80; predicted order: the first, the third, the second. Running the first loses
// 4 of 104. All three pairs are clear but the first: 4 % apart. (100, 80) is in order, (104, 80) is
// not, (100, 104) is not.
TEST_F(Ranked, RegretAndPairs) {
  add(2, 100, 110);
  add(4, 104, 85);
  add(8, 80, 90);
  const auto groups = ranked_groups(rows_);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_NEAR(groups[0].regret, 4.0 / 104, 1e-12);
  EXPECT_EQ(groups[0].best->job.layout.ep, 4);
  EXPECT_EQ(groups[0].chosen->job.layout.ep, 2);
  const Ranking r = rank(groups);
  EXPECT_EQ(r.groups, 1);
  EXPECT_EQ(r.best_found, 0);
  EXPECT_EQ(r.chosen_within_3_percent, 0);
  EXPECT_EQ(r.stated_groups, 1);
  EXPECT_EQ(r.best_within_3_percent, 0);
  EXPECT_NEAR(r.worst_shortfall, 1 - 85.0 / 110, 1e-12);  // ep 4 ran fastest, ep 2 is predicted to
  EXPECT_EQ(r.pairs, 3);
  EXPECT_EQ(r.pairs_ordered, 1);
  EXPECT_EQ(r.clear_pairs, 2);
  EXPECT_EQ(r.clear_ordered, 1);
}

// Repeats of one Job count once, as their mean: 90 and 110 beside 99.
TEST_F(Ranked, RepeatsAreOneJob) {
  add(2, 90, 100);
  add(2, 110, 100);
  add(4, 99, 98);
  const Ranking r = rank(ranked_groups(rows_));
  EXPECT_EQ(r.pairs, 1);
  EXPECT_EQ(r.best_found, 1);
}

TEST_F(Ranked, WhatIsTrainedDivides) {
  add(2, 100, 100);
  add(4, 90, 110).job.techniques.routing.balance = job::Balance::natural;
  add(8, 95, 120).job.techniques.routing.capacity_factor = 1;
  EXPECT_TRUE(ranked_groups(rows_).empty());
}

}  // namespace
}  // namespace trifold::observe

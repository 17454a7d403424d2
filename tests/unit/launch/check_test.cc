// SPDX-License-Identifier: Apache-2.0
#include "launch/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "launch/rules.h"

namespace trifold::launch {
namespace {

// A small dense plan on 8 GPUs: tp 2 x pp 2, dp 2.
Arguments small_plan() {
  return *parse_arguments({"--num-layers", "8", "--hidden-size", "1024", "--num-attention-heads",
                           "16", "--seq-length", "2048", "--max-position-embeddings", "2048",
                           "--micro-batch-size", "1", "--global-batch-size", "16",
                           "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size",
                           "2", "--bf16"});
}

std::vector<Finding> check(const Arguments& arguments,
                           MegatronVersion version = MegatronVersion::main,
                           const Environment& environment = {
                               {"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}) {
  CheckOptions options;
  options.version = version;
  options.gpus = 8;
  return check_arguments(arguments, environment, options);
}

const Finding* find(const std::vector<Finding>& findings, const std::string& rule) {
  for (const Finding& f : findings)
    if (f.rule == rule) return &f;
  return nullptr;
}

TEST(Check, ASmallDensePlanIsAccepted) { EXPECT_TRUE(check(small_plan()).empty()); }

TEST(Check, AMisspeltFlagIsNamedWithTheNearestOne) {
  Arguments plan = small_plan();
  plan.add("--num-expert", 8);
  const std::vector<Finding> findings = check(plan);
  ASSERT_NE(find(findings, "TRN-03"), nullptr);
  EXPECT_EQ(find(findings, "TRN-03")->fix, "did you mean --num-experts?");
}

TEST(Check, AFlagOfAnotherVersionIsRefusedWithTheVersionsThatHaveIt) {
  Arguments plan = small_plan();
  plan.add("--moe-flex-dispatcher-num-sms", 24);
  EXPECT_TRUE(accepted(check(plan, MegatronVersion::v0_19)));
  const std::vector<Finding> findings = check(plan, MegatronVersion::v0_18);
  ASSERT_NE(find(findings, "TRN-03"), nullptr);
  EXPECT_EQ(find(findings, "TRN-03")->detail,
            "--moe-flex-dispatcher-num-sms exists in 0.19, main, dev, not in 0.18");
}

TEST(Check, ValuesAreCountedTypedAndChosenFromTheList) {
  Arguments plan = small_plan();
  plan.add("--swiglu", std::string("yes"));
  plan.add("--norm-epsilon", std::string("tiny"));
  plan.add("--normalization", std::string("BatchNorm"));
  plan.add("--lr");
  const std::vector<Finding> findings = check(plan);
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(),
                          [](const Finding& f) { return f.rule == "ARG-01"; }),
            2);  // --swiglu takes none, --lr takes one
  EXPECT_NE(find(findings, "ARG-02"), nullptr);
  EXPECT_NE(find(findings, "ARG-03"), nullptr);
}

TEST(Check, AFlagGivenTwiceCountsOnceAndIsReported) {
  Arguments plan = small_plan();
  plan.add("--num-layers", 7);  // odd: does not divide over two stages
  const std::vector<Finding> findings = check(plan);
  EXPECT_NE(find(findings, "PP-01"), nullptr);
  ASSERT_NE(find(findings, "ARG-04"), nullptr);
  EXPECT_EQ(find(findings, "ARG-04")->severity, Severity::warning);
}

TEST(Check, ConnectionsMatterBeforeBlackwellOnly) {
  EXPECT_FALSE(accepted(check(small_plan(), MegatronVersion::main, {})));
  CheckOptions blackwell;
  blackwell.gpus = 8;
  blackwell.arch = hardware::GpuArch::blackwell;
  EXPECT_TRUE(accepted(check_arguments(small_plan(), {}, blackwell)));
}

TEST(Check, TheTeLossIsRefusedSince018) {
  Arguments plan = small_plan();
  plan.add("--cross-entropy-loss-fusion");
  plan.add("--cross-entropy-fusion-impl", std::string("te"));
  EXPECT_TRUE(accepted(check(plan, MegatronVersion::v0_17)));
  EXPECT_FALSE(accepted(check(plan, MegatronVersion::v0_18)));
}

TEST(Check, AnOldTransformerEngineIsJudgedOnlyWhenTold) {
  Arguments plan = small_plan();
  plan.add("--fp4-format", std::string("e2m1"));
  EXPECT_TRUE(accepted(check(plan)));
  CheckOptions old;
  old.gpus = 8;
  old.transformer_engine = "2.6.1";
  EXPECT_FALSE(accepted(check_arguments(plan, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}, old)));
  old.transformer_engine = "2.10.0";
  EXPECT_TRUE(accepted(check_arguments(plan, {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}, old)));
}

// What Transformer Engine refuses in the first forward, by the version that Megatron pins.
TEST(Check, ContextParallelismByKindOfExchange) {
  Arguments plan = small_plan();
  plan.add("--context-parallel-size", 2);
  EXPECT_TRUE(accepted(check(plan)));
  Arguments offsets = plan;
  offsets.add("--softmax-type", std::string("learnable"));
  EXPECT_NE(find(check(offsets), "TRI-CP"), nullptr);
  offsets.add("--cp-comm-type", std::string("a2a"));
  EXPECT_TRUE(accepted(check(offsets)));
  Arguments windows = plan;
  windows.add("--window-size", std::string("127,0"));
  EXPECT_NE(find(check(windows), "TRI-CP"), nullptr);
  windows.add("--cp-comm-type", std::string("all_gather"));
  EXPECT_TRUE(accepted(check(windows)));
  Arguments latent = plan;
  latent.add("--multi-latent-attention");
  latent.add("--kv-lora-rank", 512);
  latent.add("--cp-comm-type", std::string("a2a"));
  EXPECT_NE(find(check(latent, MegatronVersion::v0_17), "TRI-CP"), nullptr);
  EXPECT_EQ(find(check(latent, MegatronVersion::v0_18), "TRI-CP"), nullptr);
  plan.add("--transformer-impl", std::string("local"));
  EXPECT_NE(find(check(plan), "TRI-LOCAL"), nullptr);
}

TEST(Check, TheDistributedOptimizerWithoutGlooNeedsDistributedCheckpoints) {
  Arguments plan = small_plan();
  plan.add("--use-distributed-optimizer");
  plan.add("--disable-gloo-process-groups");
  EXPECT_TRUE(accepted(check(plan)));
  plan.add("--ckpt-format", std::string("torch"));
  EXPECT_NE(find(check(plan), "DDP-05"), nullptr);
}

TEST(Rules, EveryRefusalIsJudgedOrExplained) {
  const Result<Json> table =
      read_json(std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/megatron/legality_rules.json");
  if (!table) GTEST_SKIP() << table.error().to_string();
  std::set<std::string> explained;
  for (const Unjudged& rule : unjudged_rules()) {
    EXPECT_EQ(find_rule(rule.id), nullptr) << rule.id;
    explained.insert(rule.id);
  }
  for (const Json& rule : *table) {
    const std::string id = rule["id"].get<std::string>(), kind = rule["kind"].get<std::string>();
    if (kind != "reject" && kind != "environment") continue;
    EXPECT_NE(find_rule(id) != nullptr, explained.count(id) == 1) << id;
  }
}

TEST(Rules, EachIdIsThereOnceWithAReasonAndAFix) {
  std::set<std::string> seen;
  for (const job::Rule& rule : launch_rules()) {
    EXPECT_TRUE(seen.insert(rule.id).second) << rule.id;
    EXPECT_STRNE(rule.reason, "");
    EXPECT_STRNE(rule.fix, "");
  }
}

TEST(Flags, TheTableIsSortedAndComplete) {
  EXPECT_TRUE(std::is_sorted(flags().begin(), flags().end(), [](const Flag& a, const Flag& b) {
    return std::string_view(a.name) < b.name;
  }));
  EXPECT_GT(flags().size(), 900u);
  ASSERT_NE(find_flag("--cuda-graph-modules"), nullptr);
  EXPECT_FALSE(find_flag("--cuda-graph-modules")->in(MegatronVersion::v0_17));
  EXPECT_TRUE(find_flag("--cuda-graph-modules")->in(MegatronVersion::v0_18));
  EXPECT_EQ(find_flag("--cuda-graph"), nullptr);
}

}  // namespace
}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#include "planner/ladder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/routing_risk.h"

namespace trifold::planner {
namespace {

job::Job job_of(const std::string& text) {
  Result<Json> json = parse_json(text, "test");
  if (!json) ADD_FAILURE() << json.error().to_string();
  Result<job::Job> job = job::read_job(*json, "test", {TRIFOLD_SOURCE_DIR, true});
  if (!job) ADD_FAILURE() << job.error().to_string();
  return job ? *job : job::Job{};
}

Ladder climb_to(const job::Job& plan, const job::Job* from = nullptr) {
  Result<hardware::Profile> profile = hardware::profile_of(plan.cluster, TRIFOLD_SOURCE_DIR);
  Result<Ladder> ladder = climb(plan, from, *profile);
  if (!ladder) ADD_FAILURE() << ladder.error().to_string();
  return *ladder;
}

void print(const char* name, const Ladder& ladder) {
  for (std::size_t i = 0; i < ladder.steps.size(); ++i) {
    const LadderStep& s = ladder.steps[i];
    const double before = s.estimate.step_time_s + s.gain_s;
    std::printf("%s | %s | %s | %.3f s %+.1f %% | %.0f TFLOP/s | %s -> %s\n", name,
                std::string(token_name(kAttacks, s.attack)).c_str(), s.name.c_str(),
                s.estimate.step_time_s, 100 * s.gain_s / before, s.estimate.tflops_per_gpu,
                std::string(token_name(kWalls, s.wall_before)).c_str(),
                std::string(token_name(kWalls, s.wall)).c_str());
  }
}

// Throughput gained by the steps whose name holds `word`; 0 where there is none.
double speed_up(const Ladder& ladder, const std::string& word) {
  double factor = 1;
  for (std::size_t i = 1; i < ladder.steps.size(); ++i)
    if (ladder.steps[i].name.find(word) != std::string::npos)
      factor *= ladder.steps[i - 1].estimate.step_time_s / ladder.steps[i].estimate.step_time_s;
  return factor - 1;
}

// MegaScale-MoE's own 352B model on 240 H800 (arXiv:2505.11432 Table 3): pp 15, sequence 8192,
// batch 720, attention by sequence and experts whole inside a node.
const char* const kMegaScale = R"({"schema": "trifold.job/1", "model": "megascale-352b",
  "cluster": "hgx-h800", "gpus": 240,
  "training": {"sequence_length": 8192, "global_batch_size": 720, "micro_batch_size": 1,
               "precision": "bf16"},
  "layout": {"tp": 1, "ulysses_sp": 8, "ep": 8, "etp": 1, "pp": 15},
  "techniques": {"dispatcher": "allgather",
                 "overlap": ["inter_op", "intra_op", "grad_reduce", "param_gather"]}})";

// The GB200 ladder of DeepSeek-V3 without MTP (techniques.md (c)19): one layout, 256 GPUs.
std::string gb200(const char* techniques) {
  return std::string(R"({"schema": "trifold.job/1", "model": "deepseek-v3",
    "cluster": "gb200-nvl72", "model_overrides": {"mtp_layers": 0}, "gpus": 256,
    "training": {"sequence_length": 4096, "global_batch_size": 2048, "precision": "mxfp8",
                 "optimizer": {"moments": "bf16", "fp8_param_gather": true}},
    "layout": {"pp": 8, "ep": 32, "pipeline_layout": "Et|(tt|)*30L"}, "techniques": )") +
         techniques + "}";
}
const char* const kGb200First = R"({"dispatcher": "alltoall",
  "overlap": ["grad_reduce", "param_gather", "pipeline_p2p"],
  "recompute": ["mla_up_proj", "mlp"], "routing": {"balance": "forced"},
  "host": {"processes_bound_to_cpus": false}})";
const char* const kGb200Last = R"({"dispatcher": "hybridep", "dispatcher_sms": 32,
  "overlap": ["grad_reduce", "param_gather", "pipeline_p2p"], "recompute": ["mlp", "moe_act"],
  "cuda_graph": ["attn", "moe_router", "moe_preprocess"], "fusions": ["router", "permute"],
  "routing": {"balance": "forced"}, "host": {"processes_bound_to_cpus": true}})";

TEST(Ladder, GainsAddUpAndEndAtThePlan) {
  const job::Job plan = job_of(gb200(kGb200Last));
  const Ladder ladder = climb_to(plan);
  ASSERT_GE(ladder.steps.size(), 5u);
  EXPECT_EQ(ladder.steps.front().attack, Attack::baseline);
  double gained = 0;
  Bytes freed;
  for (std::size_t i = 1; i < ladder.steps.size(); ++i) {
    const LadderStep& s = ladder.steps[i];
    gained += s.gain_s;
    freed += s.freed;
    EXPECT_GE(s.attack, ladder.steps[i - 1].attack);  // the order of attack
    EXPECT_EQ(s.wall_before, ladder.steps[i - 1].wall);
  }
  const LadderStep &first = ladder.steps.front(), &last = ladder.steps.back();
  EXPECT_NEAR(gained, first.estimate.step_time_s - last.estimate.step_time_s, 1e-9);
  EXPECT_EQ(freed, first.estimate.memory.peak - last.estimate.memory.peak);
  Result<estimate::Estimate> direct = estimate::estimate_job(plan, TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(direct);
  EXPECT_DOUBLE_EQ(last.estimate.step_time_s, direct->step_time_s);
  EXPECT_EQ(job::job_id(last.job), job::job_id(plan));
}

// arXiv:2505.11432: +13 % from sequence and expert parallelism instead of tensor parallelism, +9 %
// from overlap between operators, +6 % from overlap inside them: each in the same direction here.
// From Megatron-LM's step (39.94 s) to MegaScale's (21.61 s) it is 1.85 times in all, of which the
// three explain 1.31; the ladder, host binding apart, which the paper does not change, is as far
// within 15 %, and both of its ends are.
TEST(Ladder, MegaScaleMovesAsPublished) {
  const Ladder ladder = climb_to(job_of(kMegaScale));
  print("megascale-352b", ladder);
  EXPECT_EQ(ladder.steps.front().job.layout.tp, 8);
  EXPECT_EQ(ladder.steps.front().job.layout.etp, 8);
  const double geometry = speed_up(ladder, "layout "), inter = speed_up(ladder, "inter-operator"),
               intra = speed_up(ladder, "intra-operator");
  EXPECT_GT(geometry, 0.05);
  EXPECT_GT(inter, 0.02);
  EXPECT_GT(intra, 0);
  EXPECT_GT(geometry, inter);  // the published order of size
  EXPECT_GT(inter, intra);
  const double first = ladder.steps.front().estimate.step_time_s,
               last = ladder.steps.back().estimate.step_time_s;
  const double all = first / last / (1 + speed_up(ladder, "bound"));
  std::printf(
      "megascale-352b: %+.1f %% %+.1f %% %+.1f %% (published +13 +9 +6); %.2f times in all "
      "(1.85)\n",
      100 * geometry, 100 * inter, 100 * intra, all);
  EXPECT_NEAR(all, 39.94 / 21.61, 0.15 * 39.94 / 21.61);
  EXPECT_NEAR(first, 39.94, 0.15 * 39.94);
  EXPECT_NEAR(last, 21.61, 0.15 * 21.61);
}

// Published steps that a Job can express (TFLOP/s/GPU): router fusion 530 -> 540, DeepEP 540 ->
// 566, up-projection kept 566 -> 611, graphs 611 -> 663 and shared expert 798 -> 830, binding 691
// -> 762, HybridEP 830 -> 944. Kernel work that a Job cannot (494 -> 530, 663 -> 691, 762 -> 798,
// 944 -> 970) is in neither product: 540/530 x 611/540 x 663/611 x 762/691 x 830/798 x 944/830.
TEST(Ladder, Gb200MovesAsPublished) {
  const job::Job first = job_of(gb200(kGb200First)), last = job_of(gb200(kGb200Last));
  const Ladder ladder = climb_to(last, &first);
  print("deepseek-v3 gb200", ladder);
  EXPECT_GT(speed_up(ladder, "recompute"), 0);
  EXPECT_GT(speed_up(ladder, "dispatcher"), 0);
  EXPECT_GT(speed_up(ladder, "fusions"), 0);
  EXPECT_GT(speed_up(ladder, "CUDA graphs"), 0);
  EXPECT_GT(speed_up(ladder, "bound"), 0);
  const double published = 540.0 / 530 * 611 / 540 * 663 / 611 * 762 / 691 * 830 / 798 * 944 / 830;
  const double ours =
      ladder.steps.front().estimate.step_time_s / ladder.steps.back().estimate.step_time_s;
  std::printf(
      "deepseek-v3 gb200: %.2f times the first (published %.2f of what a Job expresses, "
      "%.2f in all)\n",
      ours, published, 970.0 / 494);
  // Between what a Job expresses and all of it, give or take 15 %.
  EXPECT_GT(ours, published / 1.15);
  EXPECT_LT(ours, 970.0 / 494 * 1.15);
}

// From the naive baseline the same plan's ladder starts at most a few times slower and ends at the
// same step.
TEST(Ladder, NaiveBaselineIsARecipe) {
  const Ladder ladder = climb_to(job_of(gb200(kGb200Last)));
  print("deepseek-v3 gb200, naive", ladder);
  const job::Job& first = ladder.steps.front().job;
  EXPECT_EQ(first.layout.tp, first.layout.etp);
  EXPECT_EQ(first.layout.tp, 2);  // 2048 columns of an expert over 1,024
  EXPECT_EQ(first.layout.vpp, 1);
  EXPECT_EQ(first.dp() % first.layout.ep, 0);  // classic EP
  EXPECT_EQ(first.training.precision, job::Precision::bf16);
  EXPECT_TRUE(ladder.steps.front().fits || first.techniques.has(job::Recompute::full));
}

TEST(Ladder, NextStepsAreLegalFitAndAreFaster) {
  const job::Job plan = job_of(gb200(kGb200First));
  const Ladder ladder = climb_to(plan);
  ASSERT_FALSE(ladder.next.empty());
  for (std::size_t i = 0; i < ladder.next.size(); ++i) {
    const NextStep& n = ladder.next[i];
    EXPECT_TRUE(job::check(n.job).legal()) << n.name;
    EXPECT_TRUE(n.estimate.memory.fits()) << n.name;
    EXPECT_GT(n.gain_s, 0);
    if (i > 0) {
      EXPECT_LE(n.gain_s, ladder.next[i - 1].gain_s);
    }
  }
}

TEST(Ladder, RefusesAnotherQuestion) {
  const job::Job plan = job_of(gb200(kGb200Last));
  job::Job other = plan;
  other.training.global_batch_size *= 2;
  Result<hardware::Profile> profile = hardware::profile_of(plan.cluster, TRIFOLD_SOURCE_DIR);
  EXPECT_FALSE(climb(plan, &other, *profile));
}

TEST(Moves, EveryMoveChangesTheJob) {
  const job::Job job = job_of(gb200(kGb200Last));
  for (const Move& move : moves(job)) {
    job::Job changed = job;
    move.apply(changed);
    EXPECT_NE(job::job_id(changed), job::job_id(job)) << move.name;
  }
}

// Skewed routing slows down and may not fit; a capacity factor of 1 drops what is above the mean
// and takes both back; clones lower the load of the hottest rank.
TEST(RoutingRisk, LeversWork) {
  job::Job job = job_of(gb200(kGb200Last));
  job.techniques.routing.balance = job::Balance::natural;
  job.techniques.routing.distribution = job::LoadDistribution::zipf;
  job.techniques.routing.parameters = {0.6};
  Result<hardware::Profile> profile = hardware::profile_of(job.cluster, TRIFOLD_SOURCE_DIR);
  Result<RoutingRisk> risk = routing_risk(job, *profile, 8);
  ASSERT_TRUE(risk) << risk.error().to_string();
  const auto row = [&](const std::string& name) -> const RiskRow& {
    for (const RiskRow& r : risk->rows)
      if (r.lever == name) return r;
    ADD_FAILURE() << name;
    return risk->rows[0];
  };
  const RiskRow& as_is = row("as is");
  EXPECT_GT(as_is.slow_down, 0);
  EXPECT_GT(as_is.imbalance, 1);
  EXPECT_EQ(as_is.dropped, 0);
  const RiskRow& capped = row("capacity factor 1");
  EXPECT_GT(capped.dropped, 0);
  EXPECT_NEAR(capped.imbalance, 1, 1e-9);  // no rank above the mean
  EXPECT_LT(capped.slow_down, as_is.slow_down);
  const RiskRow& echo = row("ECHO, 1 spare expert a rank");
  EXPECT_LT(echo.imbalance, as_is.imbalance);
  EXPECT_LT(echo.slow_down, as_is.slow_down);
  const RiskRow& paged = row("paged stash");
  EXPECT_LT(paged.p99, as_is.p99);
  EXPECT_DOUBLE_EQ(paged.imbalance, as_is.imbalance);
  for (const RiskRow& r : risk->rows) {
    EXPECT_GE(r.out_of_memory, 0);
    EXPECT_LE(r.out_of_memory, 1);
    EXPECT_LE(r.p50, r.p99);
  }
}

TEST(RoutingRisk, BalancedRoutingRisksNothing) {
  const job::Job job = job_of(gb200(kGb200Last));
  Result<hardware::Profile> profile = hardware::profile_of(job.cluster, TRIFOLD_SOURCE_DIR);
  Result<RoutingRisk> risk = routing_risk(job, *profile, 8);
  ASSERT_TRUE(risk);
  EXPECT_EQ(risk->rows[0].slow_down, 0);
  EXPECT_EQ(risk->rows[0].p50, risk->rows[0].p99);
}

}  // namespace
}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
// A whole step: what must hold for every Job, and for known overlaps.
#include "timeline/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "hardware/profile.h"
#include "job/job.h"

namespace trifold::timeline {
namespace {

struct Case {
  job::Job job;
  layout::Pipeline pipeline;
  hardware::Profile profile;
};

// DeepSeek-V3's blocks on few layers: fast, and every kind of segment.
Json base_json() {
  return Json::parse(R"({"schema": "trifold.job/1", "model": "deepseek-v3", "cluster": "dgx-h100",
    "gpus": 64, "model_overrides": {"num_layers": 16, "dense_prefix_layers": 0, "mtp_layers": 0},
    "training": {"sequence_length": 4096, "global_batch_size": 256, "micro_batch_size": 1,
                 "precision": "bf16"},
    "layout": {"tp": 1, "cp": 1, "pp": 4, "vpp": 1, "ep": 8, "etp": 1},
    "techniques": {"dispatcher": "deepep", "routing": {"balance": "forced"}}})");
}

Case make(const Json& json) {
  job::ReadOptions options;
  options.data_dir = TRIFOLD_SOURCE_DIR;
  Result<job::Job> job = job::read_job(json, "test", options);
  if (!job) throw std::runtime_error(job.error().to_string());
  Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job->model, job->layout, job->placement());
  if (!pipeline) throw std::runtime_error(pipeline.error().to_string());
  Result<hardware::Profile> profile =
      hardware::load_profile(job->cluster.profile, options.data_dir);
  if (!profile) throw std::runtime_error(profile.error().to_string());
  return {std::move(*job), std::move(*pipeline), std::move(*profile)};
}

Timeline run(const Json& json, bool contention = true) {
  const Case c = make(json);
  cost::Pricer pricer(c.job.cluster, c.profile);
  SimulateOptions options;
  options.lowering.contention = contention;
  options.check = true;  // the independent checker accepts every step
  Timeline out;
  simulate(c.job, c.pipeline, pricer, options, out);
  return out;
}

TEST(Timeline, PartsSumToTheStepOnEveryStage) {
  for (const char* overlap :
       {"[]", R"(["grad_reduce", "param_gather", "pipeline_p2p", "ep_a2a"])"}) {
    Json j = base_json();
    j["techniques"]["overlap"] = Json::parse(overlap);
    j["layout"]["vpp"] = 2;
    const Timeline t = run(j);
    for (const StageTimeline& s : t.stages) EXPECT_NEAR(s.time.sum(), t.step_time_s, 1e-6);
    EXPECT_GE(t.step_time_s, t.lower_bound_s - 1e-9);
  }
}

TEST(Timeline, PeakAgreesWithMemory) {
  for (const char* overlap : {"[]", R"(["ep_a2a", "pipeline_p2p"])"})
    for (int vpp : {1, 2}) {
      Json j = base_json();
      j["techniques"]["overlap"] = Json::parse(overlap);
      j["layout"]["vpp"] = vpp;
      const Timeline t = run(j);
      for (std::size_t r = 0; r < t.stages.size(); ++r)
        EXPECT_NEAR(t.stages[r].peak / t.memory.stages[r].peak, 1, 0.01) << overlap << vpp << r;
    }
}

TEST(Timeline, TwoRunsGiveTheSameBytes) {
  Json j = base_json();
  j["techniques"]["overlap"] = {"ep_a2a", "delay_wgrad"};
  j["layout"]["vpp"] = 2;
  const job::Job job = make(j).job;
  const Timeline once = run(j), again = run(j);
  const estimate::Estimate closed = *estimate::estimate_job(job, TRIFOLD_SOURCE_DIR);
  EXPECT_EQ(to_json(once, job, closed).dump(), to_json(again, job, closed).dump());
}

TEST(Timeline, MergingHidesExpertCommunication) {
  Json j = base_json();
  j["layout"]["vpp"] = 2;
  j["techniques"]["overlap"] = {"pipeline_p2p"};
  const Timeline alone = run(j);
  j["techniques"]["overlap"] = {"pipeline_p2p", "ep_a2a"};
  const Timeline merged = run(j);
  EXPECT_NEAR(alone.ep_hidden_share, 0, 1e-6);
  EXPECT_GT(merged.ep_hidden_share, 0.5);
  EXPECT_LT(merged.step_time_s, alone.step_time_s);
  // The dispatcher's SMs are taken from the GEMMs: compute is longer than alone.
  EXPECT_GT(merged.time().compute, alone.time().compute);
}

// In a fixed order of units, faster links never make a step longer.
TEST(Timeline, MoreBandwidthIsNeverSlower) {
  for (const char* overlap : {"[]", R"(["grad_reduce", "param_gather"])"}) {
    double before = 1e30;
    for (double rate : {25e9, 50e9, 100e9}) {
      Json j = base_json();
      j["layout"]["ep"] = 16;
      j["techniques"]["overlap"] = Json::parse(overlap);
      Case c = make(j);
      c.job.cluster.scaleout_bandwidth = BytesPerSecond(rate);
      cost::Pricer pricer(c.job.cluster, c.profile);
      Timeline t;
      simulate(c.job, c.pipeline, pricer, {}, t);
      EXPECT_LE(t.step_time_s, before * (1 + 1e-9));
      before = t.step_time_s;
    }
  }
}

// What a second of hidden transfer costs the GEMMs grows with the SMs that the dispatcher takes.
TEST(Timeline, FewerDispatcherSmsNeverSlowTheGemms) {
  double before = 0;
  for (int sms : {8, 20, 32}) {
    Json j = base_json();
    j["layout"]["vpp"] = 2;
    j["techniques"]["overlap"] = {"pipeline_p2p", "ep_a2a"};
    j["techniques"]["dispatcher_sms"] = sms;
    const Timeline contended = run(j), alone = run(j, false);
    ASSERT_GT(contended.communication_hidden_s(), 0);
    const double cost =
        (contended.time().compute - alone.time().compute) / contended.communication_hidden_s();
    EXPECT_GT(cost, before);
    before = cost;
  }
}

TEST(Timeline, EveryScheduleCompletes) {
  for (const char* kind : {"1f1b", "zb_h1", "zb_h2", "dualpipe"}) {
    Json j = base_json();
    j["schedule"] = {{"kind", kind}};
    EXPECT_GT(run(j).step_time_s, 0) << kind;
  }
  for (const char* kind : {"interleaved", "zb_v", "dualpipe_v"}) {
    Json j = base_json();
    j["layout"]["vpp"] = 2;
    j["schedule"] = {{"kind", kind}};
    EXPECT_GT(run(j).step_time_s, 0) << kind;
  }
}

// Splitting the backward moves weight gradients into the bubble: 1F1B > ZB-H1 > ZB-H2.
TEST(Timeline, ZeroBubbleShrinksTheBubble) {
  double before = 1e30;
  for (const char* kind : {"1f1b", "zb_h1", "zb_h2"}) {
    Json j = base_json();
    j["training"]["global_batch_size"] = 16 * 8;
    j["schedule"] = {{"kind", kind}};
    const Timeline t = run(j, false);
    EXPECT_LT(t.step_time_s, before) << kind;
    before = t.step_time_s;
  }
}

TEST(Timeline, OffloadedActivationsTravel) {
  Json j = base_json();
  j["techniques"]["offload"] = {{"activation_modules", {"expert_fc1", "moe_act"}}};
  const Case c = make(j);
  cost::Pricer pricer(c.job.cluster, c.profile);
  Simulator simulator;
  Timeline t;
  simulator.run(c.job, c.pipeline, pricer, {}, t);
  int copies = 0;
  for (const schedule::TaskInfo& info : simulator.lowered().step.tasks)
    copies += info.op->category == schedule::Category::copy;
  // Out and back, for every layer and micro-batch.
  EXPECT_EQ(copies, 2 * 16 * static_cast<int>(c.job.microbatches()));
}

// Attention's backward before the other unit's experts: less memory, less cover for combine.
TEST(Timeline, EarlyAttentionReleaseTradesTimeForMemory) {
  Json j = base_json();
  j["layout"]["vpp"] = 2;
  j["layout"]["ep"] = 16;                                   // across nodes: long transfers
  j["techniques"]["overlap"] = {"pipeline_p2p", "ep_a2a"};  // no weight gradient to hide behind
  const Timeline late = run(j);
  j["techniques"]["overlap"].push_back("early_attn_release");
  const Timeline early = run(j);
  EXPECT_LT(early.memory.peak, late.memory.peak);
  EXPECT_GT(early.time().exposed[0], late.time().exposed[0]);
  EXPECT_LT(early.ep_hidden_share, late.ep_hidden_share);
  const estimate::Estimate closed = *estimate::estimate_job(make(j).job, TRIFOLD_SOURCE_DIR);
  EXPECT_NEAR(early.step_time_s / closed.step_time_s, 1, 0.06);
}

// Dense layers offload nothing here; the reload of the next MoE layer is still ahead of its
// backward.
TEST(Timeline, OffloadWithADensePrefixCompletes) {
  Json j = base_json();
  j["model_overrides"]["dense_prefix_layers"] = 3;
  j["layout"]["vpp"] = 2;
  j["techniques"]["overlap"] = {"pipeline_p2p", "ep_a2a", "delay_wgrad"};
  const Timeline without = run(j);
  j["techniques"]["offload"] = {{"activation_modules", {"expert_fc1", "moe_act"}}};
  const Timeline with = run(j);
  EXPECT_TRUE(with.completes);
  EXPECT_GE(with.step_time_s, without.step_time_s);
}

TEST(Timeline, ExpertLoadDrawsMakeStragglers) {
  Json j = base_json();
  j["techniques"]["routing"] = {{"balance", "natural"}};
  const Case c = make(j);
  cost::Pricer pricer(c.job.cluster, c.profile);
  SimulateOptions options;
  Timeline even, uneven, again;
  simulate(c.job, c.pipeline, pricer, options, even);
  options.lowering.vary_load = true;
  simulate(c.job, c.pipeline, pricer, options, uneven);
  simulate(c.job, c.pipeline, pricer, options, again);
  EXPECT_GT(uneven.step_time_s, even.step_time_s);  // stages wait for whoever is late
  EXPECT_EQ(uneven.step_time_s, again.step_time_s);
}

}  // namespace
}  // namespace trifold::timeline

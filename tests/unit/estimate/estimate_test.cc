// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "estimate/estimate.h"
#include "job/legality.h"
#include "model/catalogue.h"

namespace trifold::estimate {
namespace {

job::Job deepseek_on_h100() {
  job::Job job;
  job.model = model::load_model("deepseek-v3", TRIFOLD_SOURCE_DIR).value();
  job.cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  job.gpus = 1024;
  job.training.global_batch_size = 8192;
  job.training.precision = job::Precision::fp8_block;
  job.layout.tp = 2, job.layout.pp = 8, job.layout.vpp = 4, job.layout.ep = 64;
  job.layout.pipeline_layout = "Et|(tt|)*30mL";
  job.schedule.kind = layout::ScheduleKind::interleaved;
  job.techniques.sequence_parallel = true;
  job.techniques.dispatcher = job::Dispatcher::deepep;
  job.techniques.overlap = {job::Overlap::grad_reduce, job::Overlap::param_gather,
                            job::Overlap::pipeline_p2p, job::Overlap::ep_a2a,
                            job::Overlap::delay_wgrad};
  return job;
}

Estimate estimate_of(const job::Job& job) {
  Result<Estimate> estimate = estimate_job(job, TRIFOLD_SOURCE_DIR);
  EXPECT_TRUE(estimate) << (estimate ? "" : estimate.error().to_string());
  return estimate ? *estimate : Estimate{};
}

TEST(Estimate, PartsSumToTheStep) {
  const Estimate e = estimate_of(deepseek_on_h100());
  EXPECT_NEAR(e.time.sum(), e.step_time_s, 1e-9 * e.step_time_s);
  EXPECT_LT(e.low_s, e.step_time_s);
  EXPECT_GT(e.high_s, e.step_time_s);
  double basis = 0;
  for (double share : e.basis_share) basis += share;
  EXPECT_NEAR(basis, 1, 1e-9);
  // tokens = 8192 x 4096 over 1024 GPUs.
  EXPECT_NEAR(e.tokens_per_s_per_gpu * e.step_time_s, 8192.0 * 4096 / 1024, 1e-3);
}

// Un-merged, a stage's kernels are its compute and its recomputation, and what its blocks send.
TEST(Estimate, KernelsSumToTheStage) {
  job::Job job = deepseek_on_h100();
  job.techniques.overlap = {};
  job.techniques.recompute = {job::Recompute::mla_up_proj};
  const Estimate e = estimate_of(job);
  double compute = 0;
  for (Work work :
       {Work::gemm, Work::attention, Work::memory_bound, Work::quantize, Work::routing}) {
    EXPECT_GT(e.kernels.of(work), 0) << kWorkNames[static_cast<std::size_t>(work)];
    compute += e.kernels.of(work);
  }
  EXPECT_NEAR(compute / (e.time.compute + e.time.recompute), 1, 1e-9);
  double sent = 0;
  for (Comm comm : {Comm::ep, Comm::tp, Comm::cp})
    sent += e.communication[static_cast<std::size_t>(comm)].total_s;
  EXPECT_NEAR(e.kernels.of(Work::communication) / sent, 1, 1e-9);
}

TEST(Estimate, MergingHidesExpertCommunication) {
  job::Job job = deepseek_on_h100();
  const Estimate merged = estimate_of(job);
  job.techniques.overlap.erase(job::Overlap::ep_a2a);
  job.techniques.overlap.erase(job::Overlap::delay_wgrad);
  const Estimate plain = estimate_of(job);
  const auto ep = static_cast<std::size_t>(Comm::ep);
  EXPECT_GT(plain.time.exposed[ep] / plain.step_time_s, 0.25);  // published: 30-40 %
  EXPECT_LT(merged.time.exposed[ep], 0.35 * plain.time.exposed[ep]);
  EXPECT_LT(merged.step_time_s, plain.step_time_s);
}

TEST(Estimate, MoreBandwidthIsNeverSlower) {
  const job::Job job = deepseek_on_h100();
  job::Job faster = job;
  faster.cluster.scaleout_bandwidth *= 2;
  EXPECT_LE(estimate_of(faster).step_time_s, estimate_of(job).step_time_s);
}

TEST(Estimate, RecomputeCostsTimeAndNotMemory) {
  job::Job job = deepseek_on_h100();
  const Estimate plain = estimate_of(job);
  job.techniques.recompute = {job::Recompute::mla_up_proj, job::Recompute::moe_act};
  const Estimate rebuilt = estimate_of(job);
  EXPECT_GT(rebuilt.step_time_s, plain.step_time_s);
  EXPECT_LT(rebuilt.memory.peak.value(), plain.memory.peak.value());
}

TEST(Estimate, AnIllegalLayoutIsAnErrorThatExplains) {
  job::Job job = deepseek_on_h100();
  job.layout.ep = 7;
  const Result<Estimate> estimate = estimate_job(job, TRIFOLD_SOURCE_DIR);
  ASSERT_FALSE(estimate);
  EXPECT_NE(estimate.error().message.find("fix"), std::string::npos);
}

}  // namespace
}  // namespace trifold::estimate

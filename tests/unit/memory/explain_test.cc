// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobs.h"

namespace trifold::memory_test {
namespace {

void expect_sums(const job::Job& j) {
  const layout::Pipeline pipeline = cut(j);
  const memory::Memory m = evaluate(j);
  for (int stage = 0; stage < pipeline.pp; ++stage) {
    Bytes part[5] = {};
    for (const memory::Term& t : memory::explain(j, pipeline, stage)) {
      EXPECT_FALSE(t.name.empty() || t.formula.empty() || t.divisor.empty()) << t.name;
      part[static_cast<int>(t.part)] += t.bytes;
    }
    const memory::StageMemory& s = m.stages[static_cast<std::size_t>(stage)];
    EXPECT_EQ(part[0], s.weights);
    EXPECT_EQ(part[1], s.gradients);
    EXPECT_EQ(part[2], s.optimizer);
    EXPECT_EQ(part[3], s.activations);
    EXPECT_EQ(part[4], s.buffers);
  }
}

TEST(Explain, TermsSumToTheParts) {
  job::Job j = job_of(mla_model(), 16);
  j.layout.pp = 2, j.layout.ep = 4, j.layout.vpp = 2;
  j.schedule.kind = layout::ScheduleKind::interleaved;
  expect_sums(j);
  j.model.mtp_layers = 1;
  j.techniques.recompute = {job::Recompute::moe_act, job::Recompute::layernorm};
  j.techniques.dispatcher = job::Dispatcher::deepep;
  j.training.precision = job::Precision::mxfp8;
  expect_sums(j);
  j.techniques.recompute = {job::Recompute::full};
  j.layout.tp = 2;
  j.techniques.sequence_parallel = true;
  expect_sums(j);
  j = job_of(moe_model(), 8);
  j.layout.fsdp = true;
  j.techniques.implementation = job::Implementation::local;
  j.techniques.offload.activation_modules = {job::OffloadModule::expert_fc1,
                                             job::OffloadModule::moe_act};
  j.techniques.cuda_graph = {job::GraphScope::attn};
  expect_sums(j);
}

TEST(Explain, NamesTheGroupThatDivides) {
  job::Job j = job_of(moe_model(), 8);
  j.layout.ep = 4;
  for (const memory::Term& t : memory::explain(j, cut(j), 0))
    if (t.part == memory::Term::Part::optimizer && t.name == "experts") {
      EXPECT_NE(t.divisor.find("ep x etp 4"), std::string::npos) << t.divisor;
      EXPECT_NE(t.divisor.find("edp 2"), std::string::npos) << t.divisor;
      return;
    }
  FAIL() << "no term for the experts' optimizer states";
}

TEST(Levers, MostFreeingFirstAndNeverMore) {
  job::Job j = job_of(moe_model(), 8);
  const Bytes before = evaluate(j).peak;
  const std::vector<memory::Lever> levers = memory::levers(j, cut(j));
  ASSERT_FALSE(levers.empty());
  for (std::size_t i = 0; i < levers.size(); ++i) {
    EXPECT_EQ(levers[i].freed, before - levers[i].peak);
    EXPECT_LE(levers[i].freed, i > 0 ? levers[i - 1].freed : before);
  }
}

TEST(Risk, EvenRoutingHasOnePeak) {
  job::Job j = job_of(moe_model(), 8);
  j.layout.ep = 8;
  const memory::OutOfMemoryRisk r = memory::out_of_memory_risk(j, cut(j), 100);
  EXPECT_EQ(r.p50, r.max);
  EXPECT_EQ(r.p50, evaluate(j).peak);
  EXPECT_EQ(r.probability, 0);
}

TEST(Risk, SkewRaisesThePeakAndASmallGpuRunsOut) {
  job::Job j = job_of(moe_model(), 8);
  j.layout.ep = 8;
  j.techniques.routing.distribution = job::LoadDistribution::dirichlet;
  j.techniques.routing.parameters = {0.5};
  j.techniques.routing.seed = 7;
  const memory::OutOfMemoryRisk r = memory::out_of_memory_risk(j, cut(j), 200);
  EXPECT_GT(r.p50, r.balanced);
  EXPECT_LE(r.p50, r.p90);
  EXPECT_LE(r.p90, r.p99);
  EXPECT_LE(r.p99, r.max);
  EXPECT_EQ(r.probability, 0);
  // Capacity between the median's reserve and the largest: some samples fit, some do not.
  const double factor = static_cast<double>(evaluate(j).reserved.value()) /
                        static_cast<double>(evaluate(j).peak.value());
  j.cluster.gpu.hbm = Bytes(static_cast<std::int64_t>(static_cast<double>(r.p50.value()) * factor));
  const double p = memory::out_of_memory_risk(j, cut(j), 200).probability;
  EXPECT_GT(p, 0.4);
  EXPECT_LT(p, 0.6);
  // The same seed gives the same answer.
  EXPECT_EQ(memory::out_of_memory_risk(j, cut(j), 200).max, r.max);
}

}  // namespace
}  // namespace trifold::memory_test

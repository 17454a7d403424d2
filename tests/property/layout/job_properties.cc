// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "job/job.h"
#include "job/legality.h"

namespace trifold::job {
namespace {

template <class E, std::size_t N>
E any_of(const Token<E> (&table)[N]) {
  return table[static_cast<std::size_t>(*rc::gen::inRange<int>(0, static_cast<int>(N)))].value;
}

template <class E, std::size_t N>
EnumSet<E> any_set(const Token<E> (&table)[N]) {
  EnumSet<E> set;
  for (const Token<E>& t : table)
    if (*rc::gen::inRange(0, 3) == 0) set.insert(t.value);
  return set;
}

bool coin() { return *rc::gen::arbitrary<bool>(); }

void any_training(Training& t) {
  t.sequence_length = *rc::gen::inRange(1, 300000);
  t.global_batch_size = *rc::gen::inRange(1, 20000);
  t.micro_batch_size = *rc::gen::inRange(1, 9);
  t.precision = any_of(kPrecisions);
  Optimizer& o = t.optimizer;
  o = Optimizer{any_of(kOptimizerNames),
                coin(),
                any_of(kStateTypes),
                any_of(kStateTypes),
                any_of(kStateTypes),
                any_of(kStateTypes),
                coin()};
}

void any_layout(layout::Layout& l) {
  const auto size = [] { return 1 << *rc::gen::inRange(0, 5); };
  l.tp = size();
  l.cp = size();
  l.ulysses_sp = size();
  l.pp = size();
  l.vpp = *rc::gen::inRange(1, 6);
  l.ep = size();
  l.etp = size();
  l.fsdp = coin();
  l.order = any_of(layout::kRankOrders);
  if (coin() && l.vpp > 1) l.pipeline_layout = "Et|(tt|)*30mL";
  l.account_for_embedding = coin();
  l.account_for_loss = coin();
  l.first_stage_layers = *rc::gen::inRange(0, 9);
  l.last_stage_layers = *rc::gen::inRange(0, 9);
}

void any_techniques(Techniques& t, int tp) {
  t.dispatcher = any_of(kDispatchers);
  t.dispatcher_sms = *rc::gen::inRange(0, 64);
  t.dispatch_precision = any_of(kDispatchPrecisions);
  t.overlap = any_set(kOverlaps);
  t.recompute = any_set(kRecomputes);
  t.cuda_graph = any_set(kGraphScopes);
  t.fusions = any_set(kFusions);
  t.offload = Offload{any_set(kOffloadModules), *rc::gen::inRange(0, 9), any_of(kOptimizerOffloads),
                      0.25 * *rc::gen::inRange(0, 5)};
  Routing& r = t.routing;
  r.balance = any_of(kBalances);
  r.capacity_factor = 0.25 * *rc::gen::inRange(0, 8);
  r.pad_to_capacity = coin();
  r.distribution = any_of(kLoadDistributions);
  if (coin()) r.parameters = {0.5, 2};
  r.seed = *rc::gen::inRange(-5, 1000);
  r.echo_spare_experts = *rc::gen::inRange(0, 3);
  t.cp_comm = any_of(kCpComms);
  t.gradient_compression = any_of(kGradientCompressions);
  t.implementation = any_of(kImplementations);
  t.attention_backend = any_of(kAttentionBackends);
  t.grouped_gemm = any_of(hardware::kGroupedKernels);
  t.sequence_parallel = tp > 1 && coin();
  t.memory_efficient_permutation = coin();
  t.paged_stash = coin();
  t.processes_bound_to_cpus = coin();
}

Job any_job() {
  static const Job base = read_job(*parse_json(R"({"schema": "trifold.job/1",
      "model": "deepseek-v3", "cluster": "gb200-nvl72", "gpus": 256,
      "training": {"global_batch_size": 2048}})",
                                               "base"),
                                   "base", ReadOptions{TRIFOLD_SOURCE_DIR, true})
                              .value();
  Job job = base;
  job.gpus = *rc::gen::inRange(1, 5000);
  if (coin()) job.profile = "some-profile";
  job.measured_rank = *rc::gen::inRange(-1, 4);
  any_training(job.training);
  any_layout(job.layout);
  any_techniques(job.techniques, job.layout.tp);
  job.schedule.kind = any_of(layout::kScheduleKinds);
  if (job.layout.vpp == 1 && job.schedule.kind == layout::ScheduleKind::interleaved)
    job.schedule.kind = layout::ScheduleKind::one_f_one_b;
  job.schedule.microbatch_group_size = *rc::gen::inRange(0, 40);
  if (coin()) job.model.moe.top_k = 4;
  if (coin()) job.cluster.gpus_used_per_domain = 64;
  return job;
}

TEST(JobProperty, WriteThenReadIsIdentity) {
  EXPECT_TRUE(rc::check([] {
    const Job job = any_job();
    const Json json = to_json(job);
    const Result<Job> again = read_job(json, "again", ReadOptions{TRIFOLD_SOURCE_DIR, false});
    if (!again) RC_FAIL(again.error().to_string());
    RC_ASSERT(again->model == job.model);
    RC_ASSERT(again->training == job.training);
    RC_ASSERT(again->layout == job.layout);
    RC_ASSERT(again->techniques == job.techniques);
    RC_ASSERT(again->schedule == job.schedule);
    RC_ASSERT(again->gpus == job.gpus);
    RC_ASSERT(job_id(*again) == job_id(job));
    RC_ASSERT(to_json(*again) == json);
  }));
}

// Any Job gets a verdict; the first of check is the first of check_all; another runtime never
// refuses what Megatron takes.
TEST(JobProperty, VerdictsAgree) {
  EXPECT_TRUE(rc::check([] {
    const Job job = any_job();
    const std::vector<Verdict> all = check_all(job);
    const Verdict first = check(job);
    RC_ASSERT(first.legal() == all.empty());
    if (!all.empty()) {
      RC_ASSERT(first.rule == all.front().rule);
    }
    if (first.legal()) RC_ASSERT(check(job, Runtime::any).legal());
    for (const Verdict& v : check_all(job, Runtime::any))
      RC_ASSERT(v.rule->scope == RuleScope::structure);
  }));
}

}  // namespace
}  // namespace trifold::job

// SPDX-License-Identifier: Apache-2.0
// For any Job whose fields Megatron's arguments express, import(emit(job)) is the Job (in the
// normal form of two names for one run). The Jobs need not be legal: arguments say what was asked,
// rules judge it elsewhere.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "launch/check.h"
#include "launch/emit.h"
#include "launch/import.h"
#include "launch/script.h"
#include "planner/search.h"
#include "tests/unit/launch/random_jobs.h"

namespace trifold::launch {
namespace {

template <class E, std::size_t N>
EnumSet<E> pick_some(Random& random, const Token<E> (&table)[N], std::size_t first = N) {
  EnumSet<E> set;
  for (std::size_t i = 0; i < std::min(first, N); ++i)
    if (random.below(2) == 0) set.insert(table[i].value);
  return set;
}

void change_model(Random& random, model::Model& m) {
  m.tied_embeddings = coin(random);
  m.norm = pick(random, model::kNorms);
  m.norm_epsilon = random.uniform() * 1e-5 + 1e-9;
  m.init_std = random.uniform() + 1e-3;
  m.rope.base = static_cast<double>(1000 + random.below(10000000));
  m.vocab = 1000 + static_cast<std::int64_t>(random.below(300000));
  if (!m.linear_bias) m.attention.qkv_bias = coin(random);
  if (m.attention.kind == model::AttentionKind::gqa) m.attention.qk_norm = coin(random);
  if (!m.is_moe()) return;
  for (model::LayerKind& layer : m.layers) layer.moe = random.below(4) != 0;
  m.layers[0].moe = true;
  m.dense_ffn = m.dense_layers() > 0 ? 1024 + static_cast<std::int64_t>(random.below(9000)) : 0;
  if (m.moe.score == model::RouterScore::softmax) m.moe.normalize_top_k = coin(random);
  m.moe.routed_scaling = 0.5 + random.uniform();
  m.moe.aux_loss = coin(random) ? 0 : random.uniform();
  m.moe.shared_ffn = coin(random) ? 0 : 64 * (1 + static_cast<std::int64_t>(random.below(100)));
  m.moe.shared_gate = m.moe.shared_ffn > 0 && coin(random);
}

void change_training(Random& random, job::Training& t) {
  t.precision = pick(random, job::kPrecisions);
  job::Optimizer& o = t.optimizer;
  o.name = pick(random, job::kOptimizerNames);
  o.distributed = coin(random);
  o.main_params = coin(random) ? job::StateType::fp32 : job::StateType::fp16;
  o.main_grads = coin(random) ? job::StateType::fp32 : job::StateType::bf16;
  o.moments = pick(random, job::kStateTypes);
  o.grad_reduce = o.main_grads == job::StateType::bf16 || coin(random) ? job::StateType::bf16
                                                                       : job::StateType::fp32;
  o.fp8_param_gather = is_low_precision(t.precision) && coin(random);
}

void change_techniques(Random& random, job::Job& job) {
  job::Techniques& t = job.techniques;
  using job::Overlap;
  const bool interleaved = job.layout.vpp > 1;
  t.overlap = {};
  for (Overlap o : {Overlap::grad_reduce, Overlap::param_gather,
                    Overlap::param_gather_with_optimizer, Overlap::ep_a2a, Overlap::delay_wgrad,
                    Overlap::early_attn_release, Overlap::tp_comm, Overlap::shared_expert})
    if (coin(random)) t.overlap.insert(o);
  if (interleaved && coin(random)) t.overlap.insert(Overlap::pipeline_p2p);
  if (job.layout.fsdp && t.has(Overlap::grad_reduce) && t.has(Overlap::param_gather))
    t.overlap.insert(Overlap::fsdp);
  t.recompute = pick_some(random, job::kRecomputes, 7);
  if (random.below(5) == 0) t.recompute = {job::Recompute::full};
  t.cuda_graph = pick_some(random, job::kGraphScopes, 5);
  if (random.below(5) == 0) t.cuda_graph = {job::GraphScope::layer};
  t.fusions = {};
  for (job::Fusion f : {job::Fusion::cross_entropy, job::Fusion::fp8_output_projection})
    if (coin(random)) t.fusions.insert(f);
  t.offload = {};
  t.offload.activation_modules = pick_some(random, job::kOffloadModules);
  if (!t.offload.activation_modules.empty()) t.offload.fraction = random.uniform();
  t.offload.activation_layers = static_cast<int>(random.below(3));
  t.offload.optimizer = pick(random, job::kOptimizerOffloads, 2);
  const job::Optimizer& o = job.training.optimizer;
  const bool one_shot = o.grad_reduce == job::StateType::bf16 && o.distributed && !job.layout.fsdp;
  t.gradient_compression =
      one_shot ? pick(random, job::kGradientCompressions) : job::GradientCompression::none;
  t.implementation = pick(random, job::kImplementations);
  if (!job.model.is_moe()) return;
  for (job::Fusion f : {job::Fusion::router, job::Fusion::permute, job::Fusion::grouped_mlp})
    if (coin(random)) t.fusions.insert(f);
  t.dispatcher = pick(random, job::kDispatchers);
  t.dispatcher_sms = is_flex(t.dispatcher) ? static_cast<int>(random.below(40)) : 0;
  t.routing.balance = coin(random) ? job::Balance::forced : job::Balance::unstated;
  t.routing.capacity_factor = coin(random) ? 0 : 1 + random.uniform();
  t.routing.pad_to_capacity = coin(random);
  if (t.dispatcher == job::Dispatcher::hybridep && t.has(job::Fusion::grouped_mlp)) {
    t.paged_stash = coin(random);
    if (random.below(5) == 0) t.cuda_graph = {job::GraphScope::full_iteration};
  }
}

job::Job random_job(std::uint64_t seed) {
  Random random(seed);
  constexpr std::size_t kRows = sizeof(kJobRows) / sizeof(kJobRows[0]);
  job::Job job = *make_job(kJobRows[random.below(kRows)]);
  change_model(random, job.model);
  change_training(random, job.training);
  job.layout.fsdp = coin(random);
  if (job.layout.fsdp) job.training.optimizer.distributed = true;
  if (coin(random)) job.layout.order = layout::RankOrder::tp_cp_ep_pp_dp;
  if (job.model.is_moe()) job.layout.etp = 1 << random.below(3);
  if (job.layout.vpp > 1) job.schedule.microbatch_group_size = static_cast<int>(random.below(20));
  change_techniques(random, job);
  if (job.layout.cp > 1) {
    job.techniques.cp_comm = pick(random, job::kCpComms, 3);
    if (coin(random)) {  // two levels: heads swapped inside
      job.layout.ulysses_sp = 2;
      job.techniques.cp_comm = job::CpComm::p2p;
    }
  }
  return job;
}

// Empty: import(emit(job)) is the Job. Else what happened.
std::string round_trip(const job::Job& original) {
  const Result<LaunchPlan> plan = emit(original);
  if (!plan) return plan.error().to_string() + job::to_json(original).dump();
  const Result<LaunchScript> script = parse_shell(print_arguments(plan->arguments), "args");
  if (!script) return script.error().to_string();
  ImportOptions options;
  options.cluster = original.cluster;
  options.gpus = original.gpus;
  const Result<Imported> back = import_script(*script, options);
  if (!back) return back.error().to_string();
  const job::Job job = normal_form(original);
  const bool same = back->job.techniques == job.techniques && back->job.layout == job.layout &&
                    back->job.training == job.training && back->job.schedule == job.schedule &&
                    same_shape(back->job.model, job.model) && back->not_understood.empty();
  return same ? "" : job::to_json(job).dump() + "\n" + job::to_json(back->job).dump();
}

// Empty: the rules on arguments find nothing to refuse. Else what they say.
std::string refusals(const job::Job& job) {
  const LaunchPlan plan = *emit(job);
  CheckOptions options;
  options.gpus = job.gpus;
  options.arch = job.cluster.gpu.arch;
  std::string text;
  for (const Finding& f : check_arguments(plan.arguments, plan.environment, options))
    if (f.severity == Severity::reject) text += explain(f) + job::to_json(job).dump();
  return text;
}

TEST(RoundTrip, ImportOfEmitIsTheJob) {
  EXPECT_TRUE(rc::check("import(emit(job)) == job",
                        [](std::uint64_t seed) { RC_ASSERT(round_trip(random_job(seed)) == ""); }));
}

// Legal Jobs, and with them what legality promises: emit() has the words, and the rules on
// arguments find nothing to refuse.
TEST(RoundTrip, LegalJobsAreEmittedAcceptedAndReadBack) {
  EXPECT_TRUE(rc::check("legal jobs", [](std::uint64_t seed) {
    const job::Job job = random_legal_job(seed);
    RC_ASSERT(round_trip(job) == "");
    RC_ASSERT(refusals(job) == "");
  }));
}

TEST(RoundTrip, ThePlannersPlansAreReadBack) {
  struct Row {
    const char* model;
    const char* cluster;
    job::Precision precision;
  };
  for (const Row& row : {Row{"qwen3-30b-a3b", "dgx-h100", job::Precision::bf16},
                         Row{"gpt-oss-20b", "dgx-h200", job::Precision::fp8_tensor},
                         Row{"deepseek-v2-lite", "dgx-b200", job::Precision::mxfp8},
                         Row{"llama3-8b", "dgx-a100", job::Precision::bf16}}) {
    planner::Query query;
    query.model = *model::load_model(row.model, TRIFOLD_SOURCE_DIR);
    query.cluster = *hardware::load_cluster(row.cluster, TRIFOLD_SOURCE_DIR);
    query.gpus = 16;
    query.training.global_batch_size = 128;
    query.training.precision = row.precision;
    query.training.optimizer.fp8_param_gather = is_low_precision(row.precision);
    query.pins.pp = {1, 2};
    query.pins.micro_batch_size = {1};
    const Result<planner::PlanResult> result =
        planner::plan(query, *hardware::load_profile(query.cluster.profile, TRIFOLD_SOURCE_DIR));
    ASSERT_TRUE(result) << row.model;
    ASSERT_FALSE(result->plans.empty()) << row.model;
    for (const planner::Candidate& plan : result->plans) {
      EXPECT_EQ(round_trip(plan.job), "") << row.model;
      EXPECT_EQ(refusals(plan.job), "") << row.model;
    }
    for (const auto& [kind, plan] : result->geometries)
      if (plan.launchable) {
        EXPECT_EQ(round_trip(plan.job), "") << row.model;
      }
  }
}

}  // namespace
}  // namespace trifold::launch

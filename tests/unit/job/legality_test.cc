// SPDX-License-Identifier: Apache-2.0
#include "job/legality.h"

#include <gtest/gtest.h>

#include <ctime>
#include <set>

#include "jobs.h"

// One Job a rule, which breaks that rule and no other.

namespace trifold::job {
namespace {

using K = layout::ScheduleKind;
enum class Base : std::uint8_t { moe, dense };

struct Case {
  const char* id;
  Base base;
  void (*breaks)(Job&);
  Runtime runtime = Runtime::megatron;
};

void flat(Job& j) {  // no interleaving
  j.layout.vpp = 1;
  j.schedule.kind = K::one_f_one_b;
}
void stages(Job& j, const char* text) {
  flat(j);
  j.layout.pipeline_layout = text;
}
void without_tp(Job& j) {
  j.layout.tp = 1;
  j.techniques.sequence_parallel = false;
}
void pad(Job& j) {
  j.techniques.routing.capacity_factor = 1;
  j.techniques.routing.pad_to_capacity = true;
}
void merged(Job& j) { j.techniques.overlap.insert(Overlap::ep_a2a); }

using J = Job&;
const Case kCases[] = {
    {"TRI-GPUS", Base::moe, [](J j) { j.cluster.max_gpus = 32; }},
    {"GRID-01", Base::moe, [](J j) { j.layout.tp = 3; }},
    {"GRID-02", Base::moe, [](J j) { j.layout.ep = 3; }},
    {"GRID-09", Base::moe, [](J j) { j.training.global_batch_size = 509; }},
    {"GRID-04", Base::moe, [](J j) { j.layout.order = layout::RankOrder::tp_cp_ep_pp_dp; }},
    {"PP-02", Base::dense,
     [](J j) { j.layout.pipeline_layout = "Et*20|t*20|t*20|t*20L"; }},  // 1 chunk, vpp says 5
    {"LAY-01", Base::dense, [](J j) { stages(j, "Et*20|t*20|t*20|t*20|L"); }},
    {"PP-05", Base::dense, [](J j) { j.layout.pp = 1; }},
    {"CP-01", Base::moe,
     [](J j) {
       without_tp(j);
       j.layout.cp = 2;
       j.training.sequence_length = 4098;
     }},
    {"SEQ-01", Base::moe,
     [](J j) {
       j.model.rope.none = true;
       j.model.max_position = 2048;
     }},
    {"TP-07", Base::dense,
     [](J j) {
       j.techniques.overlap.insert(Overlap::tp_comm);
       j.techniques.sequence_parallel = false;
     }},
    {"EP-02", Base::dense, [](J j) { j.layout.ep = 2; }},
    {"EP-01", Base::moe, [](J j) { j.model.moe.experts = 100; }},
    {"MTP-01", Base::moe,
     [](J j) {
       j.model.rope.none = true;
       j.model.mtp_layers = 1;
     }},
    {"DDP-01", Base::moe, [](J j) { j.techniques.overlap.erase(Overlap::grad_reduce); }},
    {"DDP-02", Base::moe,
     [](J j) {
       j.techniques.overlap.erase(Overlap::param_gather);
       j.techniques.overlap.insert(Overlap::param_gather_with_optimizer);
     }},
    {"REC-02", Base::moe, [](J j) { j.techniques.recompute = {Recompute::full, Recompute::mlp}; }},
    {"OFF-01", Base::dense,
     [](J j) {
       without_tp(j);
       j.techniques.implementation = Implementation::local;
       j.techniques.offload.activation_modules = {OffloadModule::core_attn};
     }},
    {"OFF-08", Base::moe,
     [](J j) {
       j.training.precision = Precision::fp8_tensor;
       j.training.optimizer.fp8_param_gather = true;
       j.techniques.offload.optimizer = OptimizerOffload::cpu_adam;
     }},
    {"CG-02", Base::moe,
     [](J j) {
       j.techniques.dispatcher = Dispatcher::hybridep;
       j.techniques.cuda_graph = {GraphScope::full_iteration, GraphScope::attn};
     }},
    {"FSDP-04", Base::moe,
     [](J j) {
       j.layout.fsdp = true;
       j.training.optimizer.name = OptimizerName::muon;
     }},
    {"TP-01", Base::moe, [](J j) { j.model.attention.heads = 33; }},
    {"TP-02", Base::moe, [](J j) { j.model.attention.kv_heads = 3; }},
    {"EP-03", Base::moe,
     [](J j) {
       j.model.linear_bias = true;
       j.layout.etp = 2;
     }},
    {"RT-02", Base::moe, [](J j) { j.model.moe.expert_bias = true; }},
    {"RT-03", Base::moe, [](J j) { j.model.moe.top_k = 1; }},
    {"RT-01", Base::moe, [](J j) { j.model.moe.groups = 3; }},
    {"CAP-02", Base::moe, [](J j) { j.techniques.routing.pad_to_capacity = true; }},
    {"CAP-03", Base::moe, [](J j) { j.techniques.paged_stash = true; }},
    {"CAP-04", Base::moe,
     [](J j) {
       j.techniques.paged_stash = true;
       j.techniques.dispatcher = Dispatcher::hybridep;
       j.techniques.fusions = {Fusion::grouped_mlp};
       j.techniques.offload.activation_modules = {OffloadModule::fused_group_mlp};
     }},
    {"DSP-02", Base::moe,
     [](J j) {
       pad(j);
       j.techniques.dispatcher = Dispatcher::deepep;
     }},
    {"DSP-07", Base::moe,
     [](J j) {
       j.techniques.dispatcher = Dispatcher::allgather;
       j.techniques.overlap.insert(Overlap::shared_expert);
     }},
    {"REC-04", Base::moe,
     [](J j) {
       without_tp(j);
       j.techniques.implementation = Implementation::local;
       j.techniques.recompute = {Recompute::moe_act};
     }},
    {"REC-05", Base::moe, [](J j) { j.techniques.recompute = {Recompute::mla_up_proj}; }},
    {"REC-06", Base::moe,
     [](J j) {
       j.techniques.recompute = {Recompute::shared_experts};
       j.techniques.overlap.insert(Overlap::shared_expert);
     }},
    {"REC-07", Base::moe,
     [](J j) {
       j.training.precision = Precision::fp8_delayed;
       j.techniques.recompute = {Recompute::layernorm};
     }},
    {"OFF-03", Base::moe,
     [](J j) { j.techniques.offload.activation_modules = {OffloadModule::attn_proj}; }},
    {"OFF-04", Base::moe,
     [](J j) {
       j.techniques.recompute = {Recompute::moe};
       j.techniques.offload.activation_modules = {OffloadModule::expert_fc1};
     }},
    {"OFF-05", Base::moe,
     [](J j) { j.techniques.offload.activation_modules = {OffloadModule::fused_group_mlp}; }},
    {"OFF-06", Base::moe, [](J j) { j.techniques.offload.fraction = 2; }},
    {"OFF-07", Base::dense, [](J j) { j.techniques.offload.activation_layers = 10; }},
    {"OFF-09", Base::moe,
     [](J j) {
       pad(j);
       j.techniques.cuda_graph = {GraphScope::moe};
       j.techniques.offload.activation_modules = {OffloadModule::core_attn};
     }},
    {"TRI-OFFLOAD", Base::dense,
     [](J j) {
       j.layout.pp = j.layout.vpp = 1;
       j.schedule.kind = layout::ScheduleKind::one_f_one_b;
       j.techniques.offload.activation_layers = 1;
       j.techniques.offload.activation_modules = {OffloadModule::core_attn};
     }},
    {"CG-05", Base::moe, [](J j) { j.techniques.cuda_graph = {GraphScope::mlp}; }},
    {"CG-03", Base::moe, [](J j) { j.techniques.cuda_graph = {GraphScope::moe_preprocess}; }},
    {"CG-04", Base::moe, [](J j) { j.techniques.cuda_graph = {GraphScope::moe}; }},
    {"CG-06", Base::moe,
     [](J j) {
       j.techniques.cuda_graph = {GraphScope::attn};
       j.techniques.recompute = {Recompute::full};
     }},
    {"CG-08", Base::moe,
     [](J j) {
       j.techniques.cuda_graph = {GraphScope::moe_router, GraphScope::moe_preprocess};
       j.techniques.routing.capacity_factor = 1;
     }},
    {"PR-02", Base::moe, [](J j) { j.training.optimizer.fp8_param_gather = true; }},
    {"PR-05", Base::moe,
     [](J j) {
       j.cluster = *hardware::load_cluster("gb200-nvl72", TRIFOLD_SOURCE_DIR);
       j.training.precision = Precision::mxfp8;
       j.training.optimizer.fp8_param_gather = true;
       j.techniques.overlap.insert(Overlap::param_gather_with_optimizer);
     }},
    {"PR-06", Base::moe,
     [](J j) {
       j.training.optimizer.name = OptimizerName::sgd;
       j.training.optimizer.moments = StateType::bf16;
     }},
    {"PR-08", Base::moe, [](J j) { j.techniques.fusions = {Fusion::fp8_output_projection}; }},
    {"PP-09", Base::dense,
     [](J j) {
       j.layout.first_stage_layers = 20;
       j.layout.account_for_loss = true;
     }},
    {"PP-10", Base::dense, [](J j) { j.layout.first_stage_layers = 21; }},  // 59 over 3
    {"PP-11", Base::dense, [](J j) { j.layout.first_stage_layers = 17; }},  // 17 and 21 by 5
    {"LAY-02", Base::dense, [](J j) { stages(j, "Et*20|x|t*20|t*20L"); }},
    {"LAY-03", Base::dense, [](J j) { stages(j, "t*20|t*20|t*20|t*20L"); }},
    {"LAY-04", Base::dense, [](J j) { stages(j, "Et*20|t*20|t*20|t*19L"); }},
    {"LAY-05", Base::dense, [](J j) { stages(j, "Et*20|t*20|t*20|t*20mL"); }},
    {"LAY-06", Base::dense,
     [](J j) {
       stages(j, "Et*20|t*20|t*20|t*20L");
       j.layout.account_for_loss = true;
     }},
    {"OVL-01", Base::moe,
     [](J j) {
       merged(j);
       flat(j);
     }},
    {"OVL-02", Base::moe,
     [](J j) {
       merged(j);
       j.layout.ep = 1;
     }},
    {"OVL-03", Base::moe,
     [](J j) {
       merged(j);
       j.techniques.dispatcher = Dispatcher::allgather;
     }},
    {"OVL-04", Base::moe,
     [](J j) {
       merged(j);
       j.techniques.recompute = {Recompute::moe};
     }},
    {"OVL-05", Base::moe,
     [](J j) {
       merged(j);
       j.techniques.overlap.insert(Overlap::shared_expert);
     }},
    {"OVL-06", Base::moe,
     [](J j) {
       merged(j);
       j.model.mtp_layers = 2;
     }},
    {"OVL-08", Base::moe,
     [](J j) {
       merged(j);
       pad(j);
       j.techniques.cuda_graph = {GraphScope::moe};
     }},
    {"OVL-09", Base::moe,
     [](J j) {
       merged(j);
       j.layout.fsdp = true;
     }},
    {"OVL-10", Base::moe, [](J j) { j.techniques.overlap.insert(Overlap::delay_wgrad); }},
    {"OVL-11", Base::moe,
     [](J j) {
       merged(j);
       j.techniques.overlap.insert(Overlap::delay_wgrad);
       j.techniques.cuda_graph = {GraphScope::attn};
       j.model.attention.qkv_bias = true;
     }},
    {"PP-01", Base::moe, [](J j) { j.model.layers.resize(50, j.model.layers.back()); }},
    {"PP-04", Base::dense, [](J j) { j.layout.vpp = 3; }},  // 20 layers a stage
    {"EP-04", Base::moe,
     [](J j) {
       j.model.linear_bias = true;
       j.model.moe.shared_ffn = 768;
     }},
    {"DSP-03", Base::moe,
     [](J j) {
       j.techniques.dispatcher = Dispatcher::deepep;
       j.layout.ep = 1;
     }},
    {"PP-07", Base::moe, [](J j) { j.training.global_batch_size = 16; }},  // M = 2 < pp
    {"PP-08", Base::moe, [](J j) { j.training.global_batch_size = 48; }},  // 6 % 4 = 2 < pp
    {"TP-05", Base::moe, [](J j) { j.techniques.sequence_parallel = false; }},
    {"TRI-HEADS", Base::moe,
     [](J j) {
       j.techniques.cp_comm = CpComm::a2a;
       j.layout.cp = 2;
       j.model.attention.heads = 6;
     }},
    {"TRI-KV", Base::moe,
     [](J j) {
       j.techniques.cp_comm = CpComm::a2a;
       j.layout.cp = 4;  // 4 KV heads over tp 2 leave 2 for 4 ranks
     }},
    {"TRI-SEQ", Base::moe, [](J j) { j.training.sequence_length = 4097; }},
    {"TRI-ETP", Base::moe,
     [](J j) {
       j.layout.etp = 2;
       j.model.moe.expert_ffn = 767;
     }},
    {"TRI-FFN", Base::moe, [](J j) { j.model.moe.shared_ffn = 769; }},
    {"TRI-PRECISION", Base::moe, [](J j) { j.training.precision = Precision::mxfp8; }},
    {"TRI-DISPATCHER", Base::moe,
     [](J j) {
       j.cluster.gpu.arch = hardware::GpuArch::ampere;
       j.techniques.dispatcher = Dispatcher::deepep;
     }},
    {"TRI-SMS", Base::moe, [](J j) { j.techniques.dispatcher_sms = 132; }},
    {"TRI-LOAD", Base::moe,
     [](J j) { j.techniques.routing.distribution = LoadDistribution::zipf; }},
    {"TRI-CHUNKS", Base::moe, [](J j) { j.schedule.kind = K::one_f_one_b; }},
    {"OVL-13", Base::moe,
     [](J j) { j.techniques.overlap.insert(Overlap::early_attn_release); }},
    {"TRI-MERGE", Base::moe,
     [](J j) {
       merged(j);
       flat(j);
       j.schedule.kind = K::zb_h1;
     },
     Runtime::any},
    {"TRI-DUALPIPE", Base::moe,
     [](J j) {
       flat(j);
       j.schedule.kind = K::dualpipe;
       j.training.global_batch_size = 56;  // 7 micro-batches
     },
     Runtime::any},
    {"TRI-STATIC", Base::moe, [](J j) { j.techniques.cuda_graph = {GraphScope::layer}; }},
    {"TRI-MAMBA", Base::moe, [](J j) { j.techniques.cuda_graph = {GraphScope::mamba}; }},
    {"TRI-LOCAL", Base::dense,
     [](J j) { j.techniques.implementation = Implementation::local; }},
    {"TRI-MODEL", Base::moe, [](J j) { j.model.post_norms = true; }},
    {"TRI-STATES", Base::moe,
     [](J j) { j.training.optimizer.main_params = StateType::bf16; }},
    {"TRI-PARKED", Base::moe,
     [](J j) {
       j.techniques.offload.optimizer = OptimizerOffload::states_parked_on_host;
     }},
    {"TRI-SCHEDULE", Base::moe,
     [](J j) {
       flat(j);
       j.schedule.kind = K::zb_h1;
     }},
    {"TRI-ULYSSES", Base::moe,
     [](J j) {
       without_tp(j);
       j.layout.ulysses_sp = 2;
       j.training.sequence_length = 4098;  // 2 divides it, 2 * 2 does not
     }},
    {"TRI-CP", Base::moe,
     [](J j) {
       without_tp(j);
       j.layout.cp = 2;
       j.model.attention.sinks = true;
     }},
    {"TRI-OVERLAP", Base::moe, [](J j) { j.techniques.overlap.insert(Overlap::intra_op); }},
    {"TRI-COMPRESSION", Base::moe,
     [](J j) { j.techniques.gradient_compression = GradientCompression::bf16_all_to_all; }},
    {"TRI-DISPATCH-FP8", Base::moe,
     [](J j) { j.techniques.dispatch_precision = DispatchPrecision::fp8; }},
    {"TRI-GROUPED", Base::moe,
     [](J j) { j.techniques.grouped_gemm = hardware::GroupedKernel::cutlass; }},
    {"TRI-ECHO", Base::moe, [](J j) { j.techniques.routing.echo_spare_experts = 1; }}};

std::string ids(const std::vector<Verdict>& verdicts) {
  std::string text;
  for (const Verdict& v : verdicts) text += std::string(text.empty() ? "" : " ") + v.rule->id;
  return text;
}

TEST(Legality, BaseJobsAreLegal) {
  EXPECT_EQ(ids(check_all(moe_job())), "");
  EXPECT_EQ(ids(check_all(dense_job())), "");
  EXPECT_EQ(ids(check_all(deepseek_job())), "");
}

TEST(Legality, EveryRuleHasAJobThatBreaksItAlone) {
  const Job moe = moe_job(), dense = dense_job();
  for (const Case& c : kCases) {
    Job job = c.base == Base::moe ? moe : dense;
    c.breaks(job);
    EXPECT_EQ(ids(check_all(job, c.runtime)), c.id);
    const Verdict first = check(job, c.runtime);
    ASSERT_FALSE(first.legal()) << c.id;
    EXPECT_STREQ(first.rule->id, c.id);
    EXPECT_NE(explain(first).find(c.id), std::string::npos);
    // Only Megatron's own refusals are lifted for other runtimes.
    if (first.rule->scope == RuleScope::megatron) {
      EXPECT_TRUE(check(job, Runtime::any).legal()) << c.id;
    }
  }
}

TEST(Legality, TheTableCoversEveryRuleOnce) {
  std::set<std::string> known, tried;
  for (const Rule& rule : rules()) EXPECT_TRUE(known.insert(rule.id).second) << rule.id;
  for (const Case& c : kCases) EXPECT_TRUE(tried.insert(c.id).second) << c.id;
  EXPECT_EQ(known, tried);
  EXPECT_EQ(find_rule("NO-01"), nullptr);
  ASSERT_NE(find_rule("GRID-01"), nullptr);
}

TEST(Legality, IdsAreThoseOfTheSharedTable) {
  const std::string path =
      std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/megatron/legality_rules.json";
  Result<Json> table = read_json(path);
  if (!table) GTEST_SKIP() << table.error().to_string();
  std::set<std::string> shared;
  for (const Json& rule : *table) shared.insert(rule["id"].get<std::string>());
  for (const Rule& rule : rules()) {
    const std::string id = rule.id;
    EXPECT_TRUE(id.rfind("TRI-", 0) == 0 || shared.count(id) == 1) << id;
  }
}

// What Megatron can run is launchable: Transformer Engine's context parallelism by kind of exchange
// (attn_forward_func_with_cp of 2.17.1, which Megatron 0.19 and main pin).
TEST(Legality, ContextParallelismByKindOfExchange) {
  struct Row {
    int ulysses, cp;
    CpComm comm;
    bool plain, windowed, offsets;  // legal for plain attention, with windows, with softmax offsets
  };
  const Row rows[] = {
      {1, 2, CpComm::p2p, true, false, false},     {1, 2, CpComm::all_gather, true, true, false},
      {1, 2, CpComm::a2a, true, true, true},       {2, 1, CpComm::p2p, true, true, true},  // a2a
      {2, 2, CpComm::p2p, true, false, false},  // a2a+p2p
      {1, 2, CpComm::a2a_p2p, false, false, false}};
  for (const Row& row : rows) {
    Job job = moe_job();
    without_tp(job);
    job.layout.ulysses_sp = row.ulysses;
    job.layout.cp = row.cp;
    job.techniques.cp_comm = row.comm;
    EXPECT_EQ(check(job).legal(), row.plain) << row.ulysses << row.cp << ids(check_all(job));
    Job offsets = job;
    offsets.model.attention.sinks = true;
    EXPECT_EQ(check(offsets).legal(), row.offsets) << row.ulysses << row.cp;
    job.model.attention.window = 128;
    job.model.layers[0].windowed = true;
    EXPECT_EQ(check(job).legal(), row.windowed) << row.ulysses << row.cp;
  }
}

// --ddp-reduce-scatter-with-fp32-accumulation: on BF16 gradients, of a sharded optimizer.
TEST(Legality, OneShotReductionRunsWhereMegatronHasIt) {
  Job job = moe_job();
  job.techniques.gradient_compression = GradientCompression::bf16_all_to_all;
  job.training.optimizer.grad_reduce = StateType::bf16;
  EXPECT_EQ(ids(check_all(job)), "");
  Job whole = job;
  whole.training.optimizer.distributed = false;
  whole.techniques.overlap.erase(Overlap::param_gather);
  EXPECT_EQ(ids(check_all(whole)), "TRI-COMPRESSION");
  job.layout.fsdp = true;
  EXPECT_EQ(ids(check_all(job)), "TRI-COMPRESSION");
}

// EP 8 with CP 8: the grids need 8 GPUs, where "EP divides DP" needed 64.
TEST(Legality, FoldingServesEp8AndCp8OnEightGpus) {
  Job job = moe_job();
  job.gpus = 8;
  job.layout = {};
  job.layout.cp = job.layout.ep = 8;
  job.schedule.kind = K::one_f_one_b;
  job.techniques.sequence_parallel = false;
  EXPECT_EQ(ids(check_all(job)), "");
}

TEST(Legality, CheckIsFast) {
  const Job job = deepseek_job();
  const layout::Pipeline pipeline = layout::build_pipeline(job.model, job.layout).value();
  const int rounds = 100000;
  int legal = 0;
  const std::clock_t start = std::clock();  // CPU time: other processes do not count
  for (int i = 0; i < rounds; ++i) legal += check(job, pipeline).legal() ? 1 : 0;
  const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(legal, rounds);
  std::printf("check: %.0f ns\n", spent / rounds * 1e9);
  EXPECT_LT(spent / rounds, 10e-6);  // under 300 ns in Release; the bound is for sanitizers
}

}  // namespace
}  // namespace trifold::job

// SPDX-License-Identifier: Apache-2.0
// Everything of a Job but its model and cluster.

#include <algorithm>
#include <cstdlib>

#include "launch/emitter.h"
#include "launch/importer.h"

namespace trifold::launch {
namespace {

using job::Fusion;
using job::GraphScope;
using job::Overlap;
using job::Precision;
using job::StateType;

template <class E, std::size_t N>
void take(Importer& in, const char* flag, const std::vector<std::string>& given,
          const Token<E> (&table)[N], EnumSet<E>& out) {
  for (const std::string& word : given) {
    bool known = false;
    for (const Token<E>& token : table)
      if (token.name == word) out.insert(token.value), known = true;
    if (!known) in.lost(std::string(flag) + " " + word);
  }
}

Precision read_precision(Importer& in) {
  const std::string recipe = in.text("--fp8-recipe");
  in.mark("--fp4-recipe");
  if (in.has("--fp4-format")) return Precision::nvfp4;
  if (!in.has("--fp8-format")) return Precision::bf16;
  if (recipe == "tensorwise") return Precision::fp8_tensor;
  if (recipe == "blockwise") return Precision::fp8_block;
  if (recipe == "mxfp8") return Precision::mxfp8;
  if (recipe != "delayed") in.lost("--fp8-recipe " + recipe + ": taken as delayed");
  return Precision::fp8_delayed;
}

StateType state(Importer& in, const char* flag) {
  const std::string word = in.text(flag);
  for (const Token<StateType>& token : job::kStateTypes)
    if (token.name == word) return token.value;
  return StateType::fp32;
}

void read_optimizer(Importer& in, job::Training& t) {
  job::Optimizer& o = t.optimizer;
  const std::string name = in.text("--optimizer");
  const bool muon = name == "muon" || name == "dist_muon";
  o.name = name == "sgd" ? job::OptimizerName::sgd
           : muon        ? job::OptimizerName::muon
                         : job::OptimizerName::adam;
  if (name != "adam" && name != "sgd" && !muon) in.lost("--optimizer " + name + ": taken as adam");
  o.distributed = in.has("--use-distributed-optimizer") || in.settings.distributed_optimizer ||
                  name == "dist_muon";
  in.mark("--use-precision-aware-optimizer");
  o.main_params = state(in, "--main-params-dtype");
  o.main_grads = state(in, "--main-grads-dtype");
  o.moments = state(in, "--exp-avg-dtype");
  if (state(in, "--exp-avg-sq-dtype") != o.moments)
    in.lost("--exp-avg-sq-dtype differs from --exp-avg-dtype: taken as equal");
  const bool low = in.has("--grad-reduce-in-bf16") || o.main_grads == StateType::bf16;
  o.grad_reduce = low ? StateType::bf16 : StateType::fp32;
  o.fp8_param_gather = in.has("--fp8-param-gather") || in.has("--fp4-param-gather");
  in.mark("--fp4-param-gather");
  in.mark("--reuse-grad-buf-for-mxfp8-param-ag");
  in.mark("--accumulate-allreduce-grads-in-fp32");
}

void read_context(Importer& in, job::Job& job) {
  const std::vector<std::string> kinds = in.list("--cp-comm-type");
  const std::vector<std::string> levels = in.list("--hierarchical-context-parallel-sizes");
  job.layout.cp = in.size("--context-parallel-size");
  if (kinds.empty()) return;
  if (kinds.size() > 1) in.lost("--cp-comm-type: one kind per layer, taken as the first");
  if (kinds[0] == "a2a+p2p" && levels.size() == 2) {
    job.layout.ulysses_sp = std::atoi(levels[0].c_str());
    job.layout.cp = std::atoi(levels[1].c_str());
    return;
  }
  for (const Token<job::CpComm>& token : job::kCpComms)
    if (token.name == kinds[0] && job.layout.cp > 1) job.techniques.cp_comm = token.value;
}

void read_dispatcher(Importer& in, job::Techniques& t) {
  const Settings& s = in.settings;
  for (const char* flag : {"--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend",
                           "--moe-enable-deepep", "--moe-grouped-gemm",
                           "--moe-router-padding-for-quantization", "--moe-router-padding-for-fp8"})
    in.mark(flag);
  if (!s.moe) return;
  t.dispatcher = s.dispatcher == "allgather" ? job::Dispatcher::allgather
                 : s.backend == "deepep"     ? job::Dispatcher::deepep
                 : s.dispatcher == "flex"    ? job::Dispatcher::hybridep
                                             : job::Dispatcher::alltoall;
  if (s.backend == "ncclep") in.lost("--moe-flex-dispatcher-backend ncclep: taken as hybridep");
  const char* own = s.backend == "deepep" ? "--moe-deepep-num-sms" : "--moe-hybridep-num-sms";
  if (s.dispatcher == "flex")
    t.dispatcher_sms = in.size("--moe-flex-dispatcher-num-sms", in.size(own, 0));
  if (in.has("--moe-router-force-load-balancing")) t.routing.balance = job::Balance::forced;
  t.routing.capacity_factor = std::max(0.0, in.real("--moe-expert-capacity-factor"));
  t.routing.pad_to_capacity = in.has("--moe-pad-expert-input-to-capacity");
  t.paged_stash = in.has("--moe-paged-stash");
}

void read_overlap(Importer& in, job::Job& job) {
  struct Switch {
    Overlap overlap;
    const char* flag;
  };
  static constexpr Switch kSwitches[] = {
      {Overlap::grad_reduce, "--overlap-grad-reduce"},
      {Overlap::param_gather, "--overlap-param-gather"},
      {Overlap::param_gather_with_optimizer, "--overlap-param-gather-with-optimizer-step"},
      {Overlap::ep_a2a, "--overlap-moe-expert-parallel-comm"},
      {Overlap::delay_wgrad, "--delay-wgrad-compute"},
      {Overlap::early_attn_release, "--ep-overlap-early-attn-memory-release"},
      {Overlap::tp_comm, "--tp-comm-overlap"},
      {Overlap::shared_expert, "--moe-shared-expert-overlap"}};
  for (const Switch& s : kSwitches)
    if (in.has(s.flag)) job.techniques.overlap.insert(s.overlap);
  const bool sends_wait = in.has("--no-overlap-p2p-communication");
  if (job.layout.vpp > 1 && !sends_wait) job.techniques.overlap.insert(Overlap::pipeline_p2p);
  if (job.layout.fsdp && job.techniques.has(Overlap::grad_reduce) &&
      job.techniques.has(Overlap::param_gather))
    job.techniques.overlap.insert(Overlap::fsdp);
}

void read_recompute(Importer& in, job::Techniques& t) {
  for (const char* flag : {"--recompute-granularity", "--recompute-modules",
                           "--recompute-activations", "--moe-layer-recompute"})
    in.mark(flag);
  if (in.settings.full_recompute) {
    t.recompute.insert(job::Recompute::full);
    if (in.text("--recompute-method") != "uniform" || in.integer("--recompute-num-layers") != 1)
      in.lost("--recompute-method " + in.text("--recompute-method") +
              ": full recompute is taken as uniform, one layer at a time");
    return;
  }
  if (in.settings.selective)
    take(in, "--recompute-modules", in.settings.recompute, job::kRecomputes, t.recompute);
}

void read_graphs(Importer& in, job::Techniques& t) {
  for (const char* flag :
       {"--cuda-graph-impl", "--cuda-graph-modules", "--cuda-graph-scope", "--enable-cuda-graph",
        "--external-cuda-graph", "--moe-pad-experts-for-cuda-graph-inference"})
    in.mark(flag);
  const Settings& s = in.settings;
  if (s.graph_impl == "none") return;
  if (s.graph_impl == "full_iteration")
    t.cuda_graph.insert(GraphScope::full_iteration);
  else if (s.graph_modules.empty())
    t.cuda_graph.insert(GraphScope::layer);
  else
    take(in, "--cuda-graph-scope", s.graph_modules, job::kGraphScopes, t.cuda_graph);
}

void read_fusions(Importer& in, job::Job& job) {
  job::Techniques& t = job.techniques;
  if (in.has("--moe-router-fusion")) t.fusions.insert(Fusion::router);
  if (in.has("--moe-permute-fusion")) t.fusions.insert(Fusion::permute);
  if (in.has("--cross-entropy-loss-fusion")) t.fusions.insert(Fusion::cross_entropy);
  in.mark("--cross-entropy-fusion-impl");
  if (in.has("--fp8-output-proj")) t.fusions.insert(Fusion::fp8_output_projection);
  if (in.has("--use-transformer-engine-op-fuser") && job.model.is_moe())
    t.fusions.insert(Fusion::grouped_mlp);
  if (in.has("--moe-expert-rank-capacity-factor") &&
      (!needs_rank_capacity(job) || in.real("--moe-expert-rank-capacity-factor") != kRankCapacity))
    in.lost("--moe-expert-rank-capacity-factor " + in.text("--moe-expert-rank-capacity-factor"));
}

void read_offload(Importer& in, job::Techniques& t) {
  if (in.has("--fine-grained-activation-offloading")) {
    take(in, "--offload-modules", in.list("--offload-modules"), job::kOffloadModules,
         t.offload.activation_modules);
    t.offload.fraction = in.real("--activation-offload-fraction", 1);
    if (t.has(GraphScope::full_iteration))
      in.mark("--fine-grained-offloading-max-inflight-offloads");
  }
  t.offload.activation_layers = in.size("--cpu-offloading-num-layers", 0);
  if (in.has("--optimizer-cpu-offload")) {
    t.offload.optimizer = job::OptimizerOffload::cpu_adam;
    if (in.real("--optimizer-offload-fraction", 1) != 1) in.lost("--optimizer-offload-fraction");
  }
  in.mark("--overlap-cpu-optimizer-d2h-h2d");
  if (in.has("--offload-optimizer-states"))
    t.offload.optimizer = job::OptimizerOffload::states_parked_on_host;
}

}  // namespace

void import_training(Importer& in) {
  job::Training& t = in.result.job.training;
  t.sequence_length = in.need("--seq-length");
  t.micro_batch_size = in.need("--micro-batch-size");
  in.mark("--global-batch-size");
  t.global_batch_size = in.settings.global_batch;
  t.precision = read_precision(in);
  if (in.has("--fp16")) in.lost("--fp16: taken as bf16");
  read_optimizer(in, t);
}

void import_layout(Importer& in) {
  job::Job& job = in.result.job;
  layout::Layout& l = job.layout;
  const Settings& s = in.settings;
  l.tp = in.size("--tensor-model-parallel-size");
  l.pp = in.size("--pipeline-model-parallel-size");
  l.ep = in.size("--expert-model-parallel-size");
  l.etp = in.size("--expert-tensor-parallel-size", l.tp);
  if (!s.moe) l.etp = 1, l.ep = 1;
  l.vpp = static_cast<int>(std::clamp<std::int64_t>(s.vpp, 1, 1 << 20));
  l.pipeline_layout = in.text("--pipeline-model-parallel-layout");
  in.mark("--num-virtual-stages-per-pipeline-rank");
  in.mark("--num-layers-per-virtual-pipeline-stage");
  l.account_for_embedding = in.has("--account-for-embedding-in-pipeline-split");
  l.account_for_loss = in.has("--account-for-loss-in-pipeline-split");
  l.first_stage_layers = in.size("--decoder-first-pipeline-num-layers", 0);
  l.last_stage_layers = in.size("--decoder-last-pipeline-num-layers", 0);
  if (in.has("--use-tp-pp-dp-mapping")) l.order = layout::RankOrder::tp_cp_ep_pp_dp;
  l.fsdp = in.has("--use-megatron-fsdp");
  const std::string strategy = in.text("--data-parallel-sharding-strategy");
  if (l.fsdp && strategy != "optim_grads_params")
    in.lost("--data-parallel-sharding-strategy " + strategy + ": taken as optim_grads_params");
  job.techniques.sequence_parallel = in.has("--sequence-parallel") && l.tp > 1;
  read_context(in, job);
  job.schedule.kind =
      l.vpp > 1 ? layout::ScheduleKind::interleaved : layout::ScheduleKind::one_f_one_b;
  job.schedule.microbatch_group_size =
      in.size("--microbatch-group-size-per-virtual-pipeline-stage", 0);
}

void import_techniques(Importer& in) {
  job::Job& job = in.result.job;
  job::Techniques& t = job.techniques;
  if (in.text("--transformer-impl") == "local") {
    t.implementation = job::Implementation::local;
    for (const char* flag : {"--no-masked-softmax-fusion", "--no-persist-layer-norm",
                             "--no-gradient-accumulation-fusion"})
      in.mark(flag);
  }
  in.mark("--no-rope-fusion");
  if (in.has("--ddp-reduce-scatter-with-fp32-accumulation"))
    t.gradient_compression = job::GradientCompression::bf16_all_to_all;
  read_dispatcher(in, t);
  read_overlap(in, job);
  read_recompute(in, t);
  read_graphs(in, t);
  read_fusions(in, job);
  read_offload(in, t);
}

}  // namespace trifold::launch

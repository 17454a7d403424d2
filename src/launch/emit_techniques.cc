// SPDX-License-Identifier: Apache-2.0
// How the layout runs: dispatcher, overlap, recompute, graphs, fusions, offload.

#include <algorithm>

#include <fmt/format.h>

#include "launch/emitter.h"

namespace trifold::launch {
namespace {

using job::Dispatcher;
using job::Fusion;
using job::GraphScope;
using job::Overlap;
using job::Recompute;

template <class E, std::size_t N>
std::vector<std::string> names(const Token<E> (&table)[N], EnumSet<E> set) {
  std::vector<std::string> out;
  for (const Token<E>& token : table)
    if (set.contains(token.value)) out.emplace_back(token.name);
  return out;
}

void emit_dispatcher(Emitter& out) {
  const job::Techniques& t = out.job.techniques;
  const bool flex = is_flex(t.dispatcher);
  out.put("--moe-token-dispatcher-type", t.dispatcher == Dispatcher::allgather ? "allgather"
                                         : flex                                ? "flex"
                                                                               : "alltoall");
  if (flex) {
    const bool deepep = t.dispatcher == Dispatcher::deepep;
    out.put("--moe-flex-dispatcher-backend", deepep ? "deepep" : "hybridep");
    if (t.dispatcher_sms > 0) {
      if (out.has("--moe-flex-dispatcher-num-sms"))
        out.put("--moe-flex-dispatcher-num-sms", t.dispatcher_sms);
      else
        out.put(deepep ? "--moe-deepep-num-sms" : "--moe-hybridep-num-sms", t.dispatcher_sms);
    }
  }
  if (t.dispatch_precision == job::DispatchPrecision::fp8)
    out.refuse("techniques.dispatch_precision", "Megatron's dispatchers send tokens in bf16");
  if (out.job.techniques.implementation == job::Implementation::transformer_engine)
    out.put("--moe-grouped-gemm");
  const bool low = is_low_precision(out.job.training.precision);
  if (low && t.dispatcher != Dispatcher::allgather)
    out.put("--moe-router-padding-for-quantization");
}

void emit_routing(Emitter& out) {
  const job::Techniques& t = out.job.techniques;
  if (t.routing.balance == job::Balance::forced) out.put("--moe-router-force-load-balancing");
  if (t.routing.capacity_factor > 0)
    out.put("--moe-expert-capacity-factor", t.routing.capacity_factor);
  if (t.routing.pad_to_capacity) out.put("--moe-pad-expert-input-to-capacity");
  if (t.routing.echo_spare_experts > 0)
    out.refuse("techniques.routing.echo_spare_experts", "ECHO is not in Megatron");
  if (!t.memory_efficient_permutation)
    out.note("Megatron always applies probabilities before the second expert linear");
  if (needs_rank_capacity(out.job)) {
    if (t.dispatcher != Dispatcher::hybridep || !t.has(Fusion::grouped_mlp))
      out.refuse("techniques.dispatcher",
                 "static shapes for dropless MoE need the hybridep dispatcher and the grouped_mlp "
                 "fusion");
    out.put("--moe-expert-rank-capacity-factor", kRankCapacity);
    out.note(fmt::format("static shapes: a rank drops tokens beyond {} times the balanced load",
                         kRankCapacity));
  }
  if (t.paged_stash) out.put("--moe-paged-stash");
}

// What Megatron learnt in 0.18 and refuses before, though it has the flags.
void refuse_young_overlaps(Emitter& out) {
  const job::Job& job = out.job;
  const job::Techniques& t = job.techniques;
  if (out.options.version >= MegatronVersion::v0_18) return;
  const std::string version(token_name(kMegatronVersions, out.options.version));
  if (t.has(Overlap::shared_expert) && job.model.moe.shared_ffn > 0 && is_flex(t.dispatcher))
    out.refuse(
        "techniques.overlap",
        "Megatron " + version + " overlaps shared experts with the alltoall dispatcher alone",
        "drop shared_expert, or use alltoall");
  if (!t.has(Overlap::ep_a2a)) return;
  if (job.model.mtp_layers > 0 && job.layout.pp == 1)
    out.refuse("techniques.overlap",
               "Megatron " + version + " has no ep_a2a overlap beside MTP without a pipeline",
               "drop ep_a2a, or raise pp");
  if (t.has(GraphScope::full_iteration))
    out.refuse("techniques.overlap",
               "Megatron " + version + " has no ep_a2a overlap in a graph of the whole iteration",
               "drop one of the two");
}

void emit_overlap(Emitter& out) {
  const job::Techniques& t = out.job.techniques;
  refuse_young_overlaps(out);
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
    if (t.has(s.overlap)) out.put(s.flag);
  if (t.has(Overlap::fsdp)) {
    if (!t.has(Overlap::grad_reduce)) out.put("--overlap-grad-reduce");
    if (!t.has(Overlap::param_gather)) out.put("--overlap-param-gather");
  }
  const bool interleaved = out.job.schedule.kind == layout::ScheduleKind::interleaved;
  if (interleaved && !t.has(Overlap::pipeline_p2p)) out.put("--no-overlap-p2p-communication");
  if (!interleaved && t.has(Overlap::pipeline_p2p))
    out.note("pipeline sends overlap only under the interleaved schedule");
  if (t.has(Overlap::inter_op) || t.has(Overlap::intra_op))
    out.refuse("techniques.overlap",
               "inter_op and intra_op overlap are MegaScale's, not Megatron's",
               "use ep_a2a, tp_comm or shared_expert");
}

void emit_recompute(Emitter& out) {
  const job::Techniques& t = out.job.techniques;
  if (t.recompute.empty()) return;
  if (t.has(Recompute::full)) {
    out.put("--recompute-granularity", "full");
    out.put("--recompute-method", "uniform");
    out.put("--recompute-num-layers", 1);
    return;
  }
  out.put("--recompute-granularity", "selective");
  out.put_values("--recompute-modules", names(job::kRecomputes, t.recompute));
}

// --cuda-graph-scope is the spelling that every version takes; whole iterations moved from a scope
// to an implementation in 0.18.
void emit_graphs(Emitter& out) {
  const job::Techniques& t = out.job.techniques;
  if (t.cuda_graph.empty()) return;
  if (t.has(GraphScope::full_iteration)) {
    if (out.options.version >= MegatronVersion::v0_18) {
      out.put("--cuda-graph-impl", "full_iteration");
    } else {
      out.put("--cuda-graph-impl", "local");
      out.put("--cuda-graph-scope", "full_iteration");
      if (out.job.model.is_moe() && out.job.layout.ep > 1)  // asked for, though it is inference's
        out.put("--moe-pad-experts-for-cuda-graph-inference");
    }
    return;
  }
  out.put("--cuda-graph-impl", "transformer_engine");
  if (t.has(GraphScope::layer)) return;  // no scope: the whole layer
  out.put_values("--cuda-graph-scope", names(job::kGraphScopes, t.cuda_graph));
}

void emit_fusions(Emitter& out) {
  const job::Techniques& t = out.job.techniques;
  const bool moe = out.job.model.is_moe();
  if (t.has(Fusion::router) && moe) out.put("--moe-router-fusion");
  if (t.has(Fusion::permute) && moe) out.put("--moe-permute-fusion");
  if (t.has(Fusion::grouped_mlp) && moe) out.put("--use-transformer-engine-op-fuser");
  if (t.has(Fusion::cross_entropy)) {
    out.put("--cross-entropy-loss-fusion");
    out.put("--cross-entropy-fusion-impl", "native");
  }
  if (t.has(Fusion::fp8_output_projection)) out.put("--fp8-output-proj");
  if (t.has(Fusion::fp8_attention))
    out.note("FP8 attention has no Megatron flag: only the Bridge overrides carry it");
}

void emit_offload(Emitter& out) {
  const job::Offload& o = out.job.techniques.offload;
  if (!o.activation_modules.empty()) {
    out.put("--fine-grained-activation-offloading");
    out.put_values("--offload-modules", names(job::kOffloadModules, o.activation_modules));
    if (o.fraction != 1.0) out.put("--activation-offload-fraction", o.fraction);
    if (out.job.techniques.has(GraphScope::full_iteration))  // asked for there; one copy a time
      out.put("--fine-grained-offloading-max-inflight-offloads", 1);
  }
  if (o.activation_layers > 0) out.put("--cpu-offloading-num-layers", o.activation_layers);
  switch (o.optimizer) {
    case job::OptimizerOffload::none:
      break;
    case job::OptimizerOffload::cpu_adam:
      out.put("--optimizer-cpu-offload");
      out.put("--overlap-cpu-optimizer-d2h-h2d");
      break;
    case job::OptimizerOffload::states_parked_on_host:
      out.put("--offload-optimizer-states");
  }
}

void emit_implementation(Emitter& out) {
  const bool local = out.job.techniques.implementation == job::Implementation::local;
  out.put("--transformer-impl", local ? "local" : "transformer_engine");
  if (!local) return;
  for (const char* flag : {"--no-rope-fusion", "--no-masked-softmax-fusion",
                           "--no-persist-layer-norm", "--no-gradient-accumulation-fusion"})
    out.put(flag);
}

std::string connections(const job::Job& job) {
  return job.techniques.has(Overlap::ep_a2a) ? "32" : "1";
}

}  // namespace

void emit_techniques(Emitter& out) {
  if (out.job.model.is_moe()) {
    emit_dispatcher(out);
    emit_routing(out);
  }
  emit_overlap(out);
  emit_recompute(out);
  emit_graphs(out);
  emit_fusions(out);
  emit_offload(out);
  emit_implementation(out);
}

void emit_run(Emitter& out) {
  out.put("--mock-data");
  out.put("--tokenizer-type", "NullTokenizer");
  out.put("--vocab-size", out.job.model.vocab);
  out.put("--make-vocab-size-divisible-by", 128);
  out.put("--train-iters", out.options.train_iterations);
  out.put("--lr", 1e-4);
  out.put("--min-lr", 1e-5);
  out.put("--lr-decay-style", "cosine");
  out.put("--weight-decay", 0.1);
  out.put("--clip-grad", 1.0);
  out.put("--adam-beta1", 0.9);
  out.put("--adam-beta2", 0.95);
  out.put("--eval-iters", 0);
  out.put("--eval-interval", 1000);  // Megatron divides by it even when it never evaluates
  out.put("--distributed-timeout-minutes", 60);
  out.put("--no-check-for-nan-in-loss-and-grad");
  out.put("--manual-gc");
  out.put("--manual-gc-interval", 10);
  const bool with_step = out.job.techniques.has(Overlap::param_gather_with_optimizer);
  out.put("--ckpt-format", out.job.layout.fsdp ? "fsdp_dtensor"
                           : with_step         ? "torch"
                                               : "torch_dist");
  if (with_step)
    out.note("Megatron overlaps the gather with the optimizer step under torch checkpoints alone");
  out.put("--log-interval", 1);
  out.put("--log-throughput");
}

void emit_environment(Emitter& out) {
  const job::Job& job = out.job;
  const job::Techniques& t = job.techniques;
  Environment& env = out.plan.environment;
  if (!job.layout.fsdp) env["CUDA_DEVICE_MAX_CONNECTIONS"] = connections(job);
  env["NCCL_NVLS_ENABLE"] = "0";
  env["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "1";
  env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True";
  env["TORCH_NCCL_AVOID_RECORD_STREAMS"] = "1";
  if (t.has(Overlap::ep_a2a) && is_flex(t.dispatcher)) {
    const std::string margin = std::to_string(t.dispatcher_sms > 0 ? t.dispatcher_sms : 20);
    env["NVTE_FWD_LAYERNORM_SM_MARGIN"] = margin;
    env["NVTE_BWD_LAYERNORM_SM_MARGIN"] = margin;
  }
  if (!t.cuda_graph.empty()) env["NCCL_GRAPH_REGISTER"] = "0";
  if (!t.offload.activation_modules.empty()) env["NVTE_CPU_OFFLOAD_V1"] = "1";
  if (t.dispatcher == Dispatcher::hybridep && job.model.is_moe()) {
    const hardware::Cluster& c = job.cluster;
    const int together = std::min(job.layout.ep * job.layout.etp, c.gpus_used_per_domain);
    env["NVLINK_DOMAIN_SIZE"] = std::to_string(c.domain_gpus);
    env["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] = std::to_string(together);
    env["USE_MNNVL"] = c.domain_gpus > c.gpus_per_node ? "1" : "0";
    env["NUM_OF_TOKENS_PER_CHUNK_COMBINE_API"] = "128";
  }
}

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#include "job/legality.h"

#include <fmt/format.h>

#include "base/math.h"

// Rules in the order Megatron objects: sizes, validate_args, TransformerConfig, layer assignment
// and what follows. Each group returns true once the first broken rule is known and nobody wants
// more. Structural rules about sizes come first even where Megatron would only fail later, because
// every other number (dp, micro-batches) is computed from them.

namespace trifold::job {

namespace {

enum class R : std::uint8_t {
#define RULE(name, id, scope, reason, fix) name,
#include "job/rules.inc"
#undef RULE
  count
};

constexpr Rule kRules[] = {
#define RULE(name, id, scope, reason, fix) {id, RuleScope::scope, reason, fix},
#include "job/rules.inc"
#undef RULE
};

struct Checker {
  const Job& job;
  Runtime runtime;
  std::vector<Verdict>* all = nullptr;  // nullptr: stop at the first
  Verdict first;

  bool stop_if(bool broken, R rule, std::int64_t left = 0, std::int64_t right = 0) {
    if (!broken) return false;
    const Rule& r = kRules[static_cast<std::size_t>(rule)];
    if (r.scope == RuleScope::megatron && runtime == Runtime::any) return false;
    const Verdict verdict{&r, left, right};
    if (first.legal()) first = verdict;
    if (all == nullptr) return true;
    all->push_back(verdict);
    return false;
  }
};

bool has_windows(const model::Model& m) {
  if (m.attention.window == 0) return false;
  for (const model::LayerKind& layer : m.layers)
    if (layer.windowed) return true;
  return false;
}

// Every later number rests on these, so a broken size ends the check: true.
bool sizes(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const std::int64_t dense = std::int64_t{l.tp} * l.cp * l.ulysses_sp;
  const std::int64_t expert = std::int64_t{l.etp} * l.ep;
  const bool dense_fits = divides(dense * l.pp, j.gpus);
  const bool expert_fits = divides(expert * l.pp, j.gpus);
  if (c.stop_if(j.gpus > j.cluster.max_gpus, R::tri_gpus, j.gpus, j.cluster.max_gpus) ||
      c.stop_if(!dense_fits, R::grid_01, j.gpus, dense * l.pp) ||
      c.stop_if(!expert_fits, R::grid_02, j.gpus, expert * l.pp) || !dense_fits || !expert_fits)
    return true;
  const std::int64_t batch = j.training.micro_batch_size * j.dp();
  const bool batch_fits = divides(batch, j.training.global_batch_size);
  return c.stop_if(!batch_fits, R::grid_09, j.training.global_batch_size, batch) || !batch_fits ||
         c.stop_if(l.order == layout::RankOrder::tp_cp_ep_pp_dp && l.pp > 1 && dense != expert,
                   R::grid_04, j.dp(), j.edp());
}

bool arguments(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const Techniques& t = j.techniques;
  const Optimizer& o = j.training.optimizer;
  const std::int64_t s = j.training.sequence_length;
  const bool sharded = o.distributed || l.fsdp;
  const bool no_overlap = !t.has(Overlap::pipeline_p2p);
  return c.stop_if(l.vpp > 1 && l.pp < (no_overlap ? 3 : 2) &&
                       j.schedule.kind == layout::ScheduleKind::interleaved,
                   R::pp_05, l.vpp, l.pp) ||
         c.stop_if(l.cp > 1 && s % (2 * l.cp) != 0, R::cp_01, s, 2 * l.cp) ||
         c.stop_if(j.model.rope.none && j.model.max_position > 0 && s > j.model.max_position,
                   R::seq_01, j.model.max_position, s) ||
         c.stop_if(t.has(Overlap::tp_comm) && !t.sequence_parallel, R::tp_07) ||
         c.stop_if(!j.model.is_moe() && l.ep > 1, R::ep_02, l.ep, 0) ||
         c.stop_if(j.model.is_moe() && !divides(l.ep, j.model.moe.experts), R::ep_01,
                   j.model.moe.experts, l.ep) ||
         c.stop_if(j.model.mtp_layers > 0 && j.model.rope.none, R::mtp_01) ||
         c.stop_if(t.has(Overlap::param_gather) && !(sharded && t.has(Overlap::grad_reduce)),
                   R::ddp_01) ||
         c.stop_if(t.has(Overlap::param_gather_with_optimizer) &&
                       !(o.distributed && t.has(Overlap::param_gather) && l.vpp > 1 && !l.fsdp),
                   R::ddp_02) ||
         c.stop_if(t.has(Recompute::full) && t.recompute.bits() != EnumSet{Recompute::full}.bits(),
                   R::rec_02) ||
         c.stop_if(
             !t.offload.activation_modules.empty() && t.implementation == Implementation::local,
             R::off_01) ||
         c.stop_if(t.offload.optimizer == OptimizerOffload::cpu_adam && o.fp8_param_gather &&
                       j.training.precision != Precision::fp8_delayed,
                   R::off_08) ||
         c.stop_if((t.has(GraphScope::full_iteration) &&
                    t.cuda_graph.bits() != EnumSet{GraphScope::full_iteration}.bits()) ||
                       (t.has(GraphScope::layer) &&
                        t.cuda_graph.bits() != EnumSet{GraphScope::layer}.bits()),
                   R::cg_02) ||
         c.stop_if(l.fsdp && o.name == OptimizerName::muon, R::fsdp_04);
}

bool model_rules(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const model::Attention& a = j.model.attention;
  const model::Moe& m = j.model.moe;
  const bool gqa = a.kind == model::AttentionKind::gqa;
  if (c.stop_if(!divides(l.tp, a.heads), R::tp_01, a.heads, l.tp) ||
      c.stop_if(gqa && !divides(l.tp, a.kv_heads) && !divides(a.kv_heads, l.tp), R::tp_02,
                a.kv_heads, l.tp))
    return true;
  if (!j.model.is_moe()) return false;
  return c.stop_if(j.model.linear_bias && l.etp > 1, R::ep_03, l.etp, 1) ||
         c.stop_if(m.expert_bias && m.score == model::RouterScore::softmax, R::rt_02) ||
         c.stop_if(m.top_k == 1 && m.score == model::RouterScore::softmax && m.normalize_top_k,
                   R::rt_03) ||
         c.stop_if(m.groups > 1 && (!divides(m.groups, m.experts) || m.top_groups > m.groups),
                   R::rt_01, m.experts, m.groups) ||
         c.stop_if(m.shared_ffn > 0 && j.model.linear_bias, R::ep_04);
}

bool offloads_experts(const Offload& offload) {
  using M = OffloadModule;
  const EnumSet<M>& off = offload.activation_modules;
  return off.contains(M::expert_fc1) || off.contains(M::moe_act) ||
         off.contains(M::fused_group_mlp);
}

bool moe_rules(Checker& c) {
  const Job& j = c.job;
  const Techniques& t = j.techniques;
  if (!j.model.is_moe()) return false;
  const bool inside = offloads_experts(t.offload);
  // Dropless MoE in a graph of the whole iteration is sized by a capacity a rank, as a stash is.
  const bool sized =
      t.paged_stash || (t.cuda_graph.bits() == EnumSet{GraphScope::full_iteration}.bits() &&
                        !t.routing.pad_to_capacity && t.dispatcher == Dispatcher::hybridep);
  const bool hybrid = t.dispatcher == Dispatcher::hybridep;
  return c.stop_if(t.routing.pad_to_capacity && t.routing.capacity_factor <= 0, R::cap_02) ||
         c.stop_if(sized && !(hybrid && t.has(Fusion::grouped_mlp)), R::cap_03) ||
         c.stop_if(t.paged_stash && (inside || t.offload.activation_layers > 0), R::cap_04) ||
         c.stop_if(t.dispatcher == Dispatcher::deepep && t.routing.pad_to_capacity, R::dsp_02) ||
         c.stop_if(t.has(Overlap::shared_expert) && t.dispatcher == Dispatcher::allgather,
                   R::dsp_07) ||
         c.stop_if(t.has(Recompute::shared_experts) && t.has(Overlap::shared_expert), R::rec_06) ||
         c.stop_if(t.dispatcher == Dispatcher::deepep && j.layout.ep * j.layout.etp == 1,
                   R::dsp_03);
}

bool memory_rules(Checker& c) {
  const Job& j = c.job;
  const Techniques& t = j.techniques;
  using M = OffloadModule;
  const EnumSet<M>& off = t.offload.activation_modules;
  const bool partial_graph = !t.cuda_graph.empty() && !t.has(GraphScope::full_iteration);
  const std::int64_t parked = t.offload.activation_layers;
  return c.stop_if(t.has(Recompute::moe_act) &&
                       (!j.model.is_moe() || t.implementation == Implementation::local),
                   R::rec_04) ||
         c.stop_if(
             t.has(Recompute::mla_up_proj) && j.model.attention.kind != model::AttentionKind::mla,
             R::rec_05) ||
         c.stop_if(j.training.precision == Precision::fp8_delayed &&
                       (t.has(Recompute::moe_act) || t.has(Recompute::layernorm)),
                   R::rec_07) ||
         c.stop_if(off.contains(M::attn_proj) && !off.contains(M::core_attn), R::off_03) ||
         c.stop_if(t.has(Recompute::moe) && offloads_experts(t.offload), R::off_04) ||
         c.stop_if(off.contains(M::fused_group_mlp) &&
                       (!t.has(Fusion::grouped_mlp) || off.contains(M::expert_fc1) ||
                        off.contains(M::moe_act)),
                   R::off_05) ||
         c.stop_if(!(t.offload.fraction >= 0 && t.offload.fraction <= 1), R::off_06) ||
         c.stop_if(parked > 0 && (j.layout.pp > 1 || !t.recompute.empty() || partial_graph ||
                                  parked >= j.model.num_layers()),
                   R::off_07, parked, j.model.num_layers()) ||
         c.stop_if(!off.empty() && t.has(GraphScope::moe), R::off_09) ||
         c.stop_if(!off.empty() && parked > 0, R::tri_offload);
}

bool graph_rules(Checker& c) {
  const Job& j = c.job;
  const Techniques& t = j.techniques;
  if (t.cuda_graph.empty()) return false;
  const bool moe = j.model.is_moe();
  const bool router = t.has(GraphScope::moe_router), pre = t.has(GraphScope::moe_preprocess);
  const bool padded = t.routing.padded();
  const bool whole = t.has(GraphScope::layer) || t.has(GraphScope::full_iteration);
  const bool static_shapes = padded || t.dispatcher == Dispatcher::hybridep;
  return c.stop_if((t.has(GraphScope::mlp) && j.model.dense_layers() == 0) ||
                       (!moe && (router || pre || t.has(GraphScope::moe))),
                   R::cg_05) ||
         c.stop_if(pre && !router, R::cg_03) ||
         c.stop_if(t.has(GraphScope::moe) && (router || !padded), R::cg_04) ||
         c.stop_if((t.has(Recompute::full) && !t.has(GraphScope::full_iteration)) ||
                       (t.has(Recompute::moe) && router),
                   R::cg_06) ||
         c.stop_if(pre && t.dispatcher == Dispatcher::alltoall && t.routing.capacity_factor > 0 &&
                       !padded,
                   R::cg_08) ||
         c.stop_if(moe && whole && !static_shapes, R::tri_static) ||
         c.stop_if(t.has(GraphScope::mamba), R::tri_mamba);
}

bool precision_rules(Checker& c) {
  const Job& j = c.job;
  const Optimizer& o = j.training.optimizer;
  const Techniques& t = j.techniques;
  const Precision p = j.training.precision;
  return c.stop_if(
             o.fp8_param_gather && (!is_low_precision(p) || !(o.distributed || j.layout.fsdp)),
             R::pr_02) ||
         c.stop_if(p == Precision::mxfp8 && o.fp8_param_gather &&
                       t.has(Overlap::param_gather_with_optimizer),
                   R::pr_05) ||
         c.stop_if((o.precision_aware() || t.offload.optimizer == OptimizerOffload::cpu_adam) &&
                       o.name != OptimizerName::adam,
                   R::pr_06) ||
         c.stop_if(t.has(Fusion::fp8_output_projection) && p != Precision::mxfp8, R::pr_08) ||
         c.stop_if(
             j.cluster.gpu.peak(gemm_dtype(p)).value() <= 0 ||
                 (p == Precision::fp8_block && j.cluster.gpu.arch == hardware::GpuArch::ampere),
             R::tri_precision) ||
         c.stop_if(
             t.implementation == Implementation::local &&
                 (is_low_precision(p) || t.sequence_parallel || j.layout.sequence_ranks() > 1),
             R::tri_local);
}

bool overlap_rules(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const Techniques& t = j.techniques;
  if (c.stop_if(
          t.has(Overlap::delay_wgrad) &&
              !(t.has(Overlap::ep_a2a) && t.implementation == Implementation::transformer_engine),
          R::ovl_10) ||
      c.stop_if(t.has(Overlap::delay_wgrad) && t.has(Overlap::grad_reduce) &&
                    t.has(GraphScope::attn) && (j.model.linear_bias || j.model.attention.qkv_bias),
                R::ovl_11))
    return true;
  if (!t.has(Overlap::ep_a2a)) return c.stop_if(t.has(Overlap::early_attn_release), R::ovl_13);
  if (c.stop_if(layout::is_zero_bubble(j.schedule.kind), R::tri_merge)) return true;
  const bool partial_graph = !t.cuda_graph.empty() && !t.has(GraphScope::full_iteration);
  return c.stop_if(l.pp > 1 && l.vpp == 1, R::ovl_01, l.pp, l.vpp) ||
         c.stop_if(l.ep == 1, R::ovl_02, l.ep, 1) ||
         c.stop_if(t.dispatcher == Dispatcher::allgather, R::ovl_03) ||
         c.stop_if(t.has(Recompute::full) || t.has(Recompute::moe), R::ovl_04) ||
         c.stop_if(t.has(Overlap::shared_expert), R::ovl_05) ||
         c.stop_if(j.model.mtp_layers > 1, R::ovl_06, j.model.mtp_layers, 1) ||
         c.stop_if(t.has(GraphScope::moe) || t.has(GraphScope::mlp), R::ovl_08) ||
         c.stop_if(l.fsdp && (l.pp > 1 || l.vpp > 1 || partial_graph), R::ovl_09, l.pp, l.vpp);
}

R rule_of(layout::CutFault fault) {
  using F = layout::CutFault;
  switch (fault) {
    case F::none:
    case F::size:
      return R::pp_01;
    case F::layout_syntax:
      return R::lay_02;
    case F::layout_stages:
      return R::lay_01;
    case F::layout_ends:
      return R::lay_03;
    case F::layout_layers:
      return R::lay_04;
    case F::layout_mtp_count:
    case F::layout_mtp_place:
      return R::lay_05;
    case F::layout_vpp:
      return R::pp_02;
    case F::layout_and_fields:
      return R::lay_06;
    case F::uneven_and_account:
      return R::pp_09;
    case F::uneven_middle:
      return R::pp_10;
    case F::uneven_vpp:
      return R::pp_11;
    case F::layers_over_stages:
      return R::pp_01;
    case F::layers_over_chunks:
      return R::pp_04;
  }
  return R::pp_01;
}

bool pipeline_rules(Checker& c, const layout::Pipeline* pipeline) {
  if (pipeline == nullptr) return false;
  return c.stop_if(pipeline->vpp != c.job.layout.vpp, R::pp_02, c.job.layout.vpp, pipeline->vpp);
}

bool interleaving(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  if (j.schedule.kind != layout::ScheduleKind::interleaved || l.vpp == 1) return false;
  const std::int64_t m = j.microbatches();
  const std::int64_t n =
      j.schedule.microbatch_group_size > 0 ? j.schedule.microbatch_group_size : l.pp;
  return c.stop_if(n < l.pp || n > m, R::pp_07, n, n < l.pp ? l.pp : m) ||
         c.stop_if(n <= m && m % n != 0 && m % n < l.pp, R::pp_08, m % n, l.pp);
}

bool schedule_shapes(Checker& c) {
  using K = layout::ScheduleKind;
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const std::int64_t m = j.microbatches();
  const K kind = j.schedule.kind;
  const bool fits = kind == K::interleaved ? l.vpp > 1
                    : layout::is_vee(kind) ? l.vpp == 2
                                           : l.vpp == 1;
  if (c.stop_if(!fits, R::tri_chunks, l.vpp, layout::is_vee(kind) ? 2 : 1)) return true;
  const bool dual = kind == K::dualpipe && (l.pp % 2 != 0 || m % 2 != 0);
  const bool few = (kind == K::dualpipe || kind == K::dualpipe_v) && m < 2 * l.pp;
  return c.stop_if(dual || few, R::tri_dualpipe, m, 2 * l.pp) ||
         c.stop_if(kind != K::one_f_one_b && kind != K::interleaved, R::tri_schedule);
}

bool tensor_shapes(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const Techniques& t = j.techniques;
  const model::Attention& a = j.model.attention;
  const bool moe = j.model.is_moe();
  const std::int64_t swap = std::int64_t{l.ulysses_sp} * (t.cp_comm == CpComm::a2a ? l.cp : 1);
  const std::int64_t kv = a.kind == model::AttentionKind::mla ? a.heads : a.kv_heads;
  // Where tp replicates KV heads, one head a rank is left to swap.
  const std::int64_t kv_local = kv >= l.tp ? kv / l.tp : 1;
  const std::int64_t s = j.training.sequence_length;
  const std::int64_t ranks = l.sequence_ranks() * (t.sequence_parallel ? l.tp : 1);
  const std::int64_t shared = moe ? j.model.moe.shared_ffn : 0;
  return c.stop_if(moe && l.tp > 1 && !t.sequence_parallel, R::tp_05, l.tp, 1) ||
         c.stop_if(swap > 1 && !divides(l.tp * swap, a.heads), R::tri_heads, a.heads,
                   l.tp * swap) ||
         c.stop_if(swap > 1 && !divides(swap, kv_local), R::tri_kv, kv, l.tp * swap) ||
         c.stop_if(s % ranks != 0, R::tri_seq, s, ranks) ||
         c.stop_if(moe && j.model.moe.expert_ffn % l.etp != 0, R::tri_etp, j.model.moe.expert_ffn,
                   l.etp) ||
         c.stop_if(j.model.dense_ffn % l.tp != 0 || shared % l.tp != 0, R::tri_ffn,
                   j.model.dense_ffn % l.tp != 0 ? j.model.dense_ffn : shared, l.tp);
}

bool hardware_rules(Checker& c) {
  const Job& j = c.job;
  const Techniques& t = j.techniques;
  if (!j.model.is_moe()) return false;
  const Routing& r = t.routing;
  const std::size_t wanted = r.distribution == LoadDistribution::balanced ? r.parameters.size()
                             : r.distribution == LoadDistribution::histogram
                                 ? static_cast<std::size_t>(j.model.moe.experts)
                                 : 1;
  return c.stop_if(is_flex(t.dispatcher) && j.cluster.gpu.arch == hardware::GpuArch::ampere,
                   R::tri_dispatcher) ||
         c.stop_if(t.dispatcher_sms >= j.cluster.gpu.sms && t.dispatcher_sms > 0, R::tri_sms,
                   t.dispatcher_sms, j.cluster.gpu.sms) ||
         c.stop_if(r.parameters.size() != wanted, R::tri_histogram,
                   static_cast<std::int64_t>(r.parameters.size()),
                   static_cast<std::int64_t>(wanted)) ||
         c.stop_if(t.dispatch_precision != DispatchPrecision::bf16, R::tri_dispatch_fp8) ||
         c.stop_if(t.grouped_gemm != hardware::GroupedKernel::streams, R::tri_grouped) ||
         c.stop_if(r.echo_spare_experts > 0, R::tri_echo);
}

// Context parallelism as Megatron hands it to Transformer Engine, which refuses in the first
// forward (attn_forward_func_with_cp); the kind of exchange is the whole model's.
bool context_rules(Checker& c) {
  const Job& j = c.job;
  const layout::Layout& l = j.layout;
  const std::int64_t ranks = l.sequence_ranks(), s = j.training.sequence_length;
  if (ranks == 1) return false;
  const CpComm comm = l.ulysses_sp == 1 ? j.techniques.cp_comm
                      : l.cp == 1       ? CpComm::a2a
                                        : CpComm::a2a_p2p;
  const bool one_size = comm == CpComm::a2a_p2p && l.ulysses_sp == 1;
  const bool a2a = comm == CpComm::a2a;
  return c.stop_if(l.ulysses_sp > 1 && s % (2 * ranks) != 0, R::tri_ulysses, s, 2 * ranks) ||
         c.stop_if(one_size || (j.model.attention.sinks && !a2a) ||
                       (!a2a && comm != CpComm::all_gather && has_windows(j.model)),
                   R::tri_cp);
}

// What no argument of Megatron's can say.
bool wordless(Checker& c) {
  const model::Model& m = c.job.model;
  const Optimizer& o = c.job.training.optimizer;
  const auto wide = [](StateType t) { return t == StateType::fp32 || t == StateType::bf16; };
  return c.stop_if(m.post_norms || m.activation == model::Activation::geglu ||
                       m.activation == model::Activation::relu ||
                       (m.attention.output_bias && !m.linear_bias),
                   R::tri_model) ||
         c.stop_if((o.main_params != StateType::fp32 && o.main_params != StateType::fp16) ||
                       !wide(o.main_grads) || !wide(o.grad_reduce),
                   R::tri_states) ||
         c.stop_if(c.job.techniques.offload.optimizer == OptimizerOffload::states_parked_on_host,
                   R::tri_parked);
}

bool other_runtimes(Checker& c) {
  const Techniques& t = c.job.techniques;
  const Optimizer& o = c.job.training.optimizer;
  const bool one_shot = o.distributed && !c.job.layout.fsdp && o.grad_reduce == StateType::bf16;
  return context_rules(c) || wordless(c) ||
         c.stop_if(t.has(Overlap::inter_op) || t.has(Overlap::intra_op), R::tri_overlap) ||
         c.stop_if(t.gradient_compression != GradientCompression::none && !one_shot,
                   R::tri_compression);
}

// `cut`: what the pipeline's cut says; `pipeline`: the cut itself where there is one.
void run(Checker& c, const layout::Cut& cut, const layout::Pipeline* pipeline) {
  if (sizes(c)) return;
  const bool done = arguments(c) || model_rules(c) || moe_rules(c) || memory_rules(c) ||
                    graph_rules(c) || precision_rules(c) || overlap_rules(c) ||
                    c.stop_if(!cut.ok(), rule_of(cut.fault), cut.left, cut.right) ||
                    pipeline_rules(c, pipeline) || schedule_shapes(c) || interleaving(c) ||
                    tensor_shapes(c) || hardware_rules(c) || other_runtimes(c);
  static_cast<void>(done);
}

layout::Pipeline& scratch_pipeline() {
  thread_local layout::Pipeline pipeline;
  return pipeline;
}

}  // namespace

Verdict check(const Job& job, const layout::Pipeline& pipeline, Runtime runtime) {
  Checker c{job, runtime, nullptr, {}};
  run(c, layout::Cut{}, &pipeline);
  return c.first;
}

Verdict check(const Job& job, Runtime runtime) {
  layout::Pipeline& pipeline = scratch_pipeline();
  const layout::Cut cut = layout::cut_pipeline(job.model, job.layout, pipeline, job.placement());
  Checker c{job, runtime, nullptr, {}};
  run(c, cut, cut.ok() ? &pipeline : nullptr);
  return c.first;
}

bool megatron_shares_sequence(const Job& job) {
  Checker c{job, Runtime::megatron, nullptr, {}};
  return !context_rules(c);
}

std::vector<Verdict> check_all(const Job& job, Runtime runtime) {
  layout::Pipeline& pipeline = scratch_pipeline();
  const layout::Cut cut = layout::cut_pipeline(job.model, job.layout, pipeline, job.placement());
  std::vector<Verdict> all;
  Checker c{job, runtime, &all, {}};
  run(c, cut, cut.ok() ? &pipeline : nullptr);
  return all;
}

std::string explain(const Verdict& verdict) {
  if (verdict.legal()) return "legal";
  std::string text = fmt::format("{}: {}", verdict.rule->id, verdict.rule->reason);
  if (verdict.left != 0 || verdict.right != 0)
    text += fmt::format(" ({} and {})", verdict.left, verdict.right);
  return text + "; fix: " + verdict.rule->fix;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all(std::begin(kRules), std::end(kRules));
  return all;
}

const Rule* find_rule(const std::string& id) {
  for (const Rule& rule : kRules)
    if (id == rule.id) return &rule;
  return nullptr;
}

}  // namespace trifold::job

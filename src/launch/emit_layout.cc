// SPDX-License-Identifier: Apache-2.0
// Who sits where, the schedule, and the batch with its number formats.

#include <fmt/format.h>

#include "launch/emitter.h"

namespace trifold::launch {
namespace {

using job::Precision;
using job::StateType;

// Transformer Engine before 2.16, which Megatron up to 0.17 pins, swaps no heads of MLA and gathers
// none: key and value widths differ there.
void check_latent_exchange(Emitter& out, job::CpComm comm) {
  const bool whole = comm == job::CpComm::a2a || comm == job::CpComm::all_gather;
  if (whole && out.job.model.attention.kind == model::AttentionKind::mla &&
      out.options.version <= MegatronVersion::v0_17)
    out.refuse("techniques.cp_comm",
               fmt::format("Megatron {} pins a Transformer Engine without {} for MLA",
                           token_name(kMegatronVersions, out.options.version),
                           token_name(job::kCpComms, comm)),
               "use cp with techniques.cp_comm p2p, or Megatron 0.18");
}

void emit_context(Emitter& out) {
  const layout::Layout& l = out.job.layout;
  job::CpComm comm = out.job.techniques.cp_comm;
  out.put("--context-parallel-size", context_ranks(out.job));
  if (context_ranks(out.job) == 1) return;
  if (l.ulysses_sp > 1 && l.cp > 1) {  // heads swapped inside, key-value blocks passed outside
    out.put("--cp-comm-type", "a2a+p2p");
    out.put_values("--hierarchical-context-parallel-sizes",
                   {std::to_string(l.ulysses_sp), std::to_string(l.cp)});
    return;
  }
  if (l.ulysses_sp > 1) {
    comm = job::CpComm::a2a;
    out.note("ulysses_sp became context parallelism with the all-to-all exchange");
  }
  if (comm == job::CpComm::a2a_p2p)
    out.refuse("techniques.cp_comm", "a2a+p2p needs two sizes", "set layout.ulysses_sp too");
  check_latent_exchange(out, comm);
  out.put("--cp-comm-type", std::string(token_name(job::kCpComms, comm)));
}

void emit_pipeline(Emitter& out) {
  const layout::Layout& l = out.job.layout;
  out.put("--pipeline-model-parallel-size", l.pp);
  if (!l.pipeline_layout.empty()) {
    out.put("--pipeline-model-parallel-layout", l.pipeline_layout);
  } else {
    if (l.vpp > 1) out.put("--num-virtual-stages-per-pipeline-rank", l.vpp);
    if (l.account_for_embedding) out.put("--account-for-embedding-in-pipeline-split");
    if (l.account_for_loss) out.put("--account-for-loss-in-pipeline-split");
    if (l.first_stage_layers > 0)
      out.put("--decoder-first-pipeline-num-layers", l.first_stage_layers);
    if (l.last_stage_layers > 0) out.put("--decoder-last-pipeline-num-layers", l.last_stage_layers);
  }
  const job::Schedule& schedule = out.job.schedule;
  if (schedule.kind != layout::ScheduleKind::one_f_one_b &&
      schedule.kind != layout::ScheduleKind::interleaved)
    out.refuse("schedule.kind", fmt::format("Megatron runs 1f1b and interleaved schedules, not {}",
                                            token_name(layout::kScheduleKinds, schedule.kind)));
  if (schedule.kind == layout::ScheduleKind::interleaved && schedule.microbatch_group_size > 0)
    out.put("--microbatch-group-size-per-virtual-pipeline-stage", schedule.microbatch_group_size);
}

void emit_precision(Emitter& out) {
  const job::Training& t = out.job.training;
  const bool gather = t.optimizer.fp8_param_gather;
  out.put("--bf16");
  struct Recipe {
    Precision precision;
    const char* format;
    const char* recipe;
  };
  static constexpr Recipe kRecipes[] = {{Precision::fp8_delayed, "hybrid", "delayed"},
                                        {Precision::fp8_tensor, "hybrid", "tensorwise"},
                                        {Precision::fp8_block, "e4m3", "blockwise"},
                                        {Precision::mxfp8, "e4m3", "mxfp8"}};
  for (const Recipe& recipe : kRecipes) {
    if (recipe.precision != t.precision) continue;
    out.put("--fp8-format", recipe.format);
    out.put("--fp8-recipe", recipe.recipe);
    if (gather) out.put("--fp8-param-gather");
    if (gather && t.precision == Precision::mxfp8 && !out.job.layout.fsdp)
      out.put("--reuse-grad-buf-for-mxfp8-param-ag");
  }
  if (t.precision == Precision::nvfp4) {
    out.put("--fp4-format", "e2m1");
    out.put("--fp4-recipe", "nvfp4");
    if (gather) out.put("--fp4-param-gather");
  }
  if (gather && t.precision == Precision::bf16)
    out.refuse("training.optimizer.fp8_param_gather", "parameters in FP8 need an FP8 recipe");
}

void emit_states(Emitter& out) {
  const job::Optimizer& o = out.job.training.optimizer;
  const bool host = out.job.techniques.offload.optimizer == job::OptimizerOffload::cpu_adam;
  if (o.main_params == StateType::bf16 || o.main_params == StateType::fp8)
    out.refuse("training.optimizer.main_params",
               "Megatron keeps main parameters in fp32 or fp16 (fp32 beside bf16 weights costs two "
               "bytes with the precision-aware optimizer)");
  if (o.main_grads != StateType::fp32 && o.main_grads != StateType::bf16)
    out.refuse("training.optimizer.main_grads", "Megatron keeps main gradients in fp32 or bf16");
  if (o.precision_aware() || host) {
    if (!o.distributed && !out.job.layout.fsdp && out.options.version <= MegatronVersion::v0_19)
      out.refuse("training.optimizer.distributed",
                 "states that are not fp32, or on the host, need the distributed optimizer before "
                 "Megatron's main",
                 "set it to true");
    out.put("--use-precision-aware-optimizer");
  }
  if (o.precision_aware()) {
    out.put("--main-params-dtype", std::string(token_name(job::kStateTypes, o.main_params)));
    out.put("--main-grads-dtype", std::string(token_name(job::kStateTypes, o.main_grads)));
    out.put("--exp-avg-dtype", std::string(token_name(job::kStateTypes, o.moments)));
    out.put("--exp-avg-sq-dtype", std::string(token_name(job::kStateTypes, o.moments)));
  }
  const bool fp32_sum =
      out.job.techniques.gradient_compression == job::GradientCompression::bf16_all_to_all;
  if (o.grad_reduce == StateType::bf16) out.put("--grad-reduce-in-bf16");
  if (fp32_sum) {
    if (o.grad_reduce != StateType::bf16 || !o.distributed || out.job.layout.fsdp)
      out.refuse("techniques.gradient_compression",
                 "Megatron's one-shot reduction sums BF16 gradients of the distributed optimizer, "
                 "outside FSDP",
                 "set training.optimizer.grad_reduce to bf16");
    out.put("--ddp-reduce-scatter-with-fp32-accumulation");
  }
  if (o.grad_reduce == StateType::fp32 && o.main_grads == StateType::bf16)
    out.note("with bf16 main gradients Megatron reduces in bf16");
  if (o.grad_reduce == StateType::fp16 || o.grad_reduce == StateType::fp8)
    out.refuse("training.optimizer.grad_reduce", "Megatron reduces gradients in fp32 or bf16");
}

// Before 0.18 Muon's sharded form has a name of its own (0.17), or there is none (0.16).
void emit_old_muon(Emitter& out, bool sharded) {
  const std::string version(token_name(kMegatronVersions, out.options.version));
  const job::Techniques& t = out.job.techniques;
  const bool overlapped = t.has(job::Overlap::grad_reduce) || t.has(job::Overlap::param_gather);
  if (sharded && out.options.version < MegatronVersion::v0_17)
    out.refuse("training.optimizer.distributed", "Megatron " + version + " shards no Muon states",
               "set it to false, or use Megatron 0.17");
  if (!sharded && overlapped)
    out.refuse("techniques.overlap",
               "Megatron " + version + " overlaps no gradients of an unsharded Muon",
               "drop grad_reduce and param_gather");
  if (out.job.training.optimizer.fp8_param_gather)
    out.refuse("training.optimizer.fp8_param_gather",
               "Megatron " + version + " gathers no FP8 parameters beside Muon", "set it to false");
  out.put("--optimizer", sharded ? "dist_muon" : "muon");
}

}  // namespace

void emit_layout(Emitter& out) {
  const layout::Layout& l = out.job.layout;
  out.put("--tensor-model-parallel-size", l.tp);
  if (l.tp > 1 && out.job.techniques.sequence_parallel) out.put("--sequence-parallel");
  emit_context(out);
  emit_pipeline(out);
  out.put("--expert-model-parallel-size", l.ep);
  out.put("--expert-tensor-parallel-size", l.etp);
  if (l.order == layout::RankOrder::tp_cp_ep_pp_dp) out.put("--use-tp-pp-dp-mapping");
  if (l.fsdp) {
    out.put("--use-megatron-fsdp");
    out.put("--data-parallel-sharding-strategy", "optim_grads_params");
  }
}

void emit_training(Emitter& out) {
  const job::Training& t = out.job.training;
  out.put("--micro-batch-size", t.micro_batch_size);
  out.put("--global-batch-size", t.global_batch_size);
  emit_precision(out);
  const bool sharded = t.optimizer.distributed || out.job.layout.fsdp;
  if (t.optimizer.name == job::OptimizerName::muon &&
      out.options.version < MegatronVersion::v0_18) {
    emit_old_muon(out, sharded);
  } else {
    out.put("--optimizer", std::string(token_name(job::kOptimizerNames, t.optimizer.name)));
    if (sharded) out.put("--use-distributed-optimizer");
  }
  emit_states(out);
}

}  // namespace trifold::launch

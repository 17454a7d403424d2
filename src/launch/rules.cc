// SPDX-License-Identifier: Apache-2.0
#include "launch/rules.h"

namespace trifold::launch {
namespace {

using job::Rule;
constexpr job::RuleScope M = job::RuleScope::megatron;
constexpr job::RuleScope S = job::RuleScope::structure;

// In Megatron's words, shortened; its source files and lines are in its own messages.
const std::vector<Rule>& table() {
  static const std::vector<Rule> rules = {
      // The parser.
      {"TRN-03", M, "unrecognized arguments (flags must be spelled whole)", "remove the flag"},
      {"ARG-01", M, "expected another number of arguments",
       "give as many values as the flag takes"},
      {"ARG-02", M, "invalid choice", "use one of the choices"},
      {"ARG-03", M, "invalid int or float value", "give a number"},
      {"ARG-04", M, "the flag is given twice; the last one counts", "keep one"},
      {"ARG-05", M, "argument is None: a flag that every run needs is missing", "give it"},
      {"ARG-06", M, "the number of GPUs is not known, so sizes and batches are not judged",
       "name it with --gpus"},
      {"TRI-KVLORA", M, "--kv-lora-rank is absent and defaults to 32, which no model has",
       "give --kv-lora-rank"},
      // World and batch.
      {"GRID-05", M, "--expert-tensor-parallel-size is absent and defaults to the tensor size",
       "give --expert-tensor-parallel-size 1"},
      {"GRID-06", M, "Data parallel size should be divisible by partial DistOpt shard factor",
       "make --num-distributed-optimizer-instances divide dp x cp"},
      {"GRID-07", M, "GTP_remat with num_distributed_optimizer_instances > 1 is not yet supported",
       "remove --num-distributed-optimizer-instances"},
      {"GRID-08", M, "weight shards must be >= and divisible by the tensor size",
       "make the number of weight shards a multiple of the tensor size"},
      {"GRID-10", S,
       "eval_global_batch_size must be divisible by eval_micro_batch_size * data_parallel_size",
       "make the evaluation batch a multiple of micro batch x dp"},
      {"GRID-11", M, "Cannot specify both --step-batch-size-schedule and --global-batch-size",
       "keep one of the two"},
      {"GRID-12", M, "GTP requires TransformerEngine >= 2.19", "use one weight shard per rank"},
      {"GRID-13", M, "sharp_enabled_group is only valid when use_sharp is True", "add --use-sharp"},
      // Tensor, context, experts.
      {"TP-03", M, "Disabling sequence parallelism because tensor model parallelism is disabled",
       "remove --sequence-parallel"},
      {"TP-08", M,
       "Using tensor model parallelism or context parallelism require setting the environment "
       "variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
       "export CUDA_DEVICE_MAX_CONNECTIONS=1"},
      {"TP-09", M, "hidden_size % num_attention_heads == 0 without kv_channels",
       "give --kv-channels"},
      {"TP-10", S, "heads per query group are not whole: the reshape of q fails",
       "make the query groups divide the heads"},
      {"CP-02", M, "context_parallel_size == prod(hierarchical_context_parallel_sizes)",
       "make the sizes multiply to --context-parallel-size"},
      {"CP-03", M,
       "--hierarchical-context-parallel-sizes must be set when a2a+p2p is used in cp comm",
       "give --hierarchical-context-parallel-sizes"},
      {"CP-04", M, "Length of cp_comm_type should equal to the total number of transformer layers",
       "give one --cp-comm-type"},
      {"CP-05", M, "Hybrid context parallelism not supported with this",
       "use pp 1, no graphs, no FSDP and --calculate-per-token-loss"},
      {"CP-06", S, "linear attention heads must be a multiple of (TP*CP)", "lower tp x cp"},
      {"CP-07", M, "DSAttention context parallelism currently supports cp_comm_type=allgather only",
       "use --cp-comm-type allgather"},
      {"EP-05", M, "Invalid length of moe_layer_pattern",
       "give --moe-layer-freq one entry per layer (MTP layers not counted)"},
      {"EP-07", M, "MoE latent projection dimension has to be greater than zero",
       "give a positive --moe-latent-size, to a MoE model"},
      {"EP-08", M,
       "Shared expert overlap with MoE latent projections is not supported during training",
       "remove --moe-shared-expert-overlap"},
      // Pipeline.
      {"PP-03", S,
       "number of layers per pipeline stage must be divisible number of layers per virtual "
       "pipeline stage",
       "choose a divisor of the layers per stage"},
      {"PP-12", M,
       "please use --num-virtual-stages-per-pipeline-rank to specify virtual pipeline parallel "
       "degree when enable uneven pipeline parallelism",
       "use --num-virtual-stages-per-pipeline-rank"},
      {"PP-13", S, "Not enough layers in the first or last virtual pipeline stage", "lower vpp"},
      {"PP-15", M, "Cannot defer embedding wgrad compute",
       "remove --defer-embedding-wgrad-compute"},
      {"PP-16", M, "only compatible with overlap_p2p_comm but not batch_p2p_comm",
       "remove --overlap-p2p-communication-warmup-flush"},
      {"MTP-02", M, "recompute_num_layers must be 1 for MTP recompute",
       "use --recompute-num-layers 1"},
      // Routing, capacity, dispatch.
      {"RT-04", M,
       "moe_aux_loss_coeff must be a list of the same length as moe_router_load_balancing_type",
       "give one coefficient per loss"},
      {"RT-05", M, "Quantile balancing excludes aux losses, router fusion and group limits",
       "remove them"},
      {"RT-06", M,
       "fp8/fp4 must be specified when moe_router_padding_for_quantization is True, and not the "
       "allgather dispatcher",
       "remove --moe-router-padding-for-quantization"},
      {"RT-07", M, "Using a large number of experts without fp32 routing",
       "add --moe-router-dtype fp32"},
      {"CAP-01", M,
       "moe_expert_capacity_factor only works with aux_loss, seq_aux_loss, global_aux_loss or none "
       "load balancing",
       "change --moe-router-load-balancing-type"},
      {"DSP-01", M, "DeepEP backend is only supported with flex token dispatcher",
       "use --moe-token-dispatcher-type flex"},
      {"DSP-04", M, "DeepEP only supports float32 probs: they are cast at run time",
       "add --moe-router-dtype fp32"},
      {"DSP-05", M, "ncclep requires the flex dispatcher and no capacity padding",
       "use --moe-token-dispatcher-type flex"},
      {"DSP-06", M, "mxfp8 wire dtypes require the ncclep flex dispatcher backend and the op fuser",
       "keep bf16"},
      {"DSP-08", M, "Conflicting deprecated SM-count knobs", "use --moe-flex-dispatcher-num-sms"},
      {"DSP-10", M, "Fake process group is not supported with flex token dispatcher",
       "use --moe-token-dispatcher-type alltoall"},
      {"DSP-11", M, "fused permutation or routing is not available in this Transformer Engine",
       "remove the fusion"},
      {"GG-02", M, "moe_use_grouped_tensor requires moe_grouped_gemm=True",
       "add --moe-grouped-gemm"},
      {"GG-03", M, "moe_single_grouped_weight requires grouped GEMM and grouped tensors",
       "remove it"},
      {"GG-04", M, "bias_dropout_fusion is not supported in TEGroupedMLP when add_bias_linear=True",
       "add --no-bias-dropout-fusion"},
      // Overlap.
      {"OVL-07", M,
       "overlap_moe_expert_parallel_comm is only supported with bf16 or fp16 model (torch >= 2.6)",
       "add --bf16"},
      {"OVL-12", M,
       "overlap_moe_expert_parallel_comm must be disabled when enabling "
       "overlap_dispatch_backward_with_experts_wgrad",
       "keep one of the two"},
      {"OVL-13", M,
       "overlap_moe_expert_parallel_comm must be enabled when enabling "
       "ep_overlap_early_attn_memory_release",
       "remove --ep-overlap-early-attn-memory-release"},
      {"OVL-14", M, "overlap with ncclep does not support offloading expert_fc1",
       "do not offload expert_fc1"},
      {"DDP-03", M, "Cannot specify both num_buckets and bucket_size", "keep one of the two"},
      {"DDP-05", M,
       "use_dist_ckpt: the distributed optimizer without Gloo needs distributed checkpoints",
       "use --ckpt-format torch_dist, or keep the Gloo groups"},
      {"DDP-04", M, "expandable_segments:True is currently not supported with nccl_ub",
       "unset PYTORCH_CUDA_ALLOC_CONF"},
      // Recompute, offload, graphs.
      {"REC-01", M,
       "Using recompute_granularity: full so recompute_method must be \"block\" or \"uniform\"",
       "add --recompute-method uniform --recompute-num-layers 1"},
      {"REC-03", M, "Invalid choices for recompute_modules",
       "use core_attn, moe_act, layernorm, mla_up_proj, mlp, moe or shared_experts"},
      {"REC-08", M, "distribute_saved_activations must be false when sequence parallel is enabled",
       "remove --distribute-saved-activations"},
      {"REC-09", M,
       "Disabling pre_mlp_layernorm recompute: the router is graphed without moe_preprocess",
       "graph moe_preprocess too"},
      {"OFF-02", M, "Invalid choices for offload_modules",
       "use core_attn, attn_proj, expert_fc1, moe_act, fused_group_mlp, attn_norm, mlp_norm or "
       "qkv_linear"},
      {"CG-07", M,
       "Setting NCCL_GRAPH_REGISTER=0 to avoid illegal memory access when using CUDA Graph with "
       "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
       "export NCCL_GRAPH_REGISTER=0"},
      {"CG-10", M, "dropout is not supported with graphed recomputation", "set the dropouts to 0"},
      // Number formats.
      {"PR-01", M, "--fp4-format and --fp8-format cannot be used simultaneously", "choose one"},
      {"PR-03", M, "--fp4-format requires Transformer Engine >= 2.7; fp4_param_gather requires fp4",
       "remove --fp4-param-gather"},
      {"PR-04", M, "Delayed scaling does not support first / last layer in BF16",
       "remove --first-last-layers-bf16"},
      {"PR-09", M, "Only transformer-engine>=1.11.0 supports FP8 grouped gemm",
       "remove --moe-grouped-gemm"},
      {"PR-10", M, "Only one of fp16 and bf16 should be True", "keep --bf16"},
      // FSDP, attention, loss, schedule, weight shards.
      {"FSDP-01", M, "--megatron-fsdp-version 2 is not compatible with --use-distributed-optimizer",
       "remove --use-distributed-optimizer"},
      {"FSDP-02", M,
       "Megatron-FSDP requires the `fsdp_dtensor` checkpointing format, and the other "
       "way round",
       "use --ckpt-format fsdp_dtensor with --use-megatron-fsdp, torch_dist without"},
      {"FSDP-03", M, "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset",
       "unset CUDA_DEVICE_MAX_CONNECTIONS"},
      {"FSDP-05", M, "MFSDP v2 does not currently support this", "use --megatron-fsdp-version 1"},
      {"FSDP-06", M, "requires Transformer Engine version 2.10 or higher",
       "add --no-gradient-accumulation-fusion"},
      {"FSDP-07", M, "--use-torch-fsdp2 is not supported with this", "use --use-megatron-fsdp"},
      {"FSDP-08", M, "Emerging optimizer does not support this", "use --ckpt-format torch_dist"},
      {"ATT-01", M, "Group query attention is mutually exclusive with multi latent attention",
       "remove --group-query-attention"},
      {"ATT-02", M,
       "apply_rope_fusion for MLA only works with YARN RoPE (no interleaved rotary, no "
       "output gate)",
       "add --no-rope-fusion"},
      {"ATT-03", M, "unset NVTE_FLASH_ATTN, NVTE_FUSED_ATTN and NVTE_UNFUSED_ATTN",
       "unset the variable"},
      {"ATT-04", M, "only supported with a younger Transformer Engine", "remove the flag"},
      {"LOSS-01", M,
       "Transformer Engine cross entropy loss fusion is disabled due to stability issues",
       "use --cross-entropy-fusion-impl native"},
      {"TRN-01", M, "expected iteration-based training, or sample-based, not both",
       "use --train-iters with the -iters variants"},
      {"TRN-02", M, "A single data source must be provided in training mode", "keep one"},
      {"GTP-01", M, "GTP + mxfp8 requires --fp8-param-gather, and torch or torch_dist checkpoints",
       "use one weight shard per rank"},
      {"GTP-02", M, "GTP requires CUDA_GRAPHS_USE_NODE_PRIORITY=1",
       "export CUDA_GRAPHS_USE_NODE_PRIORITY=1"},
  };
  return rules;
}

// Rules of job/legality.h whose advice there speaks of Job fields: here in flags.
struct FlagFix {
  const char* id;
  const char* fix;
};
constexpr FlagFix kFlagFixes[] = {
    {"GRID-01", "make tp x cp x pp divide the GPUs"},
    {"GRID-02", "make etp x ep x pp divide the GPUs"},
    {"GRID-04", "remove --use-tp-pp-dp-mapping, or make tp x cp equal etp x ep"},
    {"GRID-09", "make --global-batch-size a multiple of micro batch x dp"},
    {"TP-01", "choose a tensor size that divides the heads"},
    {"TP-02", "choose a tensor size that divides, or is a multiple of, the query groups"},
    {"TP-05", "add --sequence-parallel"},
    {"TP-07", "remove --tp-comm-overlap, or use tp > 1 with --sequence-parallel"},
    {"CP-01", "lengthen the sequence or lower cp"},
    {"TRI-CP", "use --cp-comm-type a2a, or --context-parallel-size 1"},
    {"TRI-LOCAL", "use --transformer-impl transformer_engine"},
    {"SEQ-01", "raise --max-position-embeddings"},
    {"EP-01", "choose an ep that divides the experts"},
    {"EP-02", "use --expert-model-parallel-size 1"},
    {"EP-03", "use --expert-tensor-parallel-size 1 or --disable-bias-linear"},
    {"EP-04", "add --disable-bias-linear"},
    {"OVL-11", "remove --delay-wgrad-compute"},
    {"PP-01", "cut the stages with --pipeline-model-parallel-layout"},
    {"PP-02", "keep one of the three"},
    {"PP-04", "choose a vpp that divides the layers per stage"},
    {"PP-05", "raise pp or remove the virtual stages"},
    {"PP-07", "raise the global batch size"},
    {"PP-08", "make the micro-batches a multiple of pp"},
    {"PP-09", "keep one way of cutting"},
    {"PP-10", "change the first and last stage so that the rest divides"},
    {"PP-11", "lower vpp or change the first and last stage"},
    {"LAY-01", "make the stages a multiple of pp"},
    {"LAY-02", "use E, t, m, L, | and x*n or (..)*n"},
    {"LAY-03", "begin with E and end with L"},
    {"LAY-04", "make the t of the layout as many as the layers"},
    {"LAY-05", "put as many m as MTP layers into one stage of the last chunk"},
    {"LAY-06", "remove the other arguments"},
    {"MTP-01", "use rope"},
    {"RT-01", "give both numbers so that groups divide the experts"},
    {"RT-02", "use --moe-router-score-function sigmoid"},
    {"RT-03", "add --moe-router-pre-softmax"},
    {"CAP-02", "add --moe-expert-capacity-factor"},
    {"CAP-03", "use --moe-flex-dispatcher-backend hybridep"},
    {"CAP-04", "add --moe-expert-rank-capacity-factor"},
    {"DSP-02", "remove --moe-pad-expert-input-to-capacity"},
    {"DSP-03", "use alltoall, or an ep above 1"},
    {"DSP-07", "use --moe-token-dispatcher-type alltoall"},
    {"OVL-01", "interleave (vpp > 1), use pp 1, or remove --overlap-moe-expert-parallel-comm"},
    {"OVL-02", "use ep > 1, or remove --overlap-moe-expert-parallel-comm"},
    {"OVL-03", "use --moe-token-dispatcher-type alltoall"},
    {"OVL-04", "recompute moe_act, layernorm or mla_up_proj instead"},
    {"OVL-05", "remove --moe-shared-expert-overlap"},
    {"OVL-06", "use one MTP layer"},
    {"OVL-08", "graph attn, moe_router and moe_preprocess"},
    {"OVL-09", "use pp 1"},
    {"OVL-10", "remove --delay-wgrad-compute"},
    {"DDP-01", "add --use-distributed-optimizer and --overlap-grad-reduce"},
    {"DDP-02", "interleave and use --ckpt-format torch, or remove it"},
    {"REC-02", "remove --recompute-method and --recompute-num-layers"},
    {"REC-04", "add --moe-grouped-gemm"},
    {"REC-05", "remove mla_up_proj"},
    {"REC-06", "keep one of the two"},
    {"REC-07", "use another --fp8-recipe"},
    {"OFF-01", "export NVTE_CPU_OFFLOAD_V1=1"},
    {"OFF-03", "offload core_attn too"},
    {"OFF-04", "remove moe from --recompute-modules"},
    {"OFF-05", "offload expert_fc1 and moe_act instead"},
    {"OFF-06", "give 0 to 1"},
    {"OFF-07", "use --fine-grained-activation-offloading"},
    {"OFF-08", "add --use-precision-aware-optimizer"},
    {"OFF-09", "use transformer_engine graphs without the moe scope"},
    {"TRI-OFFLOAD", "drop --cpu-offloading-num-layers"},
    {"CG-02", "add --no-check-for-nan-in-loss-and-grad"},
    {"CG-03", "graph moe_router too"},
    {"CG-04", "graph moe_router and moe_preprocess instead"},
    {"CG-05", "remove the scope"},
    {"CG-06", "recompute modules instead"},
    {"CG-08", "remove moe_preprocess from the scopes"},
    {"PR-02", "remove --fp8-param-gather"},
    {"PR-05", "add --fp8-param-gather, or remove --overlap-param-gather-with-optimizer-step"},
    {"PR-06", "add --use-precision-aware-optimizer"},
    {"PR-08", "remove --fp8-output-proj"},
    {"FSDP-04", "use --optimizer adam"},
};

// What Megatron may say and an argument list cannot show: why. The rest of legality_rules.json that
// no check names refuses nothing (a default, an automatic switch, a warning without an effect).
constexpr Unjudged kUnjudged[] = {
    {"GRID-03",
     "cannot fire: once GRID-01, GRID-02 and GRID-04 hold, both grids have the same pipeline "
     "stride"},
    {"TP-04",
     "cannot fire from arguments: validate_args switches sequence parallelism off for tp 1 "
     "(TP-03)"},
    {"GG-01", "cannot fire: every GPU of the catalogue has compute capability 8 or more"},
    {"CG-01", "the parser's choices say it first (ARG-02)"},
    {"DSP-09", "what libraries the job image holds is not in the arguments"},
};

}  // namespace

const std::vector<Rule>& launch_rules() { return table(); }

std::vector<Unjudged> unjudged_rules() { return {std::begin(kUnjudged), std::end(kUnjudged)}; }

const Rule* find_rule(std::string_view id) {
  for (const Rule& rule : table())
    if (rule.id == id) return &rule;
  return job::find_rule(std::string(id));
}

const char* flag_fix(std::string_view id) {
  for (const FlagFix& entry : kFlagFixes)
    if (entry.id == id) return entry.fix;
  const Rule* rule = find_rule(id);
  return rule != nullptr ? rule->fix : "";
}

}  // namespace trifold::launch

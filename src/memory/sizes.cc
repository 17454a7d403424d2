// SPDX-License-Identifier: Apache-2.0
#include "memory/sizes.h"

// Widths and formats. Sources: megatron.md 5.1 (bytes a parameter), 5.2 (what tp divides), 5.3
// (tokens, paddings). Megatron's store_param_remainders (2 bytes instead of an fp32 master beside
// BF16 weights) is asked for by main_params "bf16" or "fp16"; "fp32" is a full master, as
// 2603.07685 section 4.1.6 counts (6 + 8/d).

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/math.h"
#include "layer/expert_load.h"
#include "model/size.h"

namespace trifold::memory {

namespace {

using job::Precision;

// One GEMM-format copy of an element: scales are 4 B a 1x128 block (fp8_block activations), 1 B a
// 32 block (MXFP8), 1 B a 16 block (NVFP4).
Width one_copy(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return kBf16;
    case Precision::fp8_delayed:
    case Precision::fp8_tensor:
      return Width{1, 0, "1 B (fp8)"};
    case Precision::fp8_block:
      return Width{33, 5, "1.03 B (fp8 and block scales)"};
    case Precision::mxfp8:
      return Width{33, 5, "1.03 B (mxfp8 and scales)"};
    case Precision::nvfp4:
      return Width{9, 4, "0.56 B (nvfp4 and scales)"};
  }
  return kBf16;
}

// Row- and column-wise copies of a weight: Blackwell's tensor cores read a per-tensor FP8 operand
// either way, every other recipe needs both.
Width weight_copies(Precision precision, hardware::GpuArch arch) {
  switch (precision) {
    case Precision::bf16:
      return Width{0, 0, "no copy"};
    case Precision::fp8_delayed:
    case Precision::fp8_tensor:
      if (arch == hardware::GpuArch::blackwell) return Width{1, 0, "1 B (fp8)"};
      return Width{2, 0, "2 B (fp8, row and column)"};
    case Precision::fp8_block:
      return Width{2, 0, "2 B (fp8, row and column; 128x128 scales)"};
    case Precision::mxfp8:
      return Width{66, 5, "2.06 B (mxfp8, row and column, scales)"};
    case Precision::nvfp4:
      return Width{18, 4, "1.13 B (nvfp4, row and column, scales)"};
  }
  return kBf16;
}

Width with_bf16(Width copies) {
  if (copies.numerator == 0) return kBf16;
  copies.numerator += std::int64_t{2} << copies.shift;
  copies.label = "2 B (bf16) + cached low-precision row and column copies";
  return copies;
}

StateWidths state_widths(const job::Job& job) {
  const job::Optimizer& o = job.training.optimizer;
  StateWidths w;
  const Width copies = weight_copies(job.training.precision, job.cluster.gpu.arch);
  w.linear = o.fp8_param_gather && copies.numerator > 0 ? copies : with_bf16(copies);
  w.other = kBf16;
  w.gradient = job::bytes_of(o.gradient_buffer());
  const std::int64_t master = job::bytes_of(o.main_params), moment = job::bytes_of(o.moments);
  const bool adam = o.name == job::OptimizerName::adam;
  w.optimizer = master + (adam ? 2 : 1) * moment;
  w.optimizer_other = master + (o.name == job::OptimizerName::sgd ? 1 : 2) * moment;
  if (job.techniques.offload.optimizer == job::OptimizerOffload::cpu_adam)
    w.optimizer = w.optimizer_other = 0;
  return w;
}

void set_attention(const job::Job& job, Sizes& s) {
  const model::Attention& a = job.model.attention;
  const std::int64_t ulysses = job.layout.ulysses_sp;
  s.mla = a.kind == model::AttentionKind::mla;
  s.heads = a.heads / s.tp;
  s.kv_heads = s.mla ? s.heads : std::max<std::int64_t>(1, a.kv_heads / s.tp);
  s.kv_activation_heads = std::max(s.kv_heads, std::min(s.heads, ulysses));
  s.dk = a.qk_dim();
  s.dv = a.value_dim();
  s.q_lora = a.q_lora_rank;
  s.kv_lora = a.kv_lora_rank;
  s.rope_dim = s.mla ? a.qk_rope_dim : a.head_dim;
  s.nope_dim = a.qk_nope_dim;
  const bool cp_swaps =
      job.techniques.cp_comm == job::CpComm::a2a || job.techniques.cp_comm == job::CpComm::a2a_p2p;
  s.attention_all_to_all = ulysses > 1 || (job.layout.cp > 1 && cp_swaps);
}

void set_experts(const job::Job& job, double rows_scale, Sizes& s) {
  if (!job.model.is_moe()) return;
  const model::Moe& moe = job.model.moe;
  s.experts = moe.experts;
  s.local_experts = moe.experts / job.layout.ep;
  s.top_k = moe.top_k;
  s.expert_ffn = moe.expert_ffn / job.layout.etp;
  s.shared_ffn = moe.shared_ffn / s.tp;
  s.sent_rows = s.local * moe.top_k;
  const layer::ExpertLoad load = layer::expert_load(job);
  s.worst_rows = static_cast<std::int64_t>(
      std::llround(std::max(load.padded_tokens_per_rank, load.max_tokens_per_rank) * rows_scale));
  s.rows = s.worst_rows;
  // Paged stash: pages of 1.10 times the balanced tokens instead of the slowest rank's
  // (2603.07685).
  if (job.techniques.paged_stash)
    s.rows = std::min(s.worst_rows,
                      static_cast<std::int64_t>(std::llround(1.10 * load.tokens_per_rank)));
}

void set_shards(const job::Job& job, Sizes& s) {
  const layout::Layout& l = job.layout;
  const std::int64_t tokens_by = s.sequence_parallel ? s.tp : 1;
  s.by_tp_heads = {s.tp, "tp", "attention heads are split over tensor parallelism"};
  s.by_tp_ffn = {s.tp, "tp", "feed-forward columns are split over tensor parallelism"};
  s.by_tp_sequence = {tokens_by, "tp", "sequence parallelism splits h-wide tensors"};
  s.by_etp = {l.etp, "etp", "expert columns are split over expert tensor parallelism"};
  s.by_ep = {std::int64_t{l.ep} * l.etp, "ep x etp", "experts are sharded over the expert grid"};
  s.by_tp_vocab = {s.tp, "tp", "the vocabulary is split over tensor parallelism"};
}

}  // namespace

std::int64_t round_to(std::int64_t value, std::int64_t unit) {
  if ((unit & (unit - 1)) == 0) return (value + unit - 1) & ~(unit - 1);
  return round_up(value, unit);
}

Sizes sizes_of(const job::Job& job, double rows_scale) {
  const layout::Layout& l = job.layout;
  const job::Techniques& t = job.techniques;
  Sizes s;
  s.tp = l.tp;
  s.sequence_parallel = t.sequence_parallel && l.tp > 1;
  s.sequence = job.training.sequence_length / l.sequence_ranks();
  s.batch = job.training.micro_batch_size;
  s.n = s.sequence * s.batch;
  s.unfused_attention = job.techniques.attention_backend == job::AttentionBackend::unfused;
  s.keys = job.training.sequence_length;
  s.local = s.sequence_parallel ? ceil_div(s.n, s.tp) : s.n;
  s.h = job.model.hidden;
  s.gate = model::is_gated(job.model.activation) ? 2 : 1;
  s.ffn = job.model.dense_ffn / s.tp;
  s.vocab = model::padded_vocab(job.model, s.tp) / s.tp;
  s.low_precision = job::is_low_precision(job.training.precision);
  s.linear_input = one_copy(job.training.precision);
  s.local_modules = t.implementation == job::Implementation::local;
  s.fused_loss = t.has(job::Fusion::cross_entropy);
  s.sar = t.has(job::Overlap::inter_op);
  s.fsdp = l.fsdp;
  s.offload_layers = t.offload.activation_layers;
  s.states = state_widths(job);
  set_attention(job, s);
  set_experts(job, rows_scale, s);
  set_shards(job, s);
  const std::int64_t dense = std::int64_t{job.dp()} * l.sequence_ranks(), expert = job.edp();
  const bool sharded = job.training.optimizer.distributed || l.fsdp;
  s.dense_shards = sharded ? std::max<std::int64_t>(1, dense) : 1;
  s.expert_shards = sharded ? std::max<std::int64_t>(1, expert) : 1;
  s.dense_unit = std::lcm<std::int64_t>(s.dense_shards, 128);
  s.expert_unit = std::lcm<std::int64_t>(s.expert_shards, 128);
  return s;
}

}  // namespace trifold::memory

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is alive at the peak besides states and saved activations.
//
// Transients. Two kinds of moment compete for the peak of a stage: the loss (last stage alone) and
// the backward of a layer with every saved activation still there. Each is written as the tensors
// alive beyond the saved ones (negative: already freed):
//   loss     logits 6 B each (bf16, fp32 softmax in place; measured on H200 within 0.1 %), 2 B
//   where
//            the cross entropy is fused; then gradient of the logits 2nV, its dgrad, the weight
//            gradient 2Vh in bf16 (Megatron hands the accumulator a bf16 tensor even when it fuses
//            the accumulation), the final norm's input and output
//   layer    fc2, activation and fc1 in turn; combine; attention with a fp32 dq
//   rebuilt  what recompute brings back, for one layer
// Weight gradients. One rule for both implementations: Transformer Engine accumulates into the
// gradient buffer and keeps one bf16 dummy per distinct weight shape for the whole run; plain
// PyTorch modules make the bf16 weight gradient when they need it and free it at once. Constants,
// with sources:
//   66 MiB workspace: what every H200 run of data/megatron_h200x2 holds between steps beyond states
//     (cuBLAS 2 x 32 MiB + small change); as much again with interleaving (a second stream,
//     measured)
//   32 MiB per stream, 4 streams: Transformer Engine's grouped GEMM
//   DeepEP: channels = SMs / 2, 288 NVLink and 128 RDMA slots (its default configs)
//   HybridEP: every rank's tokens may arrive (dispatch and combine buffers)
//   allocator: reserved / allocated 1.03 with tp > 1, 1.065 at tp 1 (SimuMax's B200 rows: 1.028 to
//     1.031, one at 1.077, and 1.040 to 1.079). No mechanism was found that also explains the H200
//     `local` runs (1.03 to 1.52): best-fit leaves blocks of the loss and of weight gradients
//     unused while layers run, by amounts that depend on the order of sizes.
// Known error: CUDA-graph pools count one static input a captured layer and unit in flight; 7 GB
// are published for DeepSeek-V3 on GB200 with a layout that is not stated.

#include <algorithm>

#include "memory/sizes.h"

namespace trifold::memory {

inline constexpr std::int64_t kWorkspace = std::int64_t{66} << 20;
inline constexpr std::int64_t kGroupedGemmWorkspace = std::int64_t{4 * 32} << 20;
inline constexpr double kReservedTensorParallel = 1.03, kReserved = 1.065;
inline constexpr double kOffloadMargin = 1;  // layers whose tensors stay: copied back next

// Moments of a layer's backward.
enum class Moment : std::uint8_t { fc2, activation, fc1, combine, attention };
inline constexpr int kMoments = 5;
inline constexpr const char* kMomentNames[kMoments] = {
    "backward of fc2", "backward of the activation", "backward of fc1", "backward of combine",
    "backward of attention"};
enum class LossMoment : std::uint8_t { cross_entropy, output_layer };

template <class Sink>
void add_dense_backward(const Sizes& s, Moment moment, Sink& sink) {
  const Factor n{s.n, "tokens"}, h{s.h, "hidden"}, ffn{s.ffn, "dense ffn"};
  const Factor gate{s.gate, "gate and up"};
  if (moment == Moment::fc2) {
    if (s.sequence_parallel) sink.add(Keep::kept, "gathered output gradient", Shard{}, kBf16, n, h);
    sink.add(Keep::kept, "gradient of the activation output", s.by_tp_ffn, kBf16, n, ffn);
    if (s.local_modules) sink.add(Keep::kept, "fc2 weight gradient", s.by_tp_ffn, kBf16, ffn, h);
  } else if (moment == Moment::activation) {
    sink.add(Keep::kept, "gradient of the fc1 output", s.by_tp_ffn, kBf16, n, gate, ffn);
  } else {
    sink.add(Keep::kept, "fc2 input, freed", s.by_tp_ffn, kBf16, Factor{-1, ""}, n, ffn);
    sink.add(Keep::kept, "gradient of the fc1 input", Shard{}, kBf16, n, h);
    if (s.local_modules)
      sink.add(Keep::kept, "fc1 weight gradient", s.by_tp_ffn, kBf16, gate, ffn, h);
  }
}

template <class Sink>
void add_moe_backward(const job::Job& job, const Sizes& s, Moment moment, Sink& sink) {
  const Factor rows{s.worst_rows, "routed rows"}, h{s.h, "hidden"}, ffn{s.expert_ffn, "expert ffn"};
  const Factor gate{s.gate, "gate and up"};
  if (moment == Moment::combine) {
    // DeepEP and HybridEP send each token once; the all-gather sends everyone's to everyone.
    const job::Dispatcher d = job.techniques.dispatcher;
    const std::int64_t sent = d == job::Dispatcher::allgather
                                  ? s.local * job.layout.ep * job.layout.etp
                              : job::is_flex(d) ? s.local
                                                : s.sent_rows;
    sink.add(Keep::kept, "gradients sent by combine", Shard{}, kBf16, Factor{sent, "rows"}, h);
    sink.add(Keep::kept, "gradients received by combine", s.by_ep, kBf16, rows, h);
  } else if (moment == Moment::fc2) {
    sink.add(Keep::kept, "gradient of the expert output", s.by_ep, kBf16, rows, h);
    sink.add(Keep::kept, "gradient of the activation output", s.by_etp, kBf16, rows, ffn);
    if (s.local_modules)
      sink.add(Keep::kept, "fc2 weight gradient of one expert", s.by_etp, kBf16, ffn, h);
  } else if (moment == Moment::activation) {
    sink.add(Keep::kept, "gradient of the fc1 output", s.by_etp, kBf16, rows, gate, ffn);
  } else {
    sink.add(Keep::kept, "fc2 input, freed", s.by_etp, kBf16, Factor{-1, ""}, rows, ffn);
    sink.add(Keep::kept, "gradient of the fc1 input", s.by_ep, kBf16, rows, h);
    if (s.local_modules)
      sink.add(Keep::kept, "fc1 weight gradient of one expert", s.by_etp, kBf16, gate, ffn, h);
  }
}

template <class Sink>
void add_attention_backward(const Sizes& s, Sink& sink) {
  const Factor n{s.n, "tokens"}, heads{s.heads, "heads"};
  const std::int64_t kv = s.kv_activation_heads * (s.dk + s.dv);
  sink.add(Keep::kept, "gradient of q", s.by_tp_heads, kBf16, n, heads, Factor{s.dk, "head width"});
  sink.add(Keep::kept, "gradients of k and v", s.by_tp_heads, kBf16, n, Factor{kv, "k + v widths"});
  sink.add(Keep::kept, "gradient of the attention output", s.by_tp_heads, kBf16, n, heads,
           Factor{s.dv, "head width"});
  if (s.unfused_attention)
    sink.add(Keep::kept, "gradients of scores and probabilities, scaled scores", s.by_tp_heads,
             kBf16, Factor{3, "tensors"}, n, heads, Factor{s.keys, "keys"});
  else
    sink.add(Keep::kept, "fp32 accumulator of dq", s.by_tp_heads, kFp32, n, heads,
             Factor{s.dk, "head width"});
}

template <class Sink>
void add_layer_backward(const job::Job& job, const Sizes& s, bool moe, Moment moment, Sink& sink) {
  sink.add(Keep::kept, "gradient of the layer output", s.by_tp_sequence, kBf16,
           Factor{s.local, "local tokens"}, Factor{s.h, "hidden"});
  if (moment == Moment::attention)
    add_attention_backward(s, sink);
  else if (moe)
    add_moe_backward(job, s, moment, sink);
  else
    add_dense_backward(s, moment, sink);
  if (moe && moment != Moment::attention && job.techniques.paged_stash)
    sink.add(Keep::kept, "expert buffers for the worst case, one layer", s.by_etp, kBf16,
             Factor{s.worst_rows, "rows"},
             Factor{s.h + (s.gate + 1) * s.expert_ffn, "hidden + fc1 + activation widths"});
}

template <class Sink>
void add_loss(const job::Job& job, const Sizes& s, LossMoment moment, Sink& sink) {
  const Factor n{s.n, "tokens"}, local{s.local, "local tokens"}, h{s.h, "hidden"};
  const Factor vocab{s.vocab, "vocabulary"};
  sink.add(Keep::kept, "final norm's input and output", s.by_tp_sequence, kBf16, local,
           Factor{2, "tensors"}, h);
  if (job.model.mtp_layers > 0)
    sink.add(Keep::kept, "MTP depths' saved logits", s.by_tp_vocab, s.fused_loss ? kBf16 : kFp32, n,
             vocab, Factor{job.model.mtp_layers, "depths"});
  if (moment == LossMoment::cross_entropy) {
    const Width logit = s.fused_loss ? Width{2, 0, "2 B (fused, in place)"}
                                     : Width{6, 0, "6 B (bf16 and fp32 softmax)"};
    sink.add(Keep::kept, "logits and their softmax", s.by_tp_vocab, logit, n, vocab);
    if (s.local_modules)
      sink.add(Keep::kept, "attention mask", Shard{}, kOneByte, Factor{s.batch, "sequences"},
               Factor{s.sequence, "positions"}, Factor{job.training.sequence_length, "positions"});
    return;
  }
  sink.add(Keep::kept, "gradient of the logits", s.by_tp_vocab, kBf16, n, vocab);
  sink.add(Keep::kept, "output layer's weight gradient", s.by_tp_vocab, kBf16, vocab, h);
  sink.add(Keep::kept, "gradient of the output layer's input", Shard{}, kBf16, n, h);
  if (!s.sequence_parallel) return;
  sink.add(Keep::kept, "gathered input of the output layer", Shard{}, kBf16, n, h);
  sink.add(Keep::kept, "scattered gradient", s.by_tp_sequence, kBf16, local, h);
}

// One bf16 dummy per distinct weight shape of Transformer Engine's linear layers.
template <class Sink>
void add_dummy_gradients(const Sizes& s, bool dense, bool moe, Sink& sink) {
  if (s.local_modules || s.fsdp) return;
  const Factor h{s.h, "hidden"};
  if (s.mla) {
    const std::int64_t down = s.q_lora + s.kv_lora + s.rope_dim;
    const std::int64_t up =
        (s.q_lora > 0 ? s.q_lora : s.h) * s.dk + s.kv_lora * (s.nope_dim + s.dv);
    sink.add(Keep::kept, "dummy gradient: MLA down projections", Shard{}, kBf16,
             Factor{down, "latent widths"}, h);
    sink.add(Keep::kept, "dummy gradient: MLA up projections", s.by_tp_heads, kBf16,
             Factor{s.heads, "heads"}, Factor{up, "latent x head widths"});
  } else {
    sink.add(Keep::kept, "dummy gradient: qkv projection", s.by_tp_heads, kBf16,
             Factor{s.heads + 2 * s.kv_heads, "q + k + v heads"}, Factor{s.dk, "head width"}, h);
  }
  sink.add(Keep::kept, "dummy gradient: output projection", s.by_tp_heads, kBf16,
           Factor{s.heads, "heads"}, Factor{s.dv, "head width"}, h);
  const Factor matrices{s.gate + 1, "matrices"};
  if (dense)
    sink.add(Keep::kept, "dummy gradient: dense feed-forward", s.by_tp_ffn, kBf16, matrices,
             Factor{s.ffn, "dense ffn"}, h);
  if (!moe) return;
  sink.add(Keep::kept, "dummy gradient: one expert", s.by_etp, kBf16, matrices,
           Factor{s.expert_ffn, "expert ffn"}, h);
  if (s.shared_ffn > 0 && s.shared_ffn != s.expert_ffn)
    sink.add(Keep::kept, "dummy gradient: shared expert", s.by_tp_ffn, kBf16, matrices,
             Factor{s.shared_ffn, "shared ffn"}, h);
}

template <class Sink>
void add_dispatcher_buffers(const job::Job& job, const Sizes& s, Sink& sink) {
  const std::int64_t group = std::int64_t{job.layout.ep} * job.layout.etp;
  const std::int64_t domain = std::min<std::int64_t>(group, job.cluster.domain_gpus);
  const Factor h{s.h, "hidden"};
  if (group == 1) return;
  if (job.techniques.dispatcher == job::Dispatcher::deepep) {
    const std::int64_t sms = job.techniques.dispatcher_sms > 0 ? job.techniques.dispatcher_sms : 20;
    const Factor channels{sms / 2, "channels"};
    sink.add(Keep::kept, "DeepEP NVLink buffer", Shard{}, kBf16, channels, Factor{domain, "ranks"},
             Factor{288, "slots"}, h);
    if (group > domain)
      sink.add(Keep::kept, "DeepEP RDMA buffer", Shard{}, kBf16, channels,
               Factor{(group + domain - 1) / domain, "domains"}, Factor{2 * 128, "slots"}, h);
  } else if (job.techniques.dispatcher == job::Dispatcher::hybridep) {
    const std::int64_t arrive = (s.local + 63) / 64 * 64;
    sink.add(Keep::kept, "HybridEP dispatch and combine buffers", Shard{}, kBf16,
             Factor{2, "buffers"}, Factor{arrive, "tokens a rank"}, Factor{group, "ranks"}, h);
  }
}

// Pipeline messages received ahead: the stage's input (group - pp + 1 of them on stage 0 when
// interleaved, megatron.md 5.5) and, when interleaved, the next gradient.
template <class Sink>
void add_pipeline_buffers(const job::Job& job, const Sizes& s, int stage, Sink& sink) {
  if (job.layout.pp == 1) return;
  const bool interleaved = job.layout.vpp > 1;
  std::int64_t messages = stage > 0 || interleaved ? 1 : 0;
  if (interleaved) {
    const int group = std::max(job.schedule.microbatch_group_size, job.layout.pp);
    messages = (stage == 0 ? group - job.layout.pp + 1 : 1) + 1;
  }
  if (messages > 0)
    sink.add(Keep::kept, "pipeline messages received ahead", s.by_tp_sequence, kBf16,
             Factor{messages, "messages"}, Factor{s.local, "local tokens"}, Factor{s.h, "hidden"});
}

template <class Sink>
void add_workspaces(const job::Job& job, const Sizes& s, bool moe, Sink& sink) {
  const bool second = job.layout.pp > 1 && job.layout.vpp > 1;
  sink.add(Keep::kept, "cuBLAS workspaces", Shard{}, kOneByte, Factor{second ? 2 : 1, "streams"},
           Factor{kWorkspace, "B"});
  if (moe && !s.local_modules)
    sink.add(Keep::kept, "grouped GEMM workspaces (4 streams)", Shard{}, kOneByte,
             Factor{kGroupedGemmWorkspace, "B"});
}

template <class Sink>
void add_graph_buffers(const job::Job& job, const Sizes& s, std::int64_t layer_units, Sink& sink) {
  const job::Techniques& t = job.techniques;
  if (t.cuda_graph.empty() || t.has(job::GraphScope::full_iteration)) return;
  sink.add(Keep::kept, "CUDA graphs: static inputs", s.by_tp_sequence, kBf16,
           Factor{layer_units, "layer-micro-batches in flight"}, Factor{s.local, "local tokens"},
           Factor{s.h, "hidden"});
}

// Each layer's schedule nodes keep the hidden states that they detached, before and after its
// attention, until the next micro-batch's plan replaces them (256 MiB of 16 layers x 2048 x 2048
// between steps: tests/observations/megatron_runs/moe_ep2_merged.log).
template <class Sink>
void add_merged_buffers(const job::Job& job, const Sizes& s, std::int64_t layers, Sink& sink) {
  if (!job.techniques.has(job::Overlap::ep_a2a)) return;
  sink.add(Keep::kept, "merged units: detached hidden states", s.by_tp_sequence, kBf16,
           Factor{layers, "layers"}, Factor{2, "tensors"}, Factor{s.local, "local tokens"},
           Factor{s.h, "hidden"});
}

// Gathered parameters of two FSDP units (a layer each) and their gradients before they are reduced;
// twice where communication overlaps compute (double buffers).
template <class Sink>
void add_fsdp_units(const job::Job& job, const Sizes& s, std::int64_t largest_unit, Sink& sink) {
  if (!s.fsdp) return;
  const bool overlapped = job.techniques.has(job::Overlap::fsdp);
  const Factor units{overlapped ? 4 : 2, "units"}, unit{largest_unit, "parameters a layer"};
  sink.add(Keep::kept, "FSDP gathered parameters", s.by_ep, kBf16, units, unit);
  sink.add(Keep::kept, "FSDP gradients before reduction", s.by_ep,
           Width{s.states.gradient, 0, "B a gradient"}, units, unit);
}

}  // namespace trifold::memory

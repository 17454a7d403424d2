// SPDX-License-Identifier: Apache-2.0
// Number formats and optimizer; FSDP, attention, loss, schedule and data.

#include <fmt/format.h>

#include "launch/findings.h"

namespace trifold::launch {
namespace {

void check_fsdp(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool own_format = s.text("--ckpt-format") == "fsdp_dtensor";
  if (s.fsdp != own_format) out.reject("FSDP-02", s.text("--ckpt-format"));
  if (!s.fsdp) return;
  if (q.variable("CUDA_DEVICE_MAX_CONNECTIONS") == "1") out.reject("FSDP-03");
  if ((s.optimizer != "adam" && s.optimizer != "sgd") || s.has("--moe-single-grouped-weight") ||
      s.has("--moe-single-grouped-bias"))
    out.reject("FSDP-04", s.optimizer);
  const bool second = s.integer("--megatron-fsdp-version", 1) == 2;
  if (second && s.has("--use-distributed-optimizer")) out.reject("FSDP-01");
  if (second && (s.tp * s.pp * s.cp > 1 || s.fp8 || s.fp4 || s.graph_impl != "none" ||
                 s.text("--data-parallel-sharding-strategy") != "optim_grads_params"))
    out.reject("FSDP-05");
}

void check_torch_fsdp(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (!s.has("--use-torch-fsdp2")) return;
  const std::string format = s.text("--ckpt-format");
  if (s.pp > 1 || s.ep > 1 || s.has("--use-distributed-optimizer") ||
      !s.has("--no-gradient-accumulation-fusion") || s.has("--fp16") ||
      !s.has("--untie-embeddings-and-output-weights") ||
      (format != "torch_dist" && format != "torch_dcp") ||
      q.variable("CUDA_DEVICE_MAX_CONNECTIONS") == "1")
    out.reject("FSDP-07");
}

void check_attention(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.mla && s.has("--group-query-attention")) out.reject("ATT-01");
  if (s.mla && (s.has("--rotary-interleaved") || s.has("--attention-output-gate") ||
                (s.text("--rope-type") == "rope" && !s.has("--no-rope-fusion") &&
                 s.text("--position-embedding-type") == "rope")))
    out.reject("ATT-02");
  if (s.mla && !s.has("--kv-lora-rank")) out.warn("TRI-KVLORA");
  struct Switches {
    const char* backend;
    const char* values;  // flash, fused, unfused
  };
  static constexpr Switches kSwitches[] = {
      {"auto", "111"}, {"flash", "100"}, {"fused", "010"}, {"unfused", "001"}, {"local", "000"}};
  static constexpr const char* kNames[] = {"NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN",
                                           "NVTE_UNFUSED_ATTN"};
  for (const Switches& row : kSwitches) {
    if (row.backend != s.text("--attention-backend")) continue;
    for (int i = 0; i < 3; ++i) {
      const std::string set = q.variable(kNames[i]);
      if (!set.empty() && set != std::string(1, row.values[i]))
        out.reject("ATT-03",
                   fmt::format("{}={} with --attention-backend {}", kNames[i], set, row.backend));
    }
  }
}

void check_schedule(const Settings& s, Findings& out) {
  const bool iterations = s.has("--train-iters"), samples = s.has("--train-samples");
  const bool mixed = (iterations && (samples || s.has("--lr-decay-samples") ||
                                     s.integer("--lr-warmup-samples") > 0)) ||
                     (samples && (s.has("--lr-decay-iters") || s.integer("--lr-warmup-iters") > 0));
  if (mixed) out.reject("TRN-01");
  const bool fraction = s.has("--lr-warmup-fraction");
  if (fraction && (s.integer("--lr-warmup-iters") > 0 || s.integer("--lr-warmup-samples") > 0))
    out.reject("TRN-01", "two warm-ups");
  const int sources = (s.has("--mock-data") ? 1 : 0) + (s.has("--data-path") ? 1 : 0) +
                      (s.has("--train-data-path") || s.has("--valid-data-path") ? 1 : 0);
  if (s.has("--lr") && s.real("--min-lr") > s.real("--lr"))
    out.reject("TRN-02", "--min-lr is larger than --lr");
  if (s.has("--save") && s.integer("--save-interval") <= 0)
    out.reject("TRN-02", "--save without --save-interval", "add --save-interval");
  if (sources > 1) out.reject("TRN-02", fmt::format("{} data sources", sources));
}

void check_muon(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool overlapped = s.has("--overlap-grad-reduce") || s.has("--overlap-param-gather");
  if (q.options.version >= MegatronVersion::v0_18 || s.optimizer.find("muon") == std::string::npos)
    return;
  const bool sharded = q.options.version == MegatronVersion::v0_17 && s.optimizer == "dist_muon";
  if (s.has("--use-distributed-optimizer") || s.fsdp || (overlapped && !sharded))
    out.reject("FSDP-08", s.optimizer + (overlapped ? " with overlap" : ""));
}

void check_optimizer(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  check_muon(q, out);
  if (s.has("--use-precision-aware-optimizer") && s.optimizer != "adam")
    out.reject("PR-06", "only supported with adam");
  if (s.has("--use-precision-aware-optimizer") && !s.distributed_optimizer &&
      q.options.version <= MegatronVersion::v0_19)
    out.reject("PR-06", "only supported with distributed optimizer",
               "add --use-distributed-optimizer");
  for (const char* flag :
       {"--main-grads-dtype", "--main-params-dtype", "--exp-avg-dtype", "--exp-avg-sq-dtype"})
    if (s.text(flag) != "fp32" && !s.has("--use-precision-aware-optimizer"))
      out.reject("PR-06", std::string(flag) + " " + s.text(flag));
  if (s.optimizer == "adam" || s.optimizer == "sgd") return;
  const std::string format = s.text("--ckpt-format");
  if (s.has("--use-torch-fsdp2") || (format != "torch" && format != "torch_dist" && !s.fsdp))
    out.reject("FSDP-08", s.optimizer);
}

void check_weight_shards(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.gtp == 1 && s.egtp == 1) return;
  const std::string format = s.text("--ckpt-format");
  if ((s.fp4 && !s.has("--fp4-param-gather")) || s.has("--ddp-average-in-collective") ||
      (format != "torch" && format != "torch_dist") ||
      (s.text("--fp8-recipe") == "mxfp8" &&
       (!s.has("--fp8-param-gather") || !s.has("--reuse-grad-buf-for-mxfp8-param-ag"))))
    out.reject("GTP-01");
  if (q.options.arch == hardware::GpuArch::blackwell && s.graph_impl != "none" &&
      q.variable("CUDA_GRAPHS_USE_NODE_PRIORITY") != "1")
    out.reject("GTP-02");
}

}  // namespace

void check_precision(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.fp4 && s.fp8) out.reject("PR-01");
  if (s.has("--fp8-param-gather") && (!s.fp8 || (!s.distributed_optimizer && !s.fsdp)))
    out.reject("PR-02");
  if (s.has("--fp4-param-gather") && !s.fp4) out.reject("PR-03");
  if (s.fp8 && s.has("--first-last-layers-bf16") &&
      (s.text("--fp8-recipe") == "delayed" ||
       s.integer("--num-layers-at-start-in-bf16") > s.layers / s.pp ||
       s.integer("--num-layers-at-end-in-bf16") > s.layers / s.pp))
    out.reject("PR-04");
  if (s.has("--reuse-grad-buf-for-mxfp8-param-ag") && !s.fsdp &&
      (!s.has("--fp8-param-gather") || s.has("--overlap-param-gather-with-optimizer-step")))
    out.reject("PR-05");
  if (s.has("--fp8-output-proj") && (!s.fp8 || s.text("--fp8-recipe") != "mxfp8"))
    out.reject("PR-08");
  if (s.has("--bf16") && s.has("--fp16")) out.reject("PR-10");
  check_optimizer(q, out);
  check_weight_shards(q, out);
}

void check_rest(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  check_fsdp(q, out);
  check_torch_fsdp(q, out);
  check_attention(q, out);
  const bool te_loss =
      s.has("--cross-entropy-loss-fusion") && s.text("--cross-entropy-fusion-impl") == "te";
  if (te_loss && q.options.version >= MegatronVersion::v0_18) out.reject("LOSS-01");
  check_schedule(s, out);
}

}  // namespace trifold::launch

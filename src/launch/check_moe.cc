// SPDX-License-Identifier: Apache-2.0
// Routing, capacity, dispatchers, grouped GEMM; and what may run beside the experts' exchange.

#include <fmt/format.h>

#include "launch/findings.h"

namespace trifold::launch {
namespace {

void check_router(const Settings& s, Findings& out) {
  const std::int64_t groups = s.integer("--moe-router-num-groups");
  const std::int64_t kept = s.integer("--moe-router-group-topk");
  if (kept > 0 && (groups <= 0 || s.experts % groups != 0 || kept > groups))
    out.reject("RT-01", fmt::format("{} experts, {} groups, {} kept", s.experts, groups, kept));
  const std::string score = s.text("--moe-router-score-function");
  if (s.has("--moe-router-enable-expert-bias") && score == "softmax") out.reject("RT-02");
  const std::string balancing = s.text("--moe-router-load-balancing-type");
  if (s.moe && s.integer("--moe-router-topk") == 1 && score == "softmax" &&
      !s.has("--moe-router-pre-softmax") && balancing != "sinkhorn")
    out.reject("RT-03");
  const std::size_t losses = s.list("--moe-router-load-balancing-type").size();
  if (losses > 1 && losses != s.list("--moe-aux-loss-coeff").size())
    out.reject("RT-04", fmt::format("{} losses, {} coefficients", losses,
                                    s.list("--moe-aux-loss-coeff").size()));
  if (balancing == "quantile_balancing" &&
      (s.real("--moe-aux-loss-coeff") != 0 || s.has("--moe-router-fusion") || kept > 0))
    out.reject("RT-05");
  if (s.has("--moe-router-padding-for-quantization") || s.has("--moe-router-padding-for-fp8")) {
    if (!s.fp8 && !s.fp4) out.reject("RT-06");
    if ((s.fp8 || s.fp4) && s.dispatcher == "allgather") out.reject("RT-06", "allgather");
  }
  if (s.experts >= 32 && !s.has("--moe-router-dtype"))
    out.warn("RT-07", fmt::format("{} experts", s.experts));
}

void check_capacity(const Settings& s, Findings& out) {
  const bool capacity =
      s.has("--moe-expert-capacity-factor") && s.real("--moe-expert-capacity-factor") >= 0;
  const std::string balancing = s.text("--moe-router-load-balancing-type");
  if (s.has("--moe-expert-capacity-factor") &&
      (balancing == "sinkhorn" || balancing == "quantile_balancing"))
    out.reject("CAP-01", balancing);
  if (s.has("--moe-pad-expert-input-to-capacity") && !capacity) out.reject("CAP-02");
  const bool fuser =
      s.has("--use-transformer-engine-op-fuser") || s.has("--moe-use-grouped-tensor");
  if (s.has("--moe-expert-rank-capacity-factor")) {
    const std::string backend = s.text("--moe-flex-dispatcher-backend");
    if (backend != "hybridep" && backend != "ncclep")
      out.reject("CAP-03", backend);
    else if (backend == "hybridep" && !fuser)
      out.reject("CAP-03", "hybridep without the op fuser",
                 "add --use-transformer-engine-op-fuser");
  }
  if (s.has("--moe-paged-stash")) {
    bool clash =
        !s.has("--moe-expert-rank-capacity-factor") || s.has("--cpu-offloading-num-layers");
    for (const char* module : {"expert_fc1", "moe_act", "fused_group_mlp"})
      clash = clash || s.lists("--offload-modules", module);
    if (clash) out.reject("CAP-04");
  }
}

void check_dispatcher(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool old = q.options.version < MegatronVersion::v0_18;
  if (s.has("--moe-enable-deepep") && s.dispatcher != "flex") out.reject("DSP-01", s.dispatcher);
  if (s.backend == "deepep" && s.has("--moe-pad-expert-input-to-capacity")) out.reject("DSP-02");
  if (s.moe && (s.backend == "deepep" || s.backend == "ncclep") && s.etp * s.ep <= 1)
    out.reject("DSP-03", fmt::format("etp {} x ep {}", s.etp, s.ep));
  if (s.moe && (s.backend == "deepep" || s.backend == "hybridep") &&
      s.text("--moe-router-dtype") != "fp32")
    out.warn("DSP-04", s.backend);
  if (s.text("--moe-flex-dispatcher-backend") == "ncclep" &&
      (s.dispatcher != "flex" || s.has("--moe-pad-expert-input-to-capacity")))
    out.reject("DSP-05");
  const bool wire =
      s.text("--moe-dispatch-fwd-dtype") == "mxfp8" || s.text("--moe-combine-bwd-dtype") == "mxfp8";
  if (wire && (s.backend != "ncclep" || !s.has("--moe-grouped-gemm") ||
               !s.has("--use-transformer-engine-op-fuser")))
    out.reject("DSP-06");
  if (s.has("--moe-shared-expert-intermediate-size") && s.has("--moe-shared-expert-overlap") &&
      (s.dispatcher == "allgather" || (old && s.dispatcher == "flex")))
    out.reject("DSP-07", s.dispatcher);
  if (s.has("--moe-deepep-num-sms") && s.has("--moe-hybridep-num-sms") &&
      !s.has("--moe-flex-dispatcher-num-sms") &&
      s.text("--moe-deepep-num-sms") != s.text("--moe-hybridep-num-sms"))
    out.reject("DSP-08");
  if (s.has("--fake-process-group") && s.dispatcher == "flex") out.reject("DSP-10");
}

void check_grouped(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool grouped = s.has("--moe-grouped-gemm");
  if (s.has("--moe-use-grouped-tensor") && !grouped) out.reject("GG-02");
  if ((s.has("--moe-single-grouped-weight") || s.has("--moe-single-grouped-bias")) &&
      (!grouped ||
       (!s.has("--moe-use-grouped-tensor") && !s.has("--use-transformer-engine-op-fuser"))))
    out.reject("GG-03");
  if (s.moe && grouped && !s.has("--disable-bias-linear") && !s.has("--no-bias-dropout-fusion"))
    out.reject("GG-04");
}

void check_ep_overlap(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (!s.ep_overlap) return;
  if (s.pp > 1 && s.vpp == 0) out.reject("OVL-01", fmt::format("pp {}", s.pp));
  if (s.ep <= 1) out.reject("OVL-02");
  if (s.dispatcher == "allgather") out.reject("OVL-03");
  if (s.full_recompute || s.has("--recompute-method") || s.has("--recompute-num-layers") ||
      contains(s.recompute, "moe"))
    out.reject("OVL-04", s.full_recompute ? "full" : "moe");
  if (s.has("--moe-shared-expert-overlap")) out.reject("OVL-05");
  const bool old = q.options.version < MegatronVersion::v0_18;
  if (s.mtp > 1 || (old && s.mtp == 1 && s.pp == 1))
    out.reject("OVL-06", fmt::format("{} MTP layers, pp {}", s.mtp, s.pp));
  if (!s.has("--bf16") && !s.has("--fp16")) out.reject("OVL-07");
  if ((s.graph_impl == "transformer_engine" &&
       (contains(s.graph_modules, "moe") || contains(s.graph_modules, "mlp"))) ||
      (old && s.graph_impl != "none" && s.graph_impl != "transformer_engine"))
    out.reject("OVL-08", s.graph_impl);
  if (s.fsdp && (s.vpp > 0 || s.pp > 1 || s.has("--fsdp-double-buffer"))) out.reject("OVL-09");
  if (s.backend == "ncclep" && s.lists("--offload-modules", "expert_fc1")) out.reject("OVL-14");
}

void check_wgrad(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool delayed = s.has("--delay-wgrad-compute");
  if (delayed && (!s.ep_overlap || s.text("--transformer-impl") == "local")) out.reject("OVL-10");
  const bool attention = contains(s.graph_modules, "attn");
  const bool graphed = attention || (contains(s.graph_modules, "moe_router") &&
                                     s.has("--moe-shared-expert-intermediate-size") &&
                                     !s.has("--moe-shared-expert-overlap"));
  const bool biased = !s.has("--disable-bias-linear") || s.has("--add-qkv-bias");
  if (delayed && s.has("--overlap-grad-reduce") && q.options.version >= MegatronVersion::v0_17 &&
      ((graphed && s.has("--no-gradient-accumulation-fusion")) || (attention && biased)))
    out.reject("OVL-11", biased ? "attention bias" : "no accumulation fusion");
  if (s.has("--overlap-dispatch-backward-with-experts-wgrad") && (s.ep_overlap || delayed))
    out.reject("OVL-12");
  if (s.has("--ep-overlap-early-attn-memory-release") && !s.ep_overlap) out.reject("OVL-13");
}

void check_data_parallel(const Settings& s, Findings& out) {
  if (s.has("--overlap-param-gather") &&
      (!(s.distributed_optimizer || s.optimizer == "dist_muon") || !s.has("--overlap-grad-reduce")))
    out.reject("DDP-01", s.has("--overlap-grad-reduce") ? "no distributed optimizer"
                                                        : "Must use --overlap-param-gather with "
                                                          "--overlap-grad-reduce");
  if (s.has("--overlap-param-gather-with-optimizer-step") &&
      (!s.distributed_optimizer || !s.has("--overlap-param-gather") || s.vpp == 0 ||
       s.text("--ckpt-format") != "torch"))
    out.reject("DDP-02");
  if (s.has("--ddp-num-buckets") && s.has("--ddp-bucket-size")) out.reject("DDP-03");
  const bool both = s.has("--dist-ckpt-optim-fully-reshardable") &&
                    s.has("--distrib-optim-fully-reshardable-mem-efficient");
  if (s.has("--disable-gloo-process-groups") && s.distributed_optimizer &&
      (s.text("--ckpt-format") == "torch" || both))
    out.reject("DDP-05", both ? "--distrib-optim-fully-reshardable-mem-efficient" : "");
}

}  // namespace

void check_moe(const Question& q, Findings& out) {
  check_router(q.settings, out);
  check_capacity(q.settings, out);
  check_dispatcher(q, out);
  check_grouped(q, out);
}

void check_overlap(const Question& q, Findings& out) {
  check_ep_overlap(q, out);
  check_wgrad(q, out);
  check_data_parallel(q.settings, out);
}

}  // namespace trifold::launch

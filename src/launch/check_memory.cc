// SPDX-License-Identifier: Apache-2.0
// Recompute, offload and CUDA graphs.

#include <algorithm>

#include <fmt/format.h>

#include "launch/findings.h"
#include "launch/layer_list.h"

namespace trifold::launch {
namespace {

const char* const kRecomputeModules[] = {
    "core_attn",      "moe_act",      "layernorm",   "mla_up_proj", "mlp", "moe",
    "shared_experts", "gdn_norm_out", "gdp_in_proj", "gdp_qkv",     "mhc"};
const char* const kOffloadModules[] = {"core_attn",       "attn_proj",  "expert_fc1",
                                       "fused_group_mlp", "moe_act",    "attn_norm",
                                       "mlp_norm",        "qkv_linear", "gdp_qkv"};

template <std::size_t N>
std::string stranger(const std::vector<std::string>& given, const char* const (&known)[N]) {
  for (const std::string& module : given)
    if (std::find(std::begin(known), std::end(known), module) == std::end(known)) return module;
  return {};
}

void check_modules(const Settings& s, Findings& out) {
  const std::string unknown = stranger(s.recompute, kRecomputeModules);
  if (!unknown.empty()) out.reject("REC-03", unknown);
  if (contains(s.recompute, "moe_act") && !s.has("--moe-grouped-gemm")) out.reject("REC-04");
  if (contains(s.recompute, "mla_up_proj") && !s.mla) out.reject("REC-05");
  if (contains(s.recompute, "shared_experts") && s.has("--moe-shared-expert-overlap") &&
      s.has("--moe-shared-expert-intermediate-size"))
    out.reject("REC-06");
  if (s.fp8 && s.text("--fp8-recipe") == "delayed" &&
      (contains(s.recompute, "moe_act") || contains(s.recompute, "layernorm")))
    out.reject("REC-07");
  if (contains(s.recompute, "layernorm") && s.graph_impl == "transformer_engine" &&
      contains(s.graph_modules, "moe_router") && !contains(s.graph_modules, "moe_preprocess"))
    out.warn("REC-09");
}

void check_fine_grained(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (q.variable("NVTE_CPU_OFFLOAD_V1") != "1" || s.text("--transformer-impl") == "local")
    out.reject("OFF-01");
  const std::vector<std::string> modules = s.list("--offload-modules");
  const std::string unknown = stranger(modules, kOffloadModules);
  if (modules.empty() || !unknown.empty()) out.reject("OFF-02", unknown);
  if (contains(modules, "attn_proj") && !contains(modules, "core_attn")) out.reject("OFF-03");
  const bool inside = contains(modules, "expert_fc1") || contains(modules, "moe_act");
  const bool fused = contains(modules, "fused_group_mlp");
  if (s.selective && contains(s.recompute, "moe") && (inside || fused)) out.reject("OFF-04");
  if (fused && (inside || !s.has("--use-transformer-engine-op-fuser"))) out.reject("OFF-05");
  const double fraction = s.real("--activation-offload-fraction", 1);
  if (fraction < 0 || fraction > 1 || s.integer("--delta-offload-bytes-across-pp-ranks") < 0 ||
      s.integer("--min-offloaded-tensor-size") < 0)
    out.reject("OFF-06", fmt::format("fraction {}", fraction));
  if (s.graph_impl == "none") return;
  const bool partial = s.graph_impl == "local" && !s.graph_modules.empty() &&
                       std::all_of(modules.begin(), modules.end(), [](const std::string& m) {
                         return m == "expert_fc1" || m == "moe_act" || m == "fused_group_mlp";
                       });
  if ((s.graph_impl == "local" && !partial) || contains(s.graph_modules, "moe") ||
      s.integer("--cuda-graph-warmup-steps") <= 0 ||
      (s.graph_impl == "full_iteration" &&
       !s.has("--fine-grained-offloading-max-inflight-offloads")))
    out.reject("OFF-09");
}

void check_offload(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.has("--fine-grained-activation-offloading")) check_fine_grained(q, out);
  const std::int64_t offloaded = s.integer("--cpu-offloading-num-layers");
  if (offloaded > 0 && (s.pp > 1 || s.selective || s.full_recompute || offloaded >= s.layers ||
                        (s.graph_impl != "none" && s.graph_impl != "full_iteration")))
    out.reject("OFF-07");
  if (offloaded > 0 && s.has("--fine-grained-activation-offloading")) out.reject("TRI-OFFLOAD");
  if (s.has("--optimizer-cpu-offload") &&
      (!s.has("--use-precision-aware-optimizer") ||
       (s.has("--fp8-param-gather") && s.text("--fp8-recipe") != "delayed")))
    out.reject("OFF-08");
}

bool has_dense_layer(const Settings& s) {
  const Result<LayerList> list = parse_layer_list(s.text("--moe-layer-freq"), "");
  if (!list) return true;
  return list->is_list ? std::find(list->list.begin(), list->list.end(), 0) != list->list.end()
                       : list->every != 1;
}

void check_scopes(const Settings& s, Findings& out) {
  const bool router = contains(s.graph_modules, "moe_router");
  const bool preprocess = contains(s.graph_modules, "moe_preprocess");
  const bool moe = contains(s.graph_modules, "moe");
  const bool capacity = s.has("--moe-expert-capacity-factor");
  const bool padded = capacity && s.has("--moe-pad-expert-input-to-capacity");
  if (preprocess && !router && s.graph_impl == "transformer_engine") out.reject("CG-03");
  if ((moe && router) || (moe && s.moe && !padded)) out.reject("CG-04");
  if (!s.moe && (moe || router))
    out.reject("CG-05", "moe scopes");
  else if (s.moe && contains(s.graph_modules, "mlp") && !has_dense_layer(s))
    out.reject("CG-05", "mlp");
  if (preprocess && s.moe && !padded && s.dispatcher == "alltoall" &&
      (capacity || s.has("--moe-router-padding-for-fp8")))
    out.reject("CG-08");
}

}  // namespace

void check_recompute(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.full_recompute && (!s.has("--recompute-method") || !s.has("--recompute-num-layers")))
    out.reject("REC-01");
  if (s.selective && (s.has("--recompute-method") || s.has("--recompute-num-layers")))
    out.reject("REC-02");
  if (s.selective) check_modules(s, out);
  if (s.has("--distribute-saved-activations") &&
      (s.tp == 1 || !s.full_recompute || s.sequence_parallel))
    out.reject("REC-08");
  check_offload(q, out);
}

void check_graphs(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  if (s.graph_impl == "none") return;
  if (s.graph_impl == "full_iteration" &&
      (!s.graph_modules.empty() || !s.has("--no-check-for-nan-in-loss-and-grad")))
    out.reject("CG-02");
  if (s.graph_impl == "transformer_engine" || s.graph_impl == "local") check_scopes(s, out);
  if (q.options.version <= MegatronVersion::v0_17 && s.graph_impl != "transformer_engine" &&
      s.ep > 1 && !s.has("--moe-pad-experts-for-cuda-graph-inference"))
    out.reject("CG-02", "CUDA graphs with expert parallelism",
               "add --moe-pad-experts-for-cuda-graph-inference");
  if (s.full_recompute && s.graph_impl != "full_iteration") out.reject("CG-06");
  if (s.selective && s.graph_impl == "transformer_engine" && contains(s.recompute, "moe") &&
      contains(s.graph_modules, "moe_router"))
    out.reject("CG-06", "moe");
  if (s.graph_impl == "transformer_engine" &&
      q.variable("PYTORCH_CUDA_ALLOC_CONF").find("expandable_segments:True") != std::string::npos &&
      q.variable("NCCL_GRAPH_REGISTER") != "0")
    out.reject("CG-07");
  const bool whole = s.graph_modules.empty();
  if (s.selective && contains(s.recompute, "core_attn") && s.real("--attention-dropout") != 0 &&
      (whole || contains(s.graph_modules, "attn")))
    out.reject("CG-10", "attention dropout");
}

}  // namespace trifold::launch

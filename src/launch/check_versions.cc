// SPDX-License-Identifier: Apache-2.0
// What needs a younger Transformer Engine or PyTorch than the job image has. Judged only where the
// versions are told.

#include <cstdlib>

#include <fmt/format.h>

#include "launch/findings.h"

namespace trifold::launch {
namespace {

struct Need {
  const char* rule;
  bool used;
  const char* since;
  const char* what;
};

template <std::size_t N>
void check_needs(const Need (&needs)[N], const std::string& have, const char* library,
                 Findings& out) {
  if (have.empty()) return;
  for (const Need& need : needs)
    if (need.used && version_number(have) < version_number(need.since))
      out.reject(
          need.rule,
          fmt::format("{} needs {} >= {}, {} is there", need.what, library, need.since, have),
          fmt::format("use an image with {} {} or younger", library, need.since));
}

}  // namespace

long version_number(const std::string& text) {
  long parts[3] = {0, 0, 0};
  const char* at = text.c_str();
  for (long& part : parts) {
    char* end = nullptr;
    part = std::strtol(at, &end, 10);
    if (end == at || *end != '.') break;
    at = end + 1;
  }
  return parts[0] * 1000000 + parts[1] * 1000 + parts[2];
}

void check_versions(const Question& q, Findings& out) {
  const Settings& s = q.settings;
  const bool delayed = s.has("--delay-wgrad-compute");
  const bool low_recompute =
      s.fp8 && s.selective &&
      (contains(s.recompute, "moe_act") || contains(s.recompute, "layernorm"));
  const Need te[] = {
      {"GRID-12", s.gtp > 1 || s.egtp > 1, "2.19.0", "weight sharding beyond tp"},
      {"DSP-11", s.has("--moe-permute-fusion"), "2.1.0", "--moe-permute-fusion"},
      {"DSP-11", s.has("--moe-router-fusion"), "2.7.0", "--moe-router-fusion"},
      {"PR-03", s.fp4, "2.7.0", "--fp4-format"},
      {"PR-09", s.fp8 && s.moe && s.has("--moe-grouped-gemm"), "1.11.0", "FP8 grouped GEMM"},
      {"REC-07", low_recompute, "2.6.0", "recompute of moe_act or layernorm in FP8"},
      {"ATT-04", s.has("--qk-clip") || s.has("--log-max-attention-logit"), "2.9.0", "--qk-clip"},
      {"ATT-04", s.text("--softmax-type") != "vanilla", "2.8.0", "--softmax-type"},
      {"OVL-11", delayed && s.has("--overlap-grad-reduce"), "2.8.0", "--delay-wgrad-compute"},
      {"OVL-11", delayed && contains(s.graph_modules, "attn"), "2.12.0",
       "--delay-wgrad-compute with graphed attention"},
      {"OVL-12", s.has("--overlap-dispatch-backward-with-experts-wgrad"), "2.3.0",
       "--overlap-dispatch-backward-with-experts-wgrad"},
      {"FSDP-06", s.fsdp && !s.has("--no-gradient-accumulation-fusion"), "2.10.0",
       "gradient accumulation fusion under Megatron-FSDP"},
      {"GG-03", s.has("--moe-single-grouped-weight"), "2.14.0", "--moe-single-grouped-weight"},
  };
  check_needs(te, q.options.transformer_engine, "Transformer Engine", out);
  const bool expandable =
      q.variable("PYTORCH_CUDA_ALLOC_CONF").find("expandable_segments:True") != std::string::npos;
  const Need torch[] = {
      {"OVL-07", s.ep_overlap, "2.6.0", "--overlap-moe-expert-parallel-comm"},
      {"DDP-04", s.has("--use-nccl-ub") && expandable, "2.11.0",
       "--use-nccl-ub with expandable segments"},
      {"FSDP-07", s.has("--use-torch-fsdp2"), "2.4.0", "--use-torch-fsdp2"},
  };
  check_needs(torch, q.options.torch, "PyTorch", out);
}

}  // namespace trifold::launch

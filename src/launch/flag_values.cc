// SPDX-License-Identifier: Apache-2.0
#include "launch/flag_values.h"

#include <cstdlib>
#include <set>

#include <fmt/format.h>

namespace trifold::launch {
namespace {

// Values that the newest parser lists and older ones lack.
struct YoungChoice {
  const char* flag;
  const char* value;
  MegatronVersion since;
};
constexpr YoungChoice kYoungChoices[] = {
    {"--cuda-graph-impl", "full_iteration", MegatronVersion::v0_18},
    {"--moe-flex-dispatcher-backend", "ncclep", MegatronVersion::v0_19},
    {"--optimizer", "lion", MegatronVersion::v0_17},
    {"--optimizer", "soap", MegatronVersion::v0_18},
    {"--optimizer", "adaptive_muon", MegatronVersion::v0_18},
};

bool is_choice(const Flag& flag, const std::string& value, MegatronVersion version) {
  for (const YoungChoice& young : kYoungChoices)
    if (young.flag == std::string_view(flag.name) && young.value == value)
      return version >= young.since;
  const std::string all = std::string("|") + flag.choices + "|";
  return all.find("|" + value + "|") != std::string::npos;
}

// Megatron types a flag by its default; where that is a number, a word is refused.
bool wants_number(const Flag& flag) {
  if (flag.arity != 1 || flag.fallback[0] == '\0' || flag.choices[0] != '\0') return false;
  const std::string_view name = flag.name;  // frequencies may be lists: --moe-layer-freq
  if (name.size() > 5 && name.substr(name.size() - 5) == "-freq") return false;
  char* end = nullptr;
  std::strtod(flag.fallback, &end);
  return *end == '\0';
}
bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

// Numbers whose default is None.
bool is_size(std::string_view flag) {
  static const std::set<std::string_view> sizes = {
      "--num-layers",
      "--hidden-size",
      "--ffn-hidden-size",
      "--num-attention-heads",
      "--kv-channels",
      "--seq-length",
      "--max-position-embeddings",
      "--num-experts",
      "--micro-batch-size",
      "--global-batch-size",
      "--train-iters",
      "--train-samples",
      "--expert-tensor-parallel-size",
      "--moe-ffn-hidden-size",
      "--mtp-num-layers",
      "--vocab-size",
      "--num-virtual-stages-per-pipeline-rank",
      "--num-layers-per-virtual-pipeline-stage",
      "--moe-shared-expert-intermediate-size",
      "--recompute-num-layers",
      "--q-lora-rank",
      "--decoder-first-pipeline-num-layers",
      "--decoder-last-pipeline-num-layers",
      "--microbatch-group-size-per-virtual-pipeline-stage",
      "--moe-router-num-groups",
      "--moe-router-group-topk",
      "--num-distributed-optimizer-instances"};
  return sizes.count(flag) > 0;
}

}  // namespace

std::optional<ValueFault> fault_of(const Argument& argument, const Flag& flag,
                                   MegatronVersion version) {
  const std::size_t given = argument.values.size();
  const bool enough = flag.arity >= 0 ? given == static_cast<std::size_t>(flag.arity)
                                      : given > 0 || flag.arity == -2;
  if (!enough) {
    const std::string wants = flag.arity == 0    ? "takes no value"
                              : flag.arity == -1 ? std::string("takes one value or more")
                                                 : fmt::format("takes {} value", flag.arity);
    return ValueFault{"ARG-01", fmt::format("{} {}, {} given", flag.name, wants, given), {}};
  }
  for (const std::string& value : argument.values) {
    if (flag.choices[0] != '\0' && !is_choice(flag, value, version))
      return ValueFault{"ARG-02", fmt::format("{} {}", flag.name, value),
                        fmt::format("one of: {}", flag.choices)};
    if ((wants_number(flag) || is_size(flag.name)) && !is_number(value))
      return ValueFault{"ARG-03", fmt::format("{} {}: not a number", flag.name, value), {}};
  }
  return std::nullopt;
}

}  // namespace trifold::launch

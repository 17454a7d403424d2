// SPDX-License-Identifier: Apache-2.0
// What makes an argument list no run at all: names and values that Megatron's parser refuses, and
// flags that exclude each other. One error, with its line.

#include <fmt/format.h>

#include "launch/flag_values.h"
#include "launch/importer.h"

namespace trifold::launch {
namespace {

// A flag of a fork or of an older Megatron is listed; one that is a slip of the finger away from a
// real flag would build another model than the one that was meant.
constexpr int kSlip = 2;

std::string slip_of(const std::string& flag) {
  const std::string near = nearest_flag(flag, MegatronVersion::main);
  return !near.empty() && edit_distance(flag, near) <= kSlip ? near : std::string();
}

struct Exclusion {
  const char* one;
  const char* other;
  const char* why;
};
constexpr Exclusion kExclusions[] = {
    {"--bf16", "--fp16", "one number format"},
    {"--fp8-format", "--fp4-format", "one low precision"},
    {"--multi-latent-attention", "--group-query-attention", "one kind of attention"},
    {"--swiglu", "--quick-geglu", "one activation"},
    {"--swiglu", "--squared-relu", "one activation"},
    {"--quick-geglu", "--squared-relu", "one activation"},
    {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
     "one way to say the virtual stages"},
    {"--num-layers-per-virtual-pipeline-stage", "--pipeline-model-parallel-layout",
     "one way to say the virtual stages"},
    {"--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout",
     "one way to say the virtual stages"},
    {"--decoder-first-pipeline-num-layers", "--pipeline-model-parallel-layout",
     "one way to cut the layers"},
    {"--decoder-last-pipeline-num-layers", "--pipeline-model-parallel-layout",
     "one way to cut the layers"},
    {"--account-for-embedding-in-pipeline-split", "--pipeline-model-parallel-layout",
     "one way to cut the layers"},
    {"--account-for-loss-in-pipeline-split", "--pipeline-model-parallel-layout",
     "one way to cut the layers"},
    {"--train-iters", "--train-samples", "one length of the run"}};

std::string shown(const Argument& argument) {
  std::string text = argument.flag;
  for (const std::string& value : argument.values) text += " " + value;
  return text;
}

void check_repeats(Importer& in, const Argument& argument) {
  const Argument* last = in.settings.arguments().find(argument.flag);
  if (last == &argument || last->values == argument.values) return;
  in.lost(fmt::format("{}: given again{}, which counts", in.line_of(argument) + shown(argument),
                      last->line > 0 ? fmt::format(" in line {}", last->line)
                                     : fmt::format(" as {}", shown(*last))));
}

}  // namespace

void check_input(Importer& in) {
  const Arguments& arguments = in.settings.arguments();
  for (const Argument& argument : arguments.items) {
    const Flag* flag = find_flag(argument.flag);
    if (flag == nullptr) {
      const std::string meant = slip_of(argument.flag);
      if (!meant.empty())
        return in.fail_at(argument, argument.flag + " is no flag of Megatron",
                          "did you mean " + meant + "?");
      continue;
    }
    const std::optional<ValueFault> fault = fault_of(argument, *flag, MegatronVersion::main);
    // A choice of another version does no harm where the value is not used.
    if (fault && !(has_no_effect(argument.flag) && fault->rule == std::string_view("ARG-02")))
      return in.fail_at(argument, fault->detail, fault->fix);
    check_repeats(in, argument);
  }
  for (const Exclusion& pair : kExclusions) {
    const Argument* one = arguments.find(pair.one);
    const Argument* other = arguments.find(pair.other);
    if (one == nullptr || other == nullptr) continue;
    const Argument& later = one->line > other->line ? *one : *other;
    const Argument& earlier = &later == one ? *other : *one;
    return in.fail_at(
        later,
        fmt::format("{} contradicts {}{}: a run has {}", later.flag, earlier.flag,
                    earlier.line > 0 ? fmt::format(" (line {})", earlier.line) : "", pair.why),
        "keep one of the two");
  }
}

}  // namespace trifold::launch

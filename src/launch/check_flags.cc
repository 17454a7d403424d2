// SPDX-License-Identifier: Apache-2.0
// What Megatron's parser refuses: names, number of values, choices, and flags of other versions.

#include <fmt/format.h>

#include "launch/findings.h"
#include "launch/flag_values.h"

namespace trifold::launch {
namespace {

std::string version_name(MegatronVersion version) {
  return std::string(token_name(kMegatronVersions, version));
}

std::string line_of(const Argument& argument) {
  return argument.line > 0 ? fmt::format(" (line {})", argument.line) : std::string();
}

void check_name(const Argument& argument, const Question& q, Findings& out) {
  const Flag* flag = find_flag(argument.flag);
  const MegatronVersion version = q.options.version;
  if (flag != nullptr && flag->in(version)) return;
  std::string fix;
  if (flag == nullptr) {
    const std::string near = nearest_flag(argument.flag, version);
    fix = near.empty() ? "remove " + argument.flag : "did you mean " + near + "?";
    out.reject("TRN-03", argument.flag + " is no flag of Megatron" + line_of(argument), fix);
    return;
  }
  out.reject("TRN-03",
             fmt::format("{} exists in {}, not in {}{}", flag->name, versions_with(*flag),
                         version_name(version), line_of(argument)),
             fmt::format("remove {} or name a version that has it", flag->name));
}

}  // namespace

void check_flags(const Question& q, Findings& out) {
  const Arguments& arguments = q.settings.arguments();
  for (const Argument& argument : arguments.items) {
    check_name(argument, q, out);
    const Flag* flag = find_flag(argument.flag);
    const std::optional<ValueFault> fault =
        flag != nullptr ? fault_of(argument, *flag, q.options.version) : std::nullopt;
    if (fault) out.reject(fault->rule, fault->detail + line_of(argument), fault->fix);
    const Argument* last = arguments.find(argument.flag);
    if (last != &argument && last->values != argument.values)
      out.warn("ARG-04",
               fmt::format("{} {}{} and later {}{}", argument.flag,
                           argument.values.empty() ? "" : argument.values[0], line_of(argument),
                           last->values.empty() ? "" : last->values[0], line_of(*last)));
  }
  for (const char* needed : {"--hidden-size", "--num-attention-heads", "--max-position-embeddings",
                             "--micro-batch-size"})
    if (!arguments.has(needed)) out.reject("ARG-05", needed, std::string("give ") + needed);
  if (!arguments.has("--num-layers") && !arguments.has("--encoder-num-layers"))
    out.reject("ARG-05", "--num-layers", "give --num-layers");
  if (!arguments.has("--seq-length") && !arguments.has("--encoder-seq-length"))
    out.reject("ARG-05", "--seq-length", "give --seq-length");
}

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Would Megatron start with these arguments? The rules are Megatron's own (its parser,
// validate_args, configuration classes, process groups, schedules), judged on the argument list
// itself, so that what a Job cannot express is judged too. Rule ids are those of job/legality.h;
// the rules that only flags can break are in rules.cc.

#include <cstdint>
#include <string>
#include <vector>

#include "hardware/cluster.h"
#include "launch/arguments.h"
#include "launch/flags.h"

namespace trifold::launch {

enum class Severity : std::uint8_t {
  reject,  // Megatron refuses to start, or dies before its first step is done
  warning  // it starts; something is not what it seems, or fails later
};

struct Finding {
  Severity severity = Severity::reject;
  std::string rule;    // "GRID-01"
  std::string reason;  // Megatron's words
  std::string detail;  // the numbers or flags that clash
  std::string fix;     // the nearest change that would pass
};

struct CheckOptions {
  MegatronVersion version = MegatronVersion::main;
  std::int64_t gpus = 0;
  hardware::GpuArch arch = hardware::GpuArch::hopper;
  std::string transformer_engine, torch;  // versions in the job image; empty: not judged
};

// Rejections first, in the order Megatron would meet them, then warnings. Empty: all well.
std::vector<Finding> check_arguments(const Arguments& arguments, const Environment& environment,
                                     const CheckOptions& options);

bool accepted(const std::vector<Finding>& findings);  // no rejection among them
std::string explain(const Finding& finding);          // "GRID-01: ... (252 GPUs, ...); fix: ..."

}  // namespace trifold::launch

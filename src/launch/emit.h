// SPDX-License-Identifier: Apache-2.0
#pragma once

// A Job as the arguments and variables that make Megatron run it. What a Megatron version lacks is
// replaced, and said in the notes, or refused with the reason.

#include <cstdint>
#include <string>
#include <vector>

#include "job/job.h"
#include "launch/arguments.h"
#include "launch/flags.h"

namespace trifold::launch {

struct EmitOptions {
  MegatronVersion version = MegatronVersion::main;
  std::int64_t train_iterations = 100;
};

struct LaunchPlan {
  MegatronVersion version = MegatronVersion::main;
  Arguments arguments;
  Environment environment;
  std::vector<std::string> notes;  // what was replaced, or cannot be said in arguments
};

Result<LaunchPlan> emit(const job::Job& job, const EmitOptions& options = {});

}  // namespace trifold::launch

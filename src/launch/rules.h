// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rules that only flags, versions and variables can break. Those that a Job's structure can
// break too are in job/legality.cc; find_rule looks in both, and no id is in the two.

#include <string_view>
#include <vector>

#include "job/legality.h"

namespace trifold::launch {

const std::vector<job::Rule>& launch_rules();
// Refusals of Megatron's that no argument list can bring about or show, with the reason.
struct Unjudged {
  const char* id;
  const char* why;
};
std::vector<Unjudged> unjudged_rules();
const job::Rule* find_rule(std::string_view id);
const char* flag_fix(std::string_view id);  // the rule's advice, in flags

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What argparse says about one flag's values: how many, of which kind, among which choices.

#include <optional>
#include <string>

#include "launch/arguments.h"
#include "launch/flags.h"

namespace trifold::launch {

struct ValueFault {
  const char* rule;  // "ARG-01" (number of values), "ARG-02" (choice), "ARG-03" (not a number)
  std::string detail, fix;
};

// The first fault; none when Megatron's parser of that version takes the values.
std::optional<ValueFault> fault_of(const Argument& argument, const Flag& flag,
                                   MegatronVersion version);

}  // namespace trifold::launch

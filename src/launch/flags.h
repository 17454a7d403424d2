// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every option of Megatron's parser, and which versions have it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/tokens.h"

namespace trifold::launch {

enum class MegatronVersion : std::uint8_t { v0_16, v0_17, v0_18, v0_19, main, dev };
inline constexpr Token<MegatronVersion> kMegatronVersions[] = {
    {MegatronVersion::v0_16, "0.16"}, {MegatronVersion::v0_17, "0.17"},
    {MegatronVersion::v0_18, "0.18"}, {MegatronVersion::v0_19, "0.19"},
    {MegatronVersion::main, "main"},  {MegatronVersion::dev, "dev"}};

enum class FlagKind : std::uint8_t { value, set_true, set_false, boolean };

struct Flag {
  const char* name;
  const char* destination;  // the attribute of `args` that it sets
  FlagKind kind;
  int arity;  // 0 none, n that many, -1 one or more, -2 any number
  unsigned versions;
  const char* choices;   // separated by |
  const char* fallback;  // Megatron's default; "" when None

  bool in(MegatronVersion version) const {
    return (versions >> static_cast<unsigned>(version) & 1u) != 0;
  }
};

const std::vector<Flag>& flags();  // sorted by name
const Flag* find_flag(std::string_view name);
std::string nearest_flag(std::string_view name, MegatronVersion version);  // empty: none is near
std::string versions_with(const Flag& flag);                               // "0.18, 0.19, main"

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#include "launch/flags.h"

#include <algorithm>
#include <cstring>

namespace trifold::launch {
namespace {

constexpr Flag kFlags[] = {
#include "launch/flag_table.inc"
};

}  // namespace

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all(std::begin(kFlags), std::end(kFlags));
  return all;
}

const Flag* find_flag(std::string_view name) {
  const auto* at = std::lower_bound(std::begin(kFlags), std::end(kFlags), name,
                                    [](const Flag& f, std::string_view n) { return f.name < n; });
  return at != std::end(kFlags) && at->name == name ? at : nullptr;
}

std::string nearest_flag(std::string_view name, MegatronVersion version) {
  std::vector<std::string_view> names;
  for (const Flag& flag : kFlags)
    if (flag.in(version)) names.emplace_back(flag.name);
  return nearest(name, names);
}

std::string versions_with(const Flag& flag) {
  std::string text;
  for (const Token<MegatronVersion>& version : kMegatronVersions)
    if (flag.in(version.value)) text += (text.empty() ? "" : ", ") + std::string(version.name);
  return text;
}

}  // namespace trifold::launch

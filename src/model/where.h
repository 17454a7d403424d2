// SPDX-License-Identifier: Apache-2.0
#pragma once

// "file#/pointer" taken apart, so that a reader of a nested object can continue the pointer.

#include <string>

namespace trifold::model {

struct Where {
  std::string file;
  std::string pointer;
};

inline Where split_where(const std::string& where) {
  const std::size_t hash = where.find("#/");
  if (hash == std::string::npos) return {where, ""};
  return {where.substr(0, hash), where.substr(hash + 1)};
}

}  // namespace trifold::model

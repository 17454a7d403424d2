// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every target shares.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace trifold::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace trifold::fuzz

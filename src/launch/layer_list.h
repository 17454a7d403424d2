// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron's way to say something per layer (--moe-layer-freq, --window-attn-skip-freq,
// --no-rope-freq): an integer, or a list expression such as "([0]*3+[1]*58)".

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trifold::launch {

struct LayerList {
  bool is_list = false;
  int every = 0;          // when not a list
  std::vector<int> list;  // when a list
};

Result<LayerList> parse_layer_list(std::string_view text, const std::string& where);

// The shortest of: runs "([0]*3+[1]*58)", a repeated period "([0,1]*24)".
std::string print_layer_list(const std::vector<int>& list);

}  // namespace trifold::launch

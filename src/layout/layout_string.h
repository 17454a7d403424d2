// SPDX-License-Identifier: Apache-2.0
#pragma once

// The grammar of Megatron's --pipeline-model-parallel-layout without the vectors: for pipeline.cc's
// hot path. layout   := item*        item := "(" plain ")*" digits | char "*" digits | char
// plain: no parentheses (they do not nest); commas are dropped.

#include <string>
#include <string_view>

namespace trifold::layout {

struct LayoutSyntax {
  bool ok = true;
  std::size_t at = 0;  // where in the text
  const char* message = "";
};

// Appends the stages of `text` to `out` with every repeat written out: "Ettt|tt|...|L".
LayoutSyntax expand_layout(std::string_view text, std::string& out);

}  // namespace trifold::layout

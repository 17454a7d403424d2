// SPDX-License-Identifier: Apache-2.0
#pragma once

// CHECK guards invariants of the program, never input of a person (that is a Result). It aborts
// with file and line.

#include <cstdio>
#include <cstdlib>

namespace trifold::detail {
[[noreturn]] inline void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, expression);
  std::abort();
}
}  // namespace trifold::detail

#define TRIFOLD_CHECK(expression) \
  (static_cast<bool>(expression)  \
       ? static_cast<void>(0)     \
       : ::trifold::detail::check_failed(#expression, __FILE__, __LINE__))

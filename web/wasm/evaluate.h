// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the page asks while somebody moves a slider: a Job with some fields changed, priced as
// `trifold whatif` prices it. The browser runs this as WebAssembly, the parity test runs it
// natively.
//
// Request:  {"profile": trifold.profile/1, "job": Job with model and cluster inline}     once, then
//           {"points": [{"set": ["layout.ep=8", ...], "terms"?: true}, ...]}             as often
//           as wanted (both in one request is fine).
// Answer:   {"points": [{"status": "fits" | "out_of_memory" | "not_launchable" | "illegal",
// "reason": "",
//            "layout": "", "techniques": "", "wall": "" | null, "estimate": trifold.estimate/1 |
//            null, "terms"?: as memory.terms of trifold.page/1}, ...]}
//           or {"error": {"message", "where", "hint"}}; a point that cannot be read has its own
//           "error".

#include <optional>
#include <string>
#include <string_view>

#include "planner/whatif.h"

namespace trifold::page {

class Evaluator {
 public:
  // Never throws; numbers with every digit.
  std::string answer(std::string_view request);

 private:
  Result<Json> respond(const Json& request);
  Result<Json> evaluate(const Json& point);

  std::optional<planner::WhatIf> what_if_;
  planner::Point scratch_;
};

}  // namespace trifold::page

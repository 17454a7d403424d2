// SPDX-License-Identifier: Apache-2.0
#pragma once

// nccl-tests logs (text, or JSON of `-J`) as points, so that a cluster's existing logs calibrate it
// without a GPU at hand. Out-of-place times; a row whose check failed is flagged `bad`.

#include <optional>
#include <string>

#include "calibrate/fit/points.h"

namespace trifold::fit {

struct NcclTestsHint {
  std::optional<hardware::Collective> op;  // where the log does not name the program
  int ranks = 0;                           // where it does not list its ranks
};

// Either format; decided by the first character.
Result<PointsFile> import_nccl_tests(const std::string& text, const std::string& name,
                                     const NcclTestsHint& hint = {});

}  // namespace trifold::fit

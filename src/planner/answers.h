// SPDX-License-Identifier: Apache-2.0
#pragma once

// Questions that take several searches or a named layout.

#include "planner/search.h"

namespace trifold::planner {

// The smallest multiple of the query's GPUs (x2, x4, ... up to x64) on which something fits; 0:
// none.
int smallest_cluster_that_fits(const Query& query, const hardware::Profile& profile);

}  // namespace trifold::planner

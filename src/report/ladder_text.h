// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ladder of `trifold explain`.

#include <string>

#include "base/json.h"
#include "planner/ladder.h"

namespace trifold::report {

std::string ladder_text(const planner::Ladder& ladder);

// trifold.explain/1: {"schema", "job", "baseline", "steps": [{"attack", "name", "wall_before",
// "wall", "step_time_s", "low_s", "high_s", "gain_s", "gain_share", "peak_bytes", "freed_bytes",
// "headroom_bytes", "fits", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu",
// "walls_s": {"compute", "recompute", "communication", "bubble", "host", "optimizer"}}],
// "next": [{"attack", "name", "step_time_s", "gain_s", "gain_share", "peak_bytes", "freed_bytes",
// "headroom_bytes"}], "speed_up"}. gain_share is of the step before.
Json ladder_json(const planner::Ladder& ladder);

}  // namespace trifold::report

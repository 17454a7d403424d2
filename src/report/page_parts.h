// SPDX-License-Identifier: Apache-2.0
#pragma once

// Internal to report/: the parts of the page's data that need no what-if (shapes: page_data.h).

#include "base/json.h"
#include "hardware/profile.h"
#include "job/job.h"
#include "memory/memory.h"

namespace trifold::report {

struct Simulated {
  Json timeline;  // null where the schedule cannot finish
  Json curves;    // memory over time
};
Simulated simulated_json(const job::Job& job, const layout::Pipeline& pipeline,
                         const hardware::Profile& profile, int most_slices);

Json terms_json(const job::Job& job, const layout::Pipeline& pipeline, int stage);
Json icicle_json(const job::Job& job, const layout::Pipeline& pipeline,
                 const memory::Memory& memory);
Json ranks_json(const job::Job& job);

}  // namespace trifold::report

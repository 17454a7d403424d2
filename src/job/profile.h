// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cost profile that prices a Job: its own or its cluster's, rescaled where the Job overrides
// the NVLink rate that the profile was measured at.

#include <string>

#include "hardware/profile.h"
#include "job/job.h"

namespace trifold::job {

Result<hardware::Profile> profile_of(const Job& job, const std::string& data_dir);

}  // namespace trifold::job

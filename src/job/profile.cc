// SPDX-License-Identifier: Apache-2.0
#include "job/profile.h"

#include "hardware/rescaled.h"

namespace trifold::job {

Result<hardware::Profile> profile_of(const Job& job, const std::string& data_dir) {
  TRIFOLD_ASSIGN(profile, job.profile.empty() ? hardware::profile_of(job.cluster, data_dir)
                                              : hardware::load_profile(job.profile, data_dir));
  if (job.cluster_origin.overrides.empty()) return profile;
  TRIFOLD_ASSIGN(ratio, hardware::scaleup_ratio(job.cluster, job.cluster_origin.name, data_dir));
  return hardware::rescaled(profile, ratio);
}

}  // namespace trifold::job

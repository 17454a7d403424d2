// SPDX-License-Identifier: Apache-2.0
#pragma once

// The fitter's two doors: a Profile from public tables, and a Profile from points measured here.

#include <string>
#include <vector>

#include "calibrate/fit/grid_fit.h"
#include "calibrate/fit/points.h"
#include "hardware/cluster.h"
#include "hardware/profile.h"

namespace trifold::fit {

struct FittedProfile {
  hardware::Profile profile;
  std::vector<ErrorReport> reports;
  // From points alone: the same surfaces with the constants that the points show, which are those
  // of bare kernels at burst clocks. `profile` keeps a base's constants where published training
  // runs fitted them (a framework around the kernels, sustained clocks); this one predicts
  // benchmarks.
  hardware::Profile benchmark;
};

// "h100", "h800", "h200", "b200", "b300", "gb200", "gb300", "a100".
std::vector<std::string> public_profile_names();
// `data_dir` holds hardware.json, h200x2/, third_party_measurements/ and observations/.
Result<FittedProfile> fit_public(const std::string& name, const std::string& data_dir);

// `base` answers where the points do not, and must have been made on the same GPU type: the
// catalogue's profile, or hardware::assumed_profile. Refuses points or a base of another GPU.
Result<FittedProfile> fit_points(const PointsFile& points, const hardware::Cluster& cluster,
                                 const hardware::Profile& base, const std::string& name);

// Complaints of the quality gate (shared/reference/calibration.md section 3): empty when it passes.
std::vector<std::string> gate(const std::vector<ErrorReport>& reports);

// The error table that goes with a profile.
std::string error_table(const std::vector<ErrorReport>& reports);

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The fitter's two doors: a Profile from public tables, and a Profile from points measured here.

#include <string>
#include <vector>

#include "calibrate/fit/grid_fit.h"
#include "hardware/profile.h"

namespace trifold::fit {

struct FittedProfile {
  hardware::Profile profile;
  std::vector<ErrorReport> reports;
};

// "h100", "h800", "h200", "b200", "b300", "gb200", "gb300", "a100".
std::vector<std::string> public_profile_names();
// `data_dir` holds hardware.json, h200x2/, third_party_measurements/ and observations/.
Result<FittedProfile> fit_public(const std::string& name, const std::string& data_dir);

// The error table that goes with a profile.
std::string error_table(const std::vector<ErrorReport>& reports);

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collectives that cross domains, as the two constants that cost/ has for them.

#include <optional>
#include <vector>

#include "calibrate/fit/grid_fit.h"
#include "hardware/profile.h"

namespace trifold::fit {

struct ScaleoutSample {
  hardware::Collective op = hardware::Collective::all_reduce;
  double ranks = 0, domains = 0, bytes = 0, seconds = 0;
};

struct ScaleoutFit {
  double efficiency = 0;  // of the NIC rate
  double latency_s = 0;
  ErrorReport report;
};
// nullopt for fewer than four samples, or when they are all of one size.
std::optional<ScaleoutFit> fit_scaleout(const std::vector<ScaleoutSample>& samples,
                                        double nic_bytes_per_s);

}  // namespace trifold::fit

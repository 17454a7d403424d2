// SPDX-License-Identifier: Apache-2.0
#pragma once

// What each mechanism of the model is worth: the error on published runs after taking it out and
// fitting the remaining constants anew.

#include <string>
#include <vector>

#include "calibrate/fit/constants_fit.h"

namespace trifold::fit {

struct KnockOut {
  std::string mechanism;
  std::vector<double> errors;  // predicted / measured - 1, by case
};

std::vector<KnockOut> knock_out(const std::vector<observe::Observation>& observations,
                                const Profiles& profiles);

}  // namespace trifold::fit

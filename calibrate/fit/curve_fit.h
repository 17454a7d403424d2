// SPDX-License-Identifier: Apache-2.0
#pragma once

// From timings of one collective at one rank count to a monotone curve.

#include <map>
#include <vector>

#include "calibrate/fit/grid_fit.h"
#include "hardware/profile.h"

namespace trifold::fit {

// Seconds by bytes; several samples a size give their median.
using Timings = std::map<double, std::vector<double>>;

// Medians, made non-decreasing by isotonic regression of ln t. At least two sizes.
hardware::CollectiveCurve fit_curve(int ranks, const Timings& timings, hardware::Basis basis);

// Leave one interior size out of piecewise-linear (ln S, ln t): signed relative errors.
std::vector<double> curve_leave_one_out(const hardware::CollectiveCurve& curve);
// The largest size predicted by the others (slope 1 beyond them): signed relative error.
double curve_largest_left_out(const hardware::CollectiveCurve& curve);

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/curve_fit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "calibrate/fit/solve.h"

// Collectives inside a domain: monotone piecewise linear in (ln S, ln t) through medians.
// Alpha-beta is not used between points: its error on the public tables is 5-17 % median and 20-56
// % at most, against 1-11 % for this form when it bridges gaps of 4x (shared/reference/achieved.md
// section 1). Leaving a size out of a table in powers of two bridges 4x; reading between its points
// bridges 2x, where the error of a chord is a quarter for a smooth curve. Half of the leave-one-out
// error is stored, because the kinks (protocol switches) are not smooth.

namespace trifold::fit {

hardware::CollectiveCurve fit_curve(int ranks, const Timings& timings, hardware::Basis basis) {
  TRIFOLD_CHECK(timings.size() >= 2);
  hardware::CollectiveCurve curve;
  curve.ranks = ranks;
  curve.basis = basis;
  std::vector<double> logs, weights, spread;
  for (const auto& [bytes, seconds] : timings) {
    curve.bytes.push_back(bytes);
    const double median = quantile(seconds, 0.5);
    logs.push_back(std::log(median));
    weights.push_back(static_cast<double>(seconds.size()));
    if (seconds.size() > 2)
      spread.push_back((quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median);
  }
  for (double t : isotonic(logs, weights)) curve.seconds.push_back(std::exp(t));
  std::vector<double> errors;
  for (double e : curve_leave_one_out(curve)) errors.push_back(std::abs(e));
  const double half = 0.5 * std::max(quantile(errors, 0.5) / 0.6745, quantile(errors, 0.9) / 1.645);
  curve.error = std::clamp(std::max(half, quantile(spread, 0.5)), 0.02, 1.0);
  return curve;
}

std::vector<double> curve_leave_one_out(const hardware::CollectiveCurve& curve) {
  std::vector<double> errors;
  for (std::size_t i = 1; i + 1 < curve.bytes.size(); ++i) {
    const double weight = std::log(curve.bytes[i] / curve.bytes[i - 1]) /
                          std::log(curve.bytes[i + 1] / curve.bytes[i - 1]);
    const double predicted =
        curve.seconds[i - 1] * std::pow(curve.seconds[i + 1] / curve.seconds[i - 1], weight);
    errors.push_back(predicted / curve.seconds[i] - 1);
  }
  return errors;
}

double curve_largest_left_out(const hardware::CollectiveCurve& curve) {
  const std::size_t last = curve.bytes.size() - 1;
  const double predicted = curve.seconds[last - 1] * curve.bytes[last] / curve.bytes[last - 1];
  return predicted / curve.seconds[last] - 1;
}

}  // namespace trifold::fit

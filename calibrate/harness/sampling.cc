// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/sampling.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trifold::calibrate {

double percentile(std::vector<double> values, double q) {
  TRIFOLD_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

double relative_spread(const std::vector<double>& values) {
  const double median = percentile(values, 0.5);
  return median > 0 ? (percentile(values, 0.9) - percentile(values, 0.1)) / median : 0;
}

int inner_count(const SampleRule& rule, double one_us) {
  if (!(one_us > 0)) return rule.max_inner;
  const double wanted = std::ceil(rule.min_span_us / one_us);
  return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(rule.max_inner)));
}

bool WarmUp::add(double us, double elapsed_ms) {
  last_.push_back(us);
  if (last_.size() > 3) last_.erase(last_.begin());
  if (last_.size() == 3) {
    const auto [low, high] = std::minmax_element(last_.begin(), last_.end());
    settled_ = *high - *low <= 0.02 * *low;
  }
  return settled_ || elapsed_ms > rule_.warm_ms;
}

bool enough(const SampleRule& rule, const std::vector<double>& samples, double elapsed_ms) {
  const int count = static_cast<int>(samples.size());
  if (count >= rule.max_samples) return true;
  if (count >= 5 && elapsed_ms > rule.budget_ms) return true;
  return count >= rule.min_samples && relative_spread(samples) < rule.noise;
}

}  // namespace trifold::calibrate

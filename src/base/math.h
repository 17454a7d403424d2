// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small integer arithmetic that every folder needs.

#include <cmath>
#include <cstdint>
#include <vector>

namespace trifold {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}
constexpr bool divides(std::int64_t divisor, std::int64_t value) {
  return divisor > 0 && value % divisor == 0;
}
constexpr bool is_power_of_two(std::int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

inline std::vector<std::int64_t> divisors(std::int64_t value) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    low.push_back(d);
    if (d != value / d) high.push_back(value / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// ln C(n, k) for real arguments; -inf where the binomial is zero.
inline double log_binomial(double n, double k) {
  if (k < 0 || k > n) return -INFINITY;
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

// Expected number of distinct groups hit by `k` picks without replacement out of `items`, cut into
// `groups` equal parts: G (1 - C(E - E/G, k) / C(E, k)). Source: techniques.md (b),
// token-deduplicated dispatch.
inline double expected_distinct_groups(double items, double groups, double k) {
  if (groups <= 1) return 1;
  const double miss = log_binomial(items - items / groups, k) - log_binomial(items, k);
  return groups * (1 - std::exp(miss));
}

}  // namespace trifold

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/traffic.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

// Expected copies.
//
// Without groups: expected_distinct_groups (base/math.h). With group-limited routing a token first
// picks g of G groups, uniformly, then k experts among theirs. A part that is at least one group
// wide holds q = G / parts groups; it is missed with probability
//   sum_j C(q, j) C(G - q, g - j) / C(G, g) x C((g - j) E/G, k) / C(g E/G, k).
// A part narrower than a group is reached when its group is picked (g/G) and an expert of it is:
//   (1 - g/G) + g/G x C(g E/G - E/parts, k) / C(g E/G, k).
// Real routing picks the groups with the highest scores; under balanced load these are uniform.

namespace trifold::fit {

namespace {

double choose_ratio(double fewer, double all, double k) {
  return std::exp(log_binomial(fewer, k) - log_binomial(all, k));
}

}  // namespace

double expected_parts(const Routing& routing, double parts) {
  const double e = routing.experts, k = routing.topk;
  if (parts <= 1) return 1;
  if (routing.groups <= 0) return expected_distinct_groups(e, parts, k);
  const double big = routing.groups, used = routing.groups_used, width = e / big;
  double miss = 0;
  if (parts >= big) {
    miss = (1 - used / big) + used / big * choose_ratio(used * width - e / parts, used * width, k);
  } else {
    const double held = big / parts;
    for (double j = 0; j <= std::min(held, used); ++j) {
      const double log_p =
          log_binomial(held, j) + log_binomial(big - held, used - j) - log_binomial(big, used);
      miss += std::exp(log_p) * choose_ratio((used - j) * width, used * width, k);
    }
  }
  return parts * (1 - miss);
}

Traffic deduplicated(const Routing& routing, int ranks, int domain, double tokens,
                     double token_bytes) {
  const double bytes = tokens * token_bytes;
  const double inside = std::min(ranks, domain);
  const double domains = std::ceil(static_cast<double>(ranks) / domain);
  Traffic t;
  t.scaleup = bytes * expected_parts(routing, ranks) * (inside - 1) / inside;
  if (domains > 1) t.scaleout = bytes * expected_parts(routing, domains) * (domains - 1) / domains;
  return t;
}

Traffic replicated(const Routing& routing, int ranks, int domain, double tokens,
                   double token_bytes) {
  const double bytes = tokens * token_bytes * routing.topk;
  const double inside = std::min(ranks, domain);
  return {bytes * (inside - 1) / ranks, bytes * (ranks - inside) / ranks};
}

}  // namespace trifold::fit

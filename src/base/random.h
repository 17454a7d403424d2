// SPDX-License-Identifier: Apache-2.0
#pragma once

// Deterministic random numbers: the same seed gives the same sequence on every platform (the
// distributions of the standard library do not). xoshiro256** seeded by splitmix64 (Blackman and
// Vigna, public domain algorithm).

#include <array>
#include <cstdint>
#include <vector>

namespace trifold {

class Random {
 public:
  explicit Random(std::uint64_t seed);
  std::uint64_t next();
  double uniform();                      // [0, 1)
  std::uint64_t below(std::uint64_t n);  // 0 .. n-1
  double normal();                       // mean 0, variance 1
  double gamma(double shape);            // scale 1; Marsaglia and Tsang (2000)

 private:
  std::array<std::uint64_t, 4> state_;
};

// Shares of `n` items that sum to 1.
std::vector<double> zipf_shares(int n, double exponent);  // share_i proportional to (i+1)^-exponent
std::vector<double> dirichlet_shares(int n, double concentration, Random& random);

// FNV-1a, for plan ids and cache keys.
std::uint64_t fnv1a(const void* data, std::size_t size, std::uint64_t seed = 0xcbf29ce484222325ull);

}  // namespace trifold

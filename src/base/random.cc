// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <algorithm>
#include <cmath>

namespace trifold {

namespace {
std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
}  // namespace

Random::Random(std::uint64_t seed) : state_{} {
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15ull;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    word = z ^ (z >> 31);
  }
}

std::uint64_t Random::next() {
  const std::uint64_t result = rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

std::uint64_t Random::below(std::uint64_t n) {
  return static_cast<std::uint64_t>(uniform() * static_cast<double>(n));
}

double Random::normal() {
  const double u = 1.0 - uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * uniform());
}

double Random::gamma(double shape) {
  if (shape < 1) return gamma(shape + 1) * std::pow(1.0 - uniform(), 1.0 / shape);
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = normal();
    const double v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
    if (v <= 0) continue;
    if (std::log(1.0 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

std::vector<double> zipf_shares(int n, double exponent) {
  std::vector<double> shares(static_cast<std::size_t>(n));
  double sum = 0;
  for (int i = 0; i < n; ++i)
    sum += shares[static_cast<std::size_t>(i)] = std::pow(i + 1.0, -exponent);
  for (double& share : shares) share /= sum;
  return shares;
}

std::vector<double> dirichlet_shares(int n, double concentration, Random& random) {
  std::vector<double> shares(static_cast<std::size_t>(n));
  double sum = 0;
  for (double& share : shares) sum += share = random.gamma(concentration);
  for (double& share : shares) share /= sum;
  return shares;
}

std::uint64_t fnv1a(const void* data, std::size_t size, std::uint64_t seed) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) seed = (seed ^ bytes[i]) * 0x100000001b3ull;
  return seed;
}

}  // namespace trifold

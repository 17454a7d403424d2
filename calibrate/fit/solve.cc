// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/solve.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trifold::fit {

namespace {

// Least squares over the columns in `passive`; the others stay zero.
Eigen::VectorXd solve_passive(const Eigen::MatrixXd& gram, const Eigen::VectorXd& rhs,
                              const std::vector<int>& passive) {
  const int p = static_cast<int>(passive.size());
  Eigen::MatrixXd g(p, p);
  Eigen::VectorXd r(p);
  for (int i = 0; i < p; ++i) {
    r[i] = rhs[passive[i]];
    for (int j = 0; j < p; ++j) g(i, j) = gram(passive[i], passive[j]);
  }
  const Eigen::VectorXd x = g.ldlt().solve(r);
  Eigen::VectorXd out = Eigen::VectorXd::Zero(rhs.size());
  for (int i = 0; i < p; ++i) out[passive[i]] = x[i];
  return out;
}

}  // namespace

Eigen::VectorXd nnls(const Eigen::MatrixXd& a, const Eigen::VectorXd& b, double ridge) {
  const int n = static_cast<int>(a.cols());
  Eigen::VectorXd scale = a.colwise().norm();
  for (int j = 0; j < n; ++j)
    if (scale[j] == 0) scale[j] = 1;
  const Eigen::MatrixXd scaled = a * scale.cwiseInverse().asDiagonal();
  Eigen::MatrixXd gram = scaled.transpose() * scaled;
  gram.diagonal().array() += ridge;
  const Eigen::VectorXd rhs = scaled.transpose() * b;
  const double tolerance = 1e-12 * std::max(1.0, rhs.cwiseAbs().maxCoeff());

  Eigen::VectorXd x = Eigen::VectorXd::Zero(n);
  std::vector<int> passive;
  for (int step = 0; step < 3 * n + 10; ++step) {
    const Eigen::VectorXd gradient = rhs - gram * x;
    int enter = -1;
    for (int j = 0; j < n; ++j)
      if (std::find(passive.begin(), passive.end(), j) == passive.end() &&
          gradient[j] > tolerance && (enter < 0 || gradient[j] > gradient[enter]))
        enter = j;
    if (enter < 0) break;
    passive.push_back(enter);
    Eigen::VectorXd trial = solve_passive(gram, rhs, passive);
    while (std::any_of(passive.begin(), passive.end(), [&](int j) { return trial[j] <= 0; })) {
      double alpha = 1;
      for (int j : passive)
        if (trial[j] <= 0 && x[j] > trial[j]) alpha = std::min(alpha, x[j] / (x[j] - trial[j]));
      x += alpha * (trial - x);
      passive.erase(std::remove_if(passive.begin(), passive.end(),
                                   [&](int j) { return x[j] <= 1e-14 && trial[j] <= 0; }),
                    passive.end());
      trial = solve_passive(gram, rhs, passive);
    }
    x = trial;
  }
  return x.cwiseQuotient(scale);
}

std::vector<double> isotonic(const std::vector<double>& values,
                             const std::vector<double>& weights) {
  TRIFOLD_CHECK(values.size() == weights.size());
  struct Pool {
    double mean, weight;
    std::size_t count;
  };
  std::vector<Pool> pools;
  for (std::size_t i = 0; i < values.size(); ++i) {
    pools.push_back({values[i], weights[i], 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean > pools.back().mean) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& pool = pools.back();
      const double weight = pool.weight + last.weight;
      pool.mean = (pool.mean * pool.weight + last.mean * last.weight) / weight;
      pool.weight = weight;
      pool.count += last.count;
    }
  }
  std::vector<double> out;
  out.reserve(values.size());
  for (const Pool& pool : pools) out.insert(out.end(), pool.count, pool.mean);
  return out;
}

double golden_section(const std::function<double(double)>& f, double low, double high) {
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  const double stop = 1e-6 * (high - low);
  double a = high - ratio * (high - low), b = low + ratio * (high - low);
  double fa = f(a), fb = f(b);
  while (high - low > stop) {
    if (fa <= fb) {
      high = b;
      b = a;
      fb = fa;
      a = high - ratio * (high - low);
      fa = f(a);
    } else {
      low = a;
      a = b;
      fa = fb;
      b = low + ratio * (high - low);
      fb = f(b);
    }
  }
  return (low + high) / 2;
}

std::vector<double> box_search(const std::function<double(const std::vector<double>&)>& f,
                               std::vector<double> start, const std::vector<Box>& box, int rounds) {
  TRIFOLD_CHECK(start.size() == box.size());
  double best = f(start);
  for (int round = 0; round < rounds; ++round) {
    const double before = best;
    for (std::size_t i = 0; i < start.size(); ++i) {
      std::vector<double> trial = start;
      const auto along = [&](double v) {
        trial[i] = v;
        return f(trial);
      };
      const double found = golden_section(along, box[i].low, box[i].high);
      for (double candidate : {found, box[i].low, box[i].high}) {
        const double value = along(candidate);
        if (value < best) {
          best = value;
          start[i] = candidate;
        }
      }
    }
    if (before - best <= 1e-12 * std::abs(before)) break;
  }
  return start;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const std::size_t low = static_cast<std::size_t>(at);
  if (low + 1 >= values.size()) return values.back();
  return values[low] + (at - static_cast<double>(low)) * (values[low + 1] - values[low]);
}

double huber(double residual, double k) {
  const double r = std::abs(residual);
  return r <= k ? r * r / 2 : k * (r - k / 2);
}

double huber_weight(double residual, double k) {
  const double r = std::abs(residual);
  return r <= k ? 1 : k / r;
}

}  // namespace trifold::fit

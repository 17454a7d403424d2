// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/grid_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/check.h"
#include "calibrate/fit/solve.h"

// Utilisation surface.
//
//   ln u(x, y, z) = sum_j phi_j(ln x, ln y, ln z) v_j,  phi: products of hat functions on the axes
//   v = argmin  sum_i w_i (ln u_i - phi_i v)^2 + r |v - p|^2 + s sum_edges ((v - p)_a - (v -
//   p)_b)^2
//
// p: the saturating prior at the nodes; r = 1e-3; s from kSmoothness. Utilisation, not time, is
// interpolated, and no smooth surface is imposed: B200 bf16 drops 26 % from 2048 to 4096 rows and
// splines ring there (shared/reference/calibration.md sections 1 and 3).
//
// Leave-out errors need no refit. With H = Phi (Phi' W Phi + P)^-1 Phi' W the residuals of a group
// G that was left out are (I - H_GG)^-1 r_G, exact for fixed weights and prior.
//
// Known error: leave one point out 2-7 % median on the public GEMM tables (printed by trifold_fit).

namespace trifold::fit {

namespace {

constexpr double kRidge = 1e-3;
constexpr double kSmoothness[] = {0.002, 0.01, 0.05, 0.2};
constexpr double kHuber = 0.05;
constexpr int kRounds = 3;
constexpr std::size_t kOutliers = 5;

using Nodes = std::array<std::vector<double>, 3>;

struct Weighted {
  int node;
  double weight;
};
using Row = std::vector<Weighted>;

// Clamped hat functions: two neighbours on an axis.
void bracket(const std::vector<double>& axis, double value, std::size_t& low, double& up) {
  const double x = std::log(value);
  low = 0;
  up = 0;
  if (axis.size() == 1 || x <= axis.front()) return;
  if (x >= axis.back()) {
    low = axis.size() - 2;
    up = 1;
    return;
  }
  while (x >= axis[low + 1]) ++low;
  up = (x - axis[low]) / (axis[low + 1] - axis[low]);
}

Row basis_row(const Nodes& logs, double x, double y, double z) {
  const double at[3] = {x, y, z};
  std::size_t low[3];
  double up[3];
  for (int a = 0; a < 3; ++a) bracket(logs[a], at[a], low[a], up[a]);
  Row row;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::size_t index = 0;
    for (unsigned a = 0; a < 3; ++a) {
      const unsigned bit = (corner >> a) & 1u;
      weight *= bit != 0 ? up[a] : 1 - up[a];
      index = index * logs[a].size() + low[a] + bit;
    }
    if (weight > 0) row.push_back({static_cast<int>(index), weight});
  }
  return row;
}

Nodes logs_of(const Nodes& nodes) {
  Nodes logs = nodes;
  for (auto& axis : logs)
    for (double& v : axis) v = std::log(v);
  return logs;
}

Eigen::MatrixXd penalty(const Nodes& logs, double smoothness) {
  const int sizes[3] = {static_cast<int>(logs[0].size()), static_cast<int>(logs[1].size()),
                        static_cast<int>(logs[2].size())};
  const int total = sizes[0] * sizes[1] * sizes[2];
  const int strides[3] = {sizes[1] * sizes[2], sizes[2], 1};
  Eigen::MatrixXd p = Eigen::MatrixXd::Identity(total, total) * kRidge;
  for (int i = 0; i < total; ++i)
    for (int a = 0; a < 3; ++a) {
      if ((i / strides[a]) % sizes[a] + 1 == sizes[a]) continue;
      const int j = i + strides[a];
      p(i, i) += smoothness;
      p(j, j) += smoothness;
      p(i, j) -= smoothness;
      p(j, i) -= smoothness;
    }
  return p;
}

// One ridge problem: the samples' rows, targets relative to the prior, and its solution.
struct Problem {
  std::vector<Row> rows;
  Eigen::VectorXd target;    // ln u - prior
  Eigen::VectorXd weights;   // sample weight x Huber weight
  Eigen::VectorXd delta;     // nodes, relative to the prior
  Eigen::VectorXd residual;  // target - fit
  Eigen::MatrixXd hat;       // rows x rows
};

Eigen::VectorXd evaluate(const std::vector<Row>& rows, const Eigen::VectorXd& v) {
  Eigen::VectorXd out(static_cast<int>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    double sum = 0;
    for (const Weighted& w : rows[i]) sum += w.weight * v[w.node];
    out[static_cast<int>(i)] = sum;
  }
  return out;
}

void solve(Problem& problem, const Eigen::MatrixXd& prior_penalty,
           const std::vector<Sample>& samples) {
  const int n = static_cast<int>(samples.size());
  const int nodes = static_cast<int>(prior_penalty.rows());
  Eigen::MatrixXd phi_t = Eigen::MatrixXd::Zero(nodes, n);
  for (int i = 0; i < n; ++i)
    for (const Weighted& w : problem.rows[i]) phi_t(w.node, i) = w.weight;
  problem.weights.resize(n);
  for (int i = 0; i < n; ++i) problem.weights[i] = samples[i].weight;
  for (int round = 0; round <= kRounds; ++round) {
    Eigen::MatrixXd normal = prior_penalty;
    Eigen::VectorXd rhs = Eigen::VectorXd::Zero(nodes);
    for (int i = 0; i < n; ++i)
      for (const Weighted& a : problem.rows[i]) {
        rhs[a.node] += a.weight * problem.weights[i] * problem.target[i];
        for (const Weighted& b : problem.rows[i])
          normal(a.node, b.node) += a.weight * b.weight * problem.weights[i];
      }
    const Eigen::LLT<Eigen::MatrixXd> factor(normal);
    problem.delta = factor.solve(rhs);
    problem.residual = problem.target - evaluate(problem.rows, problem.delta);
    if (round < kRounds) {
      for (int i = 0; i < n; ++i)
        problem.weights[i] = samples[i].weight * huber_weight(problem.residual[i], kHuber);
      continue;
    }
    const Eigen::MatrixXd solved = factor.solve(phi_t);
    problem.hat.resize(n, n);
    for (int i = 0; i < n; ++i) {
      Eigen::RowVectorXd line = Eigen::RowVectorXd::Zero(n);
      for (const Weighted& w : problem.rows[i]) line += w.weight * solved.row(w.node);
      problem.hat.row(i) = line;
    }
    problem.hat = problem.hat * problem.weights.asDiagonal();
  }
}

// Residuals (measured minus predicted ln u) of `group` had it been left out.
std::vector<double> left_out(const Problem& problem, const std::vector<int>& group) {
  const int n = static_cast<int>(group.size());
  Eigen::MatrixXd m = Eigen::MatrixXd::Identity(n, n);
  Eigen::VectorXd r(n);
  for (int i = 0; i < n; ++i) {
    r[i] = problem.residual[group[i]];
    for (int j = 0; j < n; ++j) m(i, j) -= problem.hat(group[i], group[j]);
  }
  const Eigen::VectorXd out = m.partialPivLu().solve(r);
  return {out.data(), out.data() + n};
}

double relative(double log_residual) { return std::abs(std::expm1(log_residual)); }

std::vector<double> curve_errors(const Problem& problem, const std::vector<Sample>& samples) {
  std::map<int, std::vector<int>> curves;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i].weight >= kPinned) curves[samples[i].curve].push_back(static_cast<int>(i));
  std::vector<double> errors;
  for (const auto& [curve, group] : curves)
    for (double r : left_out(problem, group)) errors.push_back(relative(r));
  return errors;
}

ErrorReport report_of(const Problem& problem, const std::vector<Sample>& samples) {
  ErrorReport report;
  std::vector<double> fitted, points, signed_points;
  double largest = 0;
  std::map<int, int> curves;
  // Samples of one shape (other expert counts, other sources) leave together.
  std::map<std::array<double, 3>, std::vector<int>> shapes;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    if (s.weight < kPinned) continue;
    ++report.samples;
    fitted.push_back(relative(problem.residual[static_cast<int>(i)]));
    shapes[{s.x, s.y, s.z}].push_back(static_cast<int>(i));
    largest = std::max(largest, s.x);
    ++curves[s.curve];
  }
  for (const auto& [at, group] : shapes)
    for (double r : left_out(problem, group)) {
      points.push_back(relative(r));
      signed_points.push_back(std::expm1(r));
      report.outliers.push_back({at[0], at[1], at[2], std::expm1(r)});
    }
  std::vector<int> group;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i].x == largest && samples[i].weight >= kPinned)
      group.push_back(static_cast<int>(i));
  std::vector<double> held;
  if (static_cast<int>(group.size()) < report.samples)
    for (double r : left_out(problem, group)) held.push_back(relative(r));
  const std::vector<double> by_curve = curve_errors(problem, samples);
  std::sort(report.outliers.begin(), report.outliers.end(), [](const Outlier& a, const Outlier& b) {
    return std::abs(a.error) > std::abs(b.error);
  });
  report.outliers.resize(std::min(report.outliers.size(), kOutliers));
  report.curves = static_cast<int>(curves.size());
  report.fit_median = quantile(fitted, 0.5);
  report.point_median = quantile(points, 0.5);
  report.point_p90 = quantile(points, 0.9);
  report.worst = quantile(points, 1);
  report.bias = quantile(signed_points, 0.5);
  report.curve_median = quantile(by_curve, 0.5);
  report.curve_p90 = quantile(by_curve, 0.9);
  report.holdout_median = quantile(held, 0.5);
  report.holdout_p90 = quantile(held, 0.9);
  return report;
}

}  // namespace

double SaturatingPrior::at(double x, double y, double z) const {
  const auto saturate = [&](double value, double at_half) {
    const double ratio = value / at_half;
    return sharpness == 1 ? ratio / (1 + ratio)
                          : ratio / std::pow(1 + std::pow(ratio, sharpness), 1 / sharpness);
  };
  return u_max * saturate(x, half[0]) * saturate(y, half[1]) * saturate(z, half[2]);
}

double ErrorReport::sigma() const {
  // A normal error has median 0.6745 sigma and 90th percentile 1.645 sigma.
  return std::max({point_median / 0.6745, point_p90 / 1.645, noise, 0.01});
}

SaturatingPrior fit_prior(const std::vector<Sample>& samples, SaturatingPrior start) {
  const auto unpack = [&](const std::vector<double>& p) {
    return SaturatingPrior{
        std::exp(p[0]), {std::exp(p[1]), std::exp(p[2]), std::exp(p[3])}, start.sharpness};
  };
  const auto loss = [&](const std::vector<double>& p) {
    const SaturatingPrior prior = unpack(p);
    double sum = 0;
    for (const Sample& s : samples)
      sum += s.weight * huber(std::log(s.u / prior.at(s.x, s.y, s.z)), 0.2);
    return sum;
  };
  std::vector<double> from = {std::log(start.u_max)};
  std::vector<Box> box = {{std::log(0.02), 0}};
  for (double h : start.half) {
    from.push_back(std::log(std::max(h, 0.1)));
    box.push_back({std::log(0.1), std::log(3e4)});
  }
  return unpack(box_search(loss, from, box));
}

GridFit fit_grid(const std::string& family, const std::vector<Sample>& samples, const Nodes& nodes,
                 const Surface& prior, hardware::Basis basis) {
  TRIFOLD_CHECK(!samples.empty());
  const Nodes logs = logs_of(nodes);
  Eigen::VectorXd prior_nodes(
      static_cast<int>(nodes[0].size() * nodes[1].size() * nodes[2].size()));
  int at = 0;
  for (double x : nodes[0])
    for (double y : nodes[1])
      for (double z : nodes[2]) prior_nodes[at++] = std::log(prior(x, y, z));

  Problem problem;
  for (const Sample& s : samples) problem.rows.push_back(basis_row(logs, s.x, s.y, s.z));
  problem.target = -evaluate(problem.rows, prior_nodes);
  for (std::size_t i = 0; i < samples.size(); ++i)
    problem.target[static_cast<int>(i)] += std::log(samples[i].u);

  Problem best;
  double best_score = 0;
  for (double smoothness : kSmoothness) {
    Problem trial = problem;
    solve(trial, penalty(logs, smoothness), samples);
    std::vector<double> errors = curve_errors(trial, samples);
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (samples[i].weight >= kPinned)
        errors.push_back(relative(left_out(trial, {static_cast<int>(i)})[0]));
    const double score = quantile(errors, 0.5) + quantile(errors, 0.9) / 3;
    if (best.rows.empty() || score < best_score) {
      best = std::move(trial);
      best_score = score;
    }
  }

  GridFit fit;
  fit.report = report_of(best, samples);
  fit.report.family = family;
  fit.grid.axes = logs;
  fit.grid.basis = basis;
  fit.grid.error = fit.report.sigma();
  std::vector<double> pinned(static_cast<std::size_t>(prior_nodes.size()), 0);
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i].weight >= kPinned)
      for (const Weighted& w : best.rows[i]) pinned[static_cast<std::size_t>(w.node)] += w.weight;
  for (int i = 0; i < prior_nodes.size(); ++i) {
    fit.grid.values.push_back(prior_nodes[i] + best.delta[i]);
    fit.grid.support.push_back(pinned[static_cast<std::size_t>(i)] >= 0.5 ? 1 : 0);
  }
  return fit;
}

hardware::Grid3 tabulate(const Nodes& nodes, double error, hardware::Basis basis,
                         const std::function<NodeValue(double, double, double)>& value) {
  hardware::Grid3 grid;
  grid.axes = logs_of(nodes);
  grid.error = error;
  grid.basis = basis;
  for (double x : nodes[0])
    for (double y : nodes[1])
      for (double z : nodes[2]) {
        const NodeValue v = value(x, y, z);
        grid.values.push_back(std::log(v.first));
        grid.support.push_back(v.second ? 1 : 0);
      }
  return grid;
}

ErrorReport report_of(const std::string& family, const std::vector<double>& errors) {
  ErrorReport report;
  report.family = family;
  report.samples = static_cast<int>(errors.size());
  std::vector<double> magnitude;
  for (double e : errors) magnitude.push_back(std::abs(e));
  report.point_median = quantile(magnitude, 0.5);
  report.point_p90 = quantile(magnitude, 0.9);
  report.worst = quantile(magnitude, 1);
  report.bias = quantile(errors, 0.5);
  return report;
}

}  // namespace trifold::fit

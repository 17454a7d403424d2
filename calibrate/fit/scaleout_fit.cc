// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/scaleout_fit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "calibrate/fit/solve.h"

// The inverse of cost/communication.cc:  t = a / efficiency + b latency, with R the NIC rate, n
// ranks in D domains, S bytes as nccl-tests counts:
//   all-gather, reduce-scatter  a = S (n-1)/n / (R n/D), b = D;  all-reduce: twice both
//   all-to-all                  a = S (1 - 1/D) / R,     b = 1
//   send/recv                   a = S / R,               b = 1
// Non-negative least squares of relative errors, so that small messages decide the latency and
// large ones the rate. Known error: one rate and one latency for protocols and trees that change
// with the size, 10-30 % in between (achieved.md section 2).

namespace trifold::fit {

using hardware::Collective;

namespace {

struct Terms {
  double transfer = 0, steps = 0;
};

Terms terms_of(const ScaleoutSample& s, double nic) {
  switch (s.op) {
    case Collective::all_to_all:
      return {s.bytes * (1 - 1 / s.domains) / nic, 1};
    case Collective::send_recv:
      return {s.bytes / nic, 1};
    default: {
      const double twice = s.op == Collective::all_reduce ? 2 : 1;
      return {twice * s.bytes * (s.ranks - 1) / s.ranks / (nic * s.ranks / s.domains),
              twice * s.domains};
    }
  }
}

// 1 / efficiency and latency.
Eigen::VectorXd solve_without(const std::vector<ScaleoutSample>& samples, double nic,
                              std::size_t left_out) {
  Eigen::MatrixXd a(static_cast<int>(samples.size()), 2);
  Eigen::VectorXd b = Eigen::VectorXd::Ones(a.rows());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Terms t = terms_of(samples[i], nic);
    const double seconds = samples[i].seconds;
    a.row(static_cast<int>(i)) << t.transfer / seconds, t.steps / seconds;
    if (i != left_out) continue;
    a.row(static_cast<int>(i)).setZero();
    b[static_cast<int>(i)] = 0;
  }
  return nnls(a, b);
}

double predicted(const ScaleoutSample& s, double nic, const Eigen::VectorXd& x) {
  const Terms t = terms_of(s, nic);
  return t.transfer * x[0] + t.steps * x[1];
}

}  // namespace

std::optional<ScaleoutFit> fit_scaleout(const std::vector<ScaleoutSample>& samples, double nic) {
  double small = 0, large = 0;
  for (const ScaleoutSample& s : samples) {
    TRIFOLD_CHECK(s.ranks > 1 && s.domains > 1 && s.seconds > 0);
    small = small == 0 ? s.bytes : std::min(small, s.bytes);
    large = std::max(large, s.bytes);
  }
  if (samples.size() < 4 || small == large || nic <= 0) return std::nullopt;
  const Eigen::VectorXd all = solve_without(samples, nic, samples.size());
  if (all[0] <= 0) return std::nullopt;
  ScaleoutFit fit;
  fit.efficiency = 1 / all[0];
  fit.latency_s = all[1];
  std::vector<double> errors;
  for (std::size_t i = 0; i < samples.size(); ++i)
    errors.push_back(std::abs(
        predicted(samples[i], nic, solve_without(samples, nic, i)) / samples[i].seconds - 1));
  fit.report.family = "collectives across domains (two constants)";
  fit.report.gated = false;
  fit.report.samples = static_cast<int>(samples.size());
  fit.report.curves = 1;
  fit.report.point_median = quantile(errors, 0.5);
  fit.report.point_p90 = quantile(errors, 0.9);
  fit.report.worst = quantile(errors, 1);
  return fit;
}

}  // namespace trifold::fit

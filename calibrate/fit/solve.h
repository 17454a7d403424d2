// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small solvers that keep fits physical: non-negative least squares, isotonic regression, a
// deterministic bounded search, robust statistics.

#include <Eigen/Dense>
#include <functional>
#include <vector>

namespace trifold::fit {

// argmin |A x - b| with x >= 0. Lawson and Hanson (1974), chapter 23; columns are scaled to unit
// length first. `ridge` is added to the normal equations' diagonal, relative to the scaled columns.
Eigen::VectorXd nnls(const Eigen::MatrixXd& a, const Eigen::VectorXd& b, double ridge = 1e-6);

// The non-decreasing sequence nearest in weighted least squares: pool adjacent violators.
std::vector<double> isotonic(const std::vector<double>& values, const std::vector<double>& weights);

// Minimum of a unimodal function on [low, high], to 1e-6 of the range.
double golden_section(const std::function<double(double)>& f, double low, double high);

// Coordinate descent of golden sections in a box, `rounds` times over all coordinates. No random
// numbers: the same data gives the same answer.
struct Box {
  double low = 0, high = 1;
};
std::vector<double> box_search(const std::function<double(const std::vector<double>&)>& f,
                               std::vector<double> start, const std::vector<Box>& box,
                               int rounds = 12);

// Quantile by linear interpolation; 0 for an empty list.
double quantile(std::vector<double> values, double q);
// Huber's loss, quadratic inside `k`.
double huber(double residual, double k);
// Weight of a residual in reweighted least squares.
double huber_weight(double residual, double k);

}  // namespace trifold::fit

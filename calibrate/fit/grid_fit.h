// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fitting a utilisation surface to scattered measurements, and saying how well it predicts points
// that it did not see.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "hardware/profile.h"

namespace trifold::fit {

// u at (x, y, z), plain values. `curve` groups samples that differ in x alone. A sample below
// kPinned guides a node but does not count as support, nor in the error report.
inline constexpr double kPinned = 0.1;
struct Sample {
  double x = 0, y = 0, z = 0, u = 0;
  double weight = 1;
  int curve = 0;
};

// u = u_max s(x / x_half) s(y / y_half) s(z / z_half), s(r) = r / (1 + r^p)^(1/p): what is believed
// where nothing was measured. p = 1 saturates gently, a large p is a roofline's corner.
struct SaturatingPrior {
  double u_max = 0.8;
  std::array<double, 3> half{};
  double sharpness = 1;  // p
  double at(double x, double y, double z) const;
  double operator()(double x, double y, double z) const { return at(x, y, z); }
};
// Keeps the sharpness of `start`.
SaturatingPrior fit_prior(const std::vector<Sample>& samples, SaturatingPrior start);

// A measured point that the others find worst; error of its utilisation, measured over found.
struct Outlier {
  double x = 0, y = 0, z = 0, error = 0;
};

// How well a fit predicts. Relative errors of u (so of time), absolute values but for `bias`.
struct ErrorReport {
  std::string family;
  int samples = 0, curves = 0;
  double fit_median = 0;                       // of the fitted points themselves
  double point_median = 0, point_p90 = 0;      // leave one point out
  double curve_median = 0, curve_p90 = 0;      // leave one (y, z) curve out
  double holdout_median = 0, holdout_p90 = 0;  // leave the largest x out
  double noise = 0;                            // noise floor of the data; 0: unknown
  double bias = 0;                             // median signed error, leave one point out
  double worst = 0;                            // of leave one point out
  std::vector<Outlier> outliers;               // the worst few of those, worst first
  bool gated = true;                           // false: too coarse a model to hold to the gate
  // One sigma: the wider of what the median and the 90th percentile say about a normal error.
  double sigma() const;
};

// Of signed errors of points that were left out.
ErrorReport report_of(const std::string& family, const std::vector<double>& errors);

struct GridFit {
  hardware::Grid3 grid;
  ErrorReport report;
};

using Surface = std::function<double(double, double, double)>;

// Nodes are plain values. Ridge regression of ln u on hat functions around the prior, with a
// first-difference penalty that lets an unmeasured node borrow its neighbours' departure from the
// prior; its strength is the one of `kSmoothness` that predicts left-out curves best. Three rounds
// of Huber reweighting.
GridFit fit_grid(const std::string& family, const std::vector<Sample>& samples,
                 const std::array<std::vector<double>, 3>& nodes, const Surface& prior,
                 hardware::Basis basis);

// A grid by evaluating a function at the nodes. `supported` says where measurements stand behind
// it.
using NodeValue = std::pair<double, bool>;
hardware::Grid3 tabulate(const std::array<std::vector<double>, 3>& nodes, double error,
                         hardware::Basis basis,
                         const std::function<NodeValue(double, double, double)>& value);

}  // namespace trifold::fit

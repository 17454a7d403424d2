// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels' meaning in plain float64 C++, for checks on fresh random data. Inputs are the values
// the kernel read (bf16 already rounded).

#include <cstdint>
#include <vector>

namespace trifold::kernels::reference {

using Values = std::vector<double>;

struct Choice {
  std::vector<int> experts;  // k of them, best first
  Values probabilities;
};
struct Router {
  int experts = 0, k = 0, groups = 1, top_groups = 1;
  bool sigmoid = false, normalise = true;
  double scale = 1;
};
Choice route(const Router& router, const double* logits, const double* bias);

// One row: gate and up of `width`; returns output * probability.
Values swiglu(const double* input, int width, double probability);
// Gradients of one row: input gradient (2 width) and the probability's.
Values swiglu_gradient(const double* gradient, const double* input, int width, double probability,
                       double& probability_gradient);
Values rmsnorm(const double* input, const double* weight, int width, double epsilon);

struct AdamState {
  double master, first, second;
};
AdamState adam(AdamState state, double gradient, double rate, double beta1, double beta2,
               double epsilon, double decay, double correction1, double correction2);

// Loss of one token; the logits become their gradient.
double cross_entropy(Values& logits, int label, double scale);

double e4m3_value(std::uint8_t bits);

}  // namespace trifold::kernels::reference

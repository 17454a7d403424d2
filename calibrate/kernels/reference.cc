// SPDX-License-Identifier: Apache-2.0
#include "calibrate/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trifold::kernels::reference {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

Values scores_of(const Router& r, const double* logits) {
  Values score(static_cast<std::size_t>(r.experts));
  if (r.sigmoid) {
    std::transform(logits, logits + r.experts, score.begin(), logistic);
    return score;
  }
  const double top = *std::max_element(logits, logits + r.experts);
  double sum = 0;
  for (int e = 0; e < r.experts; ++e)
    sum += score[static_cast<std::size_t>(e)] = std::exp(logits[e] - top);
  for (double& s : score) s /= sum;
  return score;
}

// Indices of the `count` greatest, best first, the lowest index among equals.
std::vector<int> best(const Values& values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

}  // namespace

Choice route(const Router& r, const double* logits, const double* bias) {
  const Values score = scores_of(r, logits);
  Values choice = score;
  if (bias != nullptr)
    for (int e = 0; e < r.experts; ++e) choice[static_cast<std::size_t>(e)] += bias[e];
  if (r.groups > 1) {
    const int size = r.experts / r.groups;
    Values group;
    for (int g = 0; g < r.groups; ++g) {
      Values members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      group.push_back(members[0] + (size > 1 ? members[1] : 0));
    }
    const std::vector<int> kept = best(group, r.top_groups);
    for (int e = 0; e < r.experts; ++e)
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end())
        choice[static_cast<std::size_t>(e)] = -INFINITY;
  }
  Choice out;
  out.experts = best(choice, r.k);
  double sum = 0;
  for (int e : out.experts) sum += score[static_cast<std::size_t>(e)];
  for (int e : out.experts)
    out.probabilities.push_back(score[static_cast<std::size_t>(e)] * r.scale /
                                (r.normalise ? sum : 1));
  return out;
}

Values swiglu(const double* input, int width, double probability) {
  Values out;
  for (int i = 0; i < width; ++i)
    out.push_back(input[i] * logistic(input[i]) * input[width + i] * probability);
  return out;
}

Values swiglu_gradient(const double* gradient, const double* input, int width, double probability,
                       double& probability_gradient) {
  Values out(static_cast<std::size_t>(2 * width));
  probability_gradient = 0;
  for (int i = 0; i < width; ++i) {
    const double gate = input[i], up = input[width + i], s = logistic(gate);
    probability_gradient += gradient[i] * gate * s * up;
    out[static_cast<std::size_t>(i)] = gradient[i] * probability * up * s * (1 + gate * (1 - s));
    out[static_cast<std::size_t>(width + i)] = gradient[i] * probability * gate * s;
  }
  return out;
}

Values rmsnorm(const double* input, const double* weight, int width, double epsilon) {
  double sum = 0;
  for (int i = 0; i < width; ++i) sum += input[i] * input[i];
  const double inverse = 1 / std::sqrt(sum / width + epsilon);
  Values out;
  for (int i = 0; i < width; ++i) out.push_back(input[i] * inverse * weight[i]);
  return out;
}

AdamState adam(AdamState s, double gradient, double rate, double beta1, double beta2,
               double epsilon, double decay, double correction1, double correction2) {
  s.first = beta1 * s.first + (1 - beta1) * gradient;
  s.second = beta2 * s.second + (1 - beta2) * gradient * gradient;
  const double step = (s.first / correction1) / (std::sqrt(s.second / correction2) + epsilon);
  s.master -= rate * (step + decay * s.master);
  return s;
}

double cross_entropy(Values& logits, int label, double scale) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double x : logits) sum += std::exp(x - top);
  const double loss = std::log(sum) + top - logits[static_cast<std::size_t>(label)];
  for (double& x : logits) x = std::exp(x - top) / sum * scale;
  logits[static_cast<std::size_t>(label)] -= scale;
  return loss;
}

double e4m3_value(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double sign = bits >> 7 ? -1 : 1;
  if (exponent == 15 && mantissa == 7) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -9);
  return sign * std::ldexp(8 + mantissa, exponent - 10);
}

}  // namespace trifold::kernels::reference

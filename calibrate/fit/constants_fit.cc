// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/constants_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "base/check.h"
#include "job/legality.h"

namespace trifold::fit {

namespace {

// Parameters live in logs where their range allows it, so that a step is a ratio.
double to_internal(const hardware::ConstantSpec& spec, double value) {
  return std::log(std::max(value, std::max(spec.low, 1e-3 * spec.high)));
}

struct Bounds {
  double low, high;
};
Bounds bounds_of(const hardware::ConstantSpec& spec) {
  return {to_internal(spec, spec.low), std::log(spec.high)};
}

Eigen::VectorXd residuals(const std::vector<Case>& cases, const Profiles& profiles) {
  const std::vector<double> errors = evaluate(cases, profiles);
  return Eigen::Map<const Eigen::VectorXd>(errors.data(), static_cast<Eigen::Index>(errors.size()));
}

double loss(const Eigen::VectorXd& r, const Eigen::VectorXd& prior, double huber) {
  double sum = prior.squaredNorm();
  for (Eigen::Index i = 0; i < r.size(); ++i) {
    const double a = std::abs(r[i]);
    sum += a <= huber ? a * a : huber * (2 * a - huber);
  }
  return sum;
}

}  // namespace

std::string Parameter::name() const {
  std::string text = key;
  for (const std::string& profile : profiles)
    text += (profile == profiles.front() ? "[" : ",") + profile;
  return profiles.empty() ? text : text + "]";
}

std::vector<Parameter> fitted_parameters(const Profiles& profiles) {
  const auto present = [&](std::vector<std::string> names) {
    names.erase(std::remove_if(names.begin(), names.end(),
                               [&](const std::string& name) { return profiles.count(name) == 0; }),
                names.end());
    return names;
  };
  std::vector<Parameter> parameters;
  // Clocks under a training load, per GPU type.
  for (const auto& group : {std::vector<std::string>{"h100", "h800", "h200"},
                            {"b200"},
                            {"b300"},
                            {"gb200"},
                            {"gb300"}}) {
    const std::vector<std::string> names = present(group);
    if (!names.empty()) parameters.push_back({"gemm_sustained_factor", names});
  }
  // Host speed, per CPU.
  for (const auto& group :
       {std::vector<std::string>{"h100", "h800", "h200", "b200", "b300"}, {"gb200", "gb300"}}) {
    const std::vector<std::string> names = present(group);
    if (!names.empty()) parameters.push_back({"host_op_s", names});
  }
  for (const char* key : {"kernel_gap_s", "kernel_gap_graph_s", "host_overlap_factor",
                          "hbm_efficiency", "quantize_efficiency", "attention_sustained_factor",
                          "fp8_attention_factor", "low_precision_factor", "ep_sync_latency_s",
                          "ep_scaleout_latency_factor", "overlap_leak", "overlap_leak_graph",
                          "tp_overlap_exposed", "dp_overlap_exposed", "p2p_exposed", "step_sync_s"})
    parameters.push_back({key, {}});
  return parameters;
}

void apply(const std::vector<Parameter>& parameters, const std::vector<double>& values,
           Profiles& profiles) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (auto& [name, profile] : profiles) {
      const auto& only = parameters[i].profiles;
      if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) continue;
      hardware::Constant& constant = profile.constants[parameters[i].key];
      const hardware::ConstantSpec& spec = hardware::constant_spec(parameters[i].key);
      constant = {values[i],
                  spec.low,
                  spec.high,
                  true,
                  hardware::Basis::scaled,
                  "fitted on published training runs (calibrate/fit)"};
    }
  }
}

std::vector<Case> fit_cases(const std::vector<observe::Observation>& observations) {
  std::vector<Case> cases;
  for (const observe::Observation& o : observations) {
    if (!o.settings_stated() || !o.ladder.empty() || o.one_machine()) continue;
    const observe::Measured& m = o.measured;
    if (!m.tokens_per_s_per_gpu && !m.tflops_per_gpu && !m.step_time_s && !m.mfu_percent) continue;
    Result<layout::Pipeline> pipeline = layout::build_pipeline(o.job.model, o.job.layout);
    if (!pipeline || !job::check(o.job, *pipeline, job::Runtime::any).legal()) continue;
    cases.push_back({&o, std::move(*pipeline)});
  }
  return cases;
}

std::vector<double> evaluate(const std::vector<Case>& cases, const Profiles& profiles) {
  std::map<std::string, std::unique_ptr<estimate::Estimator>> estimators;
  std::vector<double> errors;
  errors.reserve(cases.size());
  estimate::Estimate estimate;
  for (const Case& c : cases) {
    const job::Job& job = c.observation->job;
    auto& estimator = estimators[job.cluster.name];
    if (!estimator) {
      const auto profile = profiles.find(job.cluster.profile);
      TRIFOLD_CHECK(profile != profiles.end());
      estimator = std::make_unique<estimate::Estimator>(job.cluster, profile->second);
    }
    estimator->evaluate_time(job, c.pipeline, estimate);
    errors.push_back(std::log(observe::throughput_ratio(*c.observation, estimate)));
  }
  return errors;
}

FitResult fit_constants(const std::vector<Case>& cases, Profiles profiles,
                        const std::vector<Parameter>& parameters, const FitOptions& options) {
  const auto count = static_cast<Eigen::Index>(parameters.size());
  Eigen::VectorXd x(count);
  std::vector<Bounds> bounds;
  for (Eigen::Index i = 0; i < count; ++i) {
    const Parameter& p = parameters[static_cast<std::size_t>(i)];
    const std::string& profile = p.profiles.empty() ? profiles.begin()->first : p.profiles.front();
    x[i] = to_internal(hardware::constant_spec(p.key), profiles.at(profile).constant(p.key));
    bounds.push_back(bounds_of(hardware::constant_spec(p.key)));
  }
  const auto values_of = [&](const Eigen::VectorXd& v) {
    std::vector<double> values;
    for (Eigen::Index i = 0; i < count; ++i) values.push_back(std::exp(v[i]));
    return values;
  };
  const auto residuals_at = [&](const Eigen::VectorXd& v) {
    apply(parameters, values_of(v), profiles);
    return residuals(cases, profiles);
  };
  // Priors sit at the specification's values, not at an earlier fit's, which has seen every row.
  Eigen::VectorXd prior_weight(count), center(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const hardware::ConstantSpec& spec =
        hardware::constant_spec(parameters[static_cast<std::size_t>(i)].key);
    const bool clock = std::string_view(spec.key) == "gemm_sustained_factor";
    prior_weight[i] = options.row_sigma / (clock ? options.clock_sigma : options.prior_sigma);
    center[i] = to_internal(spec, spec.value);
  }
  const auto prior_at = [&](const Eigen::VectorXd& v) -> Eigen::VectorXd {
    return (v - center).cwiseProduct(prior_weight);
  };

  Eigen::VectorXd r = residuals_at(x);
  double damping = 1e-3;
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    Eigen::MatrixXd jacobian(r.size(), count);
    for (Eigen::Index i = 0; i < count; ++i) {
      Eigen::VectorXd moved = x;
      const double step = x[i] + 0.02 > bounds[static_cast<std::size_t>(i)].high ? -0.02 : 0.02;
      moved[i] += step;
      jacobian.col(i) = (residuals_at(moved) - r) / step;
    }
    Eigen::VectorXd weight(r.size());
    for (Eigen::Index i = 0; i < r.size(); ++i)
      weight[i] = std::abs(r[i]) <= options.huber ? 1 : options.huber / std::abs(r[i]);
    Eigen::MatrixXd normal = jacobian.transpose() * weight.asDiagonal() * jacobian;
    normal.diagonal() += prior_weight.cwiseProduct(prior_weight);
    const Eigen::VectorXd gradient =
        jacobian.transpose() * weight.asDiagonal() * r + prior_at(x).cwiseProduct(prior_weight);
    const double before = loss(r, prior_at(x), options.huber);
    bool improved = false;
    for (int attempt = 0; attempt < 5 && !improved; ++attempt, damping *= 6) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() *= 1 + damping;
      Eigen::VectorXd next = x - damped.ldlt().solve(gradient);
      for (Eigen::Index i = 0; i < count; ++i)
        next[i] = std::clamp(next[i], bounds[static_cast<std::size_t>(i)].low,
                             bounds[static_cast<std::size_t>(i)].high);
      const Eigen::VectorXd next_r = residuals_at(next);
      if (loss(next_r, prior_at(next), options.huber) < before) {
        improved = true;
        x = next;
        r = next_r;
        damping /= 40;
      }
    }
    if (!improved || before - loss(r, prior_at(x), options.huber) < 1e-5 * before) break;
  }
  FitResult result;
  result.values = values_of(x);
  for (Eigen::Index i = 0; i < count; ++i) {
    const Bounds& b = bounds[static_cast<std::size_t>(i)];
    result.at_bound.push_back(x[i] - b.low < 1e-6 || b.high - x[i] < 1e-6);
  }
  for (Eigen::Index i = 0; i < r.size(); ++i) result.errors.push_back(std::exp(r[i]) - 1);
  return result;
}

std::map<std::string, Profiles> left_out_profiles(const std::vector<Case>& cases,
                                                  const Profiles& profiles,
                                                  const std::vector<Parameter>& parameters,
                                                  const GroupOf& group, const FitOptions& options) {
  std::map<std::string, Profiles> folds;
  for (const Case& c : cases) folds.emplace(group(*c.observation), profiles);
  for (auto& [left_out, fold] : folds) {
    std::vector<Case> seen;
    for (const Case& c : cases)
      if (group(*c.observation) != left_out) seen.push_back(c);
    apply(parameters, fit_constants(seen, profiles, parameters, options).values, fold);
  }
  return folds;
}

std::vector<double> left_out_errors(const std::vector<Case>& cases,
                                    const std::map<std::string, Profiles>& folds,
                                    const GroupOf& group) {
  std::vector<double> errors(cases.size());
  for (const auto& [left_out, fold] : folds) {
    std::vector<Case> unseen;
    for (const Case& c : cases)
      if (group(*c.observation) == left_out) unseen.push_back(c);
    const std::vector<double> logs = evaluate(unseen, fold);
    std::size_t next = 0;
    for (std::size_t i = 0; i < cases.size(); ++i)
      if (group(*cases[i].observation) == left_out) errors[i] = std::exp(logs[next++]) - 1;
  }
  return errors;
}

std::vector<observe::Row> left_out_rows(const std::vector<observe::Observation>& observations,
                                        const std::map<std::string, Profiles>& folds,
                                        const Profiles& fitted, const GroupOf& group) {
  std::map<std::string, estimate::Estimator> estimators;
  std::vector<observe::Row> rows;
  for (const observe::Observation& o : observations) {
    const std::string name = group(o);
    const auto fold = folds.find(name);
    const Profiles& profiles = fold == folds.end() ? fitted : fold->second;
    const auto estimator = estimators
                               .try_emplace(name + " on " + o.job.cluster.name, o.job.cluster,
                                            profiles.at(o.job.cluster.profile))
                               .first;
    rows.push_back(observe::predict(o, estimator->second));
  }
  return rows;
}

}  // namespace trifold::fit

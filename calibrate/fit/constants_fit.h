// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fits the profiles' few free constants on published training runs: per GPU type or common to all,
// never per model and never per row. Damped Gauss-Newton on log throughput errors with Huber
// weights, weak priors at the specification's values and hard physical bounds (a parameter that
// ends on a bound is reported: it is the best bug detector there is).

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hardware/profile.h"
#include "observe/validate.h"

namespace trifold::fit {

using Profiles = std::map<std::string, hardware::Profile>;  // by catalogue name

struct Parameter {
  std::string key;                    // of hardware::constant_specs()
  std::vector<std::string> profiles;  // those that share the value; empty: all
  std::string name() const;
};

// The parameters that this project fits. Count them before adding one.
std::vector<Parameter> fitted_parameters(const Profiles& profiles);

struct Case {
  const observe::Observation* observation;
  layout::Pipeline pipeline;
};
// Records whose settings are stated and whose throughput is measured, of fleets.
std::vector<Case> fit_cases(const std::vector<observe::Observation>& observations);

struct FitOptions {
  int iterations = 12;
  double huber = 0.06;      // log error beyond which a row counts linearly
  double row_sigma = 0.05;  // log error of a row that priors are weighed against
  // Priors at the specification's values, in ln(value): constants; clocks, which GPU types share.
  double prior_sigma = 0.4, clock_sigma = 0.2;
};

struct FitResult {
  std::vector<double> values;  // by parameter
  std::vector<bool> at_bound;
  std::vector<double> errors;  // predicted / measured - 1, by case
};

FitResult fit_constants(const std::vector<Case>& cases, Profiles profiles,
                        const std::vector<Parameter>& parameters, const FitOptions& options = {});
void apply(const std::vector<Parameter>& parameters, const std::vector<double>& values,
           Profiles& profiles);
std::vector<double> evaluate(const std::vector<Case>& cases,
                             const Profiles& profiles);  // log errors

// What divides cases into folds: model, GPU, source ...
using GroupOf = std::function<std::string(const observe::Observation&)>;
// By group: profiles fitted without its cases.
std::map<std::string, Profiles> left_out_profiles(const std::vector<Case>& cases,
                                                  const Profiles& profiles,
                                                  const std::vector<Parameter>& parameters,
                                                  const GroupOf& group,
                                                  const FitOptions& options = {});
// Errors of each case by its group's profiles of those.
std::vector<double> left_out_errors(const std::vector<Case>& cases,
                                    const std::map<std::string, Profiles>& folds,
                                    const GroupOf& group);
// Every record, those that no fit sees too, by a fit that did not see its group.
std::vector<observe::Row> left_out_rows(const std::vector<observe::Observation>& observations,
                                        const std::map<std::string, Profiles>& folds,
                                        const Profiles& fitted, const GroupOf& group);

}  // namespace trifold::fit

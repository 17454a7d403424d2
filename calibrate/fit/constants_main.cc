// SPDX-License-Identifier: Apache-2.0

// trifold_fit_constants RUNS.json [RUNS.json ...]: fits the profiles' free constants on published
// runs, prints the fitted errors beside leave-one-model-out, leave-one-GPU-out and
// leave-one-source-out, and writes the profiles with --write.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/table.h"
#include "calibrate/fit/constants_fit.h"
#include "calibrate/fit/knock_out.h"
#include "observe/ranking.h"

namespace {

using namespace trifold;

struct Stats {
  double mean = 0, median = 0, p90 = 0, bias = 0;
};

Stats stats_of(const std::vector<double>& errors) {
  Stats s;
  if (errors.empty()) return s;
  std::vector<double> magnitude;
  for (double e : errors) magnitude.push_back(std::abs(e)), s.bias += e, s.mean += std::abs(e);
  std::sort(magnitude.begin(), magnitude.end());
  s.mean /= static_cast<double>(errors.size());
  s.bias /= static_cast<double>(errors.size());
  s.median = magnitude[magnitude.size() / 2];
  s.p90 = magnitude[magnitude.size() * 9 / 10];
  return s;
}

std::vector<std::string> row(const std::string& name, const Stats& s, std::size_t count) {
  const auto percent = [](double v) { return fmt::format("{:.1f} %", 100 * v); };
  return {name,           fmt::format("{}", count), percent(s.mean), percent(s.median),
          percent(s.p90), percent(s.bias)};
}

// Those that price a catalogue cluster: what is common to all GPUs goes to those without a
// published run too. A profile measured on one machine keeps its own.
Result<fit::Profiles> load_profiles(const std::string& data) {
  fit::Profiles profiles;
  for (const std::string& name : hardware::list_clusters(data)) {
    TRIFOLD_ASSIGN(cluster, hardware::load_cluster(name, data));
    TRIFOLD_ASSIGN(profile, hardware::load_profile(cluster.profile, data));
    profiles.emplace(cluster.profile, std::move(profile));
  }
  return profiles;
}

std::string source_family(const observe::Observation& o) {
  if (!o.release.empty()) return "release " + o.release;
  return o.source.substr(0, o.source.find_first_of(",("));
}

void print_rows(const std::vector<fit::Case>& cases, const std::vector<double>& errors) {
  std::vector<std::size_t> order(cases.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return errors[a] < errors[b]; });
  for (std::size_t i : order)
    fmt::print("{:+7.1f} %  {}\n", 100 * errors[i], cases[i].observation->id);
}

void print_groups(const std::vector<fit::Case>& cases, const std::vector<double>& errors) {
  Table table({"Group", "rows", "mean |e|", "median", "p90", "bias"});
  const auto by = [&](const char* what, auto key) {
    std::map<std::string, std::vector<double>> groups;
    for (std::size_t i = 0; i < cases.size(); ++i)
      groups[key(*cases[i].observation)].push_back(errors[i]);
    for (const auto& [name, list] : groups)
      table.add(row(fmt::format("{} {}", what, name), stats_of(list), list.size()));
    table.rule();
  };
  by("model", [](const auto& o) { return o.model_name; });
  by("gpu", [](const auto& o) { return o.job.cluster.name; });
  by("precision", [](const auto& o) {
    return std::string(token_name(job::kPrecisions, o.job.training.precision));
  });
  by("overlap", [](const auto& o) {
    return std::string(o.job.techniques.has(job::Overlap::ep_a2a) ? "ep" : "no ep");
  });
  by("graph", [](const auto& o) {
    return std::string(o.job.techniques.has(job::GraphScope::full_iteration) ? "full"
                       : o.job.techniques.cuda_graph.empty()                 ? "none"
                                                                             : "partial");
  });
  fmt::print("{}", table.text());
}

void print_knock_outs(const std::vector<observe::Observation>& observations,
                      const fit::Profiles& profiles, double whole) {
  std::vector<std::pair<double, std::string>> order;
  for (const fit::KnockOut& k : fit::knock_out(observations, profiles))
    order.emplace_back(stats_of(k.errors).mean, k.mechanism);
  std::sort(order.rbegin(), order.rend());
  Table table({"Taken out, the rest fitted anew", "mean |e|", "worth"});
  for (const auto& [mean, name] : order)
    table.add(
        {name, fmt::format("{:.1f} %", 100 * mean), fmt::format("{:+.1f}", 100 * (mean - whole))});
  fmt::print("\n{}", table.text());
}

// How Jobs of one model on one cluster are ordered, by fits that saw every record they may and by
// fits that did not see the model; `misses`: with the groups and pairs that are wrong.
std::string ranking_text(const std::vector<observe::Observation>& observations,
                         const std::map<std::string, fit::Profiles>& folds,
                         const fit::Profiles& fitted, const fit::GroupOf& group, bool misses) {
  Table table({"Ranking", "groups", "best found", "within 3 %", "worst regret", "pairs > 5 % apart",
               "ordered", ""});
  std::string wrong;
  for (const bool unseen : {false, true}) {
    const auto none = std::map<std::string, fit::Profiles>();
    const auto groups = observe::ranked_groups(
        fit::left_out_rows(observations, unseen ? folds : none, fitted, group));
    const observe::Ranking r = observe::rank(groups);
    table.add({unseen ? "leave one model out" : "fitted", fmt::format("{}", r.groups),
               fmt::format("{}", r.best_found), fmt::format("{}", r.chosen_within_3_percent),
               fmt::format("{:.1f} %", 100 * r.worst_regret), fmt::format("{}", r.clear_pairs),
               fmt::format("{}", r.clear_ordered),
               fmt::format("{:.1f} %", 100.0 * r.clear_ordered / std::max(1, r.clear_pairs))});
    if (!unseen || !misses) continue;
    for (const observe::RankedGroup& g : groups) {
      if (g.regret > 0.03)
        wrong += fmt::format("{}: {} chosen, {} is {:.1f} % faster\n", g.name, g.chosen->id,
                             g.best->id, 100 * g.regret);
      for (const observe::RankedPair& p : g.pairs)
        if (p.clear() && !p.ordered())
          wrong += fmt::format("{}: {} over {} measured {:.3f}, predicted {:.3f}\n", g.name,
                               p.first->id, p.second->id, p.measured, p.predicted);
    }
  }
  return "\n" + table.text() + wrong;
}

int run(const std::vector<std::string>& files, const std::string& data, bool write, bool rows,
        bool quick, bool knock_outs) {
  std::vector<observe::Observation> observations;
  for (const std::string& file : files) {
    auto set = observe::load_observations(file, data);
    if (!set) return fmt::print(stderr, "error: {}\n", set.error().to_string()), 3;
    for (auto& o : set->observations) observations.push_back(std::move(o));
  }
  auto profiles = load_profiles(data);
  if (!profiles) return fmt::print(stderr, "error: {}\n", profiles.error().to_string()), 3;
  const std::vector<fit::Case> cases = fit::fit_cases(observations);
  const std::vector<fit::Parameter> parameters = fit::fitted_parameters(*profiles);

  std::vector<double> before;
  for (double log_error : fit::evaluate(cases, *profiles))
    before.push_back(std::exp(log_error) - 1);
  const fit::FitResult fitted = fit::fit_constants(cases, *profiles, parameters);
  Table values({"Parameter", "value", "low", "high", ""});
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const hardware::ConstantSpec& spec = hardware::constant_spec(parameters[i].key);
    values.add({parameters[i].name(), fmt::format("{:.4g}", fitted.values[i]),
                fmt::format("{:.3g}", spec.low), fmt::format("{:.3g}", spec.high),
                fitted.at_bound[i] ? "AT BOUND" : ""});
  }
  if (rows) print_rows(cases, fitted.errors);
  print_groups(cases, fitted.errors);
  fmt::print("\n{}\n{} parameters\n\n", values.text(), parameters.size());
  Table table({"Errors of throughput", "rows", "mean |e|", "median", "p90", "bias"});
  table.add(row("before the fit", stats_of(before), cases.size()));
  table.add(row("fitted", stats_of(fitted.errors), cases.size()));
  std::string ranking;
  if (!quick) {
    const auto left_out = [&](const char* name, auto key) {
      const auto without = fit::left_out_profiles(cases, *profiles, parameters, key);
      const std::vector<double> errors = fit::left_out_errors(cases, without, key);
      std::map<std::string, std::vector<double>> folds;
      for (std::size_t i = 0; i < cases.size(); ++i)
        folds[key(*cases[i].observation)].push_back(errors[i]);
      if (rows) fmt::print("leave one {} out:\n", name), print_rows(cases, errors);
      table.rule();
      table.add(row(fmt::format("leave one {} out", name), stats_of(errors), cases.size()));
      for (const auto& [fold, list] : folds)
        table.add(row("  " + fold, stats_of(list), list.size()));
      return without;
    };
    const auto model = [](const observe::Observation& o) { return o.model_name; };
    const auto without_model = left_out("model", model);
    fit::Profiles seen = *profiles;
    fit::apply(parameters, fitted.values, seen);
    ranking = ranking_text(observations, without_model, seen, model, rows);
    left_out("GPU", [](const auto& o) { return o.job.cluster.name; });
    left_out("source", source_family);
  }
  fmt::print("{}{}", table.text(), ranking);
  if (knock_outs) print_knock_outs(observations, *profiles, stats_of(fitted.errors).mean);
  if (!write) return 0;
  fit::apply(parameters, fitted.values, *profiles);
  for (const auto& [name, profile] : *profiles) {
    const std::string path = data + "/hardware/profiles/" + name + ".json";
    const auto written = write_text(path, hardware::dump_profile(profile));
    if (!written) return fmt::print(stderr, "error: {}\n", written.error().to_string()), 3;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Fit profile constants on published training runs", "trifold_fit_constants"};
  std::vector<std::string> files;
  std::string data = TRIFOLD_SOURCE_DIR;
  bool write = false, rows = false, quick = false, knock_outs = false;
  app.add_option("files", files, "observation records")->required();
  app.add_option("--data", data, "folder that holds models/ and hardware/");
  app.add_flag("--write", write, "write the fitted constants into the profiles");
  app.add_flag("--rows", rows, "print every row, worst first");
  app.add_flag("--quick", quick, "skip the left-out fits");
  app.add_flag("--knock-out", knock_outs, "what each mechanism is worth");
  CLI11_PARSE(app, argc, argv);
  return run(files, data, write, rows, quick, knock_outs);
}

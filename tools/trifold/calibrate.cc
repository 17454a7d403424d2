// SPDX-License-Identifier: Apache-2.0

// trifold calibrate: measure this machine, or refit points measured anywhere, into a Profile.

#include "calibrate/calibrate.h"

#include <fmt/format.h>

#include <memory>
#include <tuple>

#include "calibrate/fit/nccl_tests.h"
#include "calibrate/fit/points.h"
#include "calibrate/fit/profile_fit.h"
#include "calibrate/layer/predict.h"
#include "cli.h"
#include "hardware/cluster.h"
#include "hardware/profile.h"

namespace trifold::cli {

namespace {

struct Arguments {
  calibrate::Options run;
  std::string output, fit, cluster = "dgx-h200", base, points, name, layer_lines, collective;
  std::vector<std::string> logs;
  int ranks = 0;
  bool layer = false, lab = false, check = false, bootstrap = false, no_fit = false;
};

void tell(const calibrate::Summary& s) {
  for (const std::string& line : s.lines) print(line + "\n");
  if (s.rank != 0) return;
  constexpr std::size_t kMost = 12;
  for (std::size_t i = 0; i < s.skipped.size() && i < kMost; ++i)
    fmt::print(stderr, "skipped {}\n", s.skipped[i]);
  if (s.skipped.size() > kMost) fmt::print(stderr, "skipped {} more\n", s.skipped.size() - kMost);
  if (s.measured + s.resumed == 0) return;
  fmt::print(
      stderr,
      "{} points measured, {} resumed, {} wrong, {} throttled, {} unstable; drift of anchors "
      "{:.1f} %; {:.0f} s{}\n",
      s.measured, s.resumed, s.bad, s.throttled, s.unstable, 100 * s.worst_drift, s.seconds,
      s.budget_spent ? ", budget spent: run again to go on" : "");
  if (s.worst_drift > 0.03)
    fmt::print(stderr,
               "warning: the anchors drifted by more than 3 %: do not trust this profile\n");
}

Result<fit::PointsFile> import_logs(const Arguments& a) {
  fit::NcclTestsHint hint;
  hint.ranks = a.ranks;
  for (const auto& op : hardware::kCollectives)
    if (a.collective == op.name) hint.op = op.value;
  fit::PointsFile all;
  for (const std::string& path : a.logs) {
    TRIFOLD_ASSIGN(text, read_text(path));
    TRIFOLD_ASSIGN(one, fit::import_nccl_tests(text, path, hint));
    if (all.points.empty()) {
      all = std::move(one);
      continue;
    }
    if (one.provenance.gpu != all.provenance.gpu)
      return input_error(
          "is a log of '" + one.provenance.gpu + "', the first one of '" + all.provenance.gpu + "'",
          path, "import the logs of one cluster together");
    all.points.insert(all.points.end(), one.points.begin(), one.points.end());
  }
  return all;
}

// Other software has other kernels: said, not refused, since a base only fills gaps.
void flag_software(const char* what, const hardware::Provenance& other,
                   const hardware::Provenance& points) {
  const std::tuple<const char*, const std::string&, const std::string&> pairs[] = {
      {"driver", other.driver, points.driver},
      {"CUDA", other.cuda, points.cuda},
      {"NCCL", other.nccl, points.nccl}};
  for (const auto& [name, theirs, ours] : pairs)
    if (!theirs.empty() && !ours.empty() && theirs != ours)
      fmt::print(stderr, "note: {} has {} {}, the points {}\n", what, name, theirs, ours);
}

Result<int> fit_profile(const Context& context, const Arguments& a, const std::string& measured) {
  TRIFOLD_ASSIGN(points, a.logs.empty() ? fit::read_points(measured) : import_logs(a));
  if (points.torn) fmt::print(stderr, "note: {}: the torn last line was dropped\n", measured);
  TRIFOLD_ASSIGN(cluster, hardware::load_cluster(a.cluster, context.data_dir));
  TRIFOLD_ASSIGN(
      base, hardware::load_profile(a.base.empty() ? cluster.profile : a.base, context.data_dir));
  flag_software(("base profile '" + base.name + "'").c_str(), base.provenance, points.provenance);
  const std::string name = a.name.empty() ? cluster.profile + "-measured" : a.name;
  TRIFOLD_ASSIGN(fitted, fit::fit_points(points, cluster, base, name));
  if (fitted.reports.empty())
    fmt::print(stderr, "note: too few points for a surface or a curve: '{}' answers for all\n",
               base.name);
  else
    fmt::print(stderr, "{}", fit::error_table(fitted.reports));
  const std::string text = hardware::dump_profile(fitted.profile);
  if (a.output.empty() || a.output == "-")
    print(text);
  else
    TRIFOLD_TRY(write_text(a.output, text));
  if (!a.layer_lines.empty()) {
    TRIFOLD_ASSIGN(ran_on, calibrate::layer_provenance(a.layer_lines));
    if (!ran_on.gpu.empty() && ran_on.gpu != points.provenance.gpu)
      return input_error(
          "layers ran on '" + ran_on.gpu + "', the points on '" + points.provenance.gpu + "'",
          a.layer_lines, "compare layers with the points of the same machine");
    flag_software("the layer test", ran_on, points.provenance);
    TRIFOLD_ASSIGN(compared, calibrate::compare_layers(a.layer_lines, cluster, fitted.benchmark,
                                                       context.data_dir));
    fmt::print(stderr, "{}", calibrate::layer_table(compared));
  }
  const std::vector<std::string> complaints = fit::gate(fitted.reports);
  for (const std::string& complaint : complaints) fmt::print(stderr, "warning: {}\n", complaint);
  return complaints.empty() ? kDone : kCheckFailed;
}

Result<int> run(const Context& context, Arguments& a) {
  if (!a.fit.empty() || !a.logs.empty()) return fit_profile(context, a, a.fit);
  using calibrate::Mode;
  a.run.mode = a.layer       ? Mode::layer
               : a.lab       ? Mode::lab
               : a.check     ? Mode::check_kernels
               : a.bootstrap ? Mode::bootstrap
                             : Mode::points;
  const bool measures = a.run.mode == Mode::points;
  a.run.output = measures && !a.points.empty() ? a.points
                 : measures                    ? a.output + ".points.jsonl"
                                               : a.output;
  if (measures && a.output.empty() && a.points.empty())
    return Error{ErrorCode::usage, "no output: name the profile to write", "-o",
                 "trifold calibrate -o h200.profile.json"};
  TRIFOLD_ASSIGN(summary, calibrate::run(a.run));
  tell(summary);
  if (summary.bad > 0 && !measures) return static_cast<int>(kCheckFailed);
  if (!measures || a.no_fit || summary.rank != 0 || a.output.empty())
    return static_cast<int>(kDone);
  return fit_profile(context, a, a.run.output);
}

void add_options(CLI::App& verb, Arguments& a) {
  verb.add_option("-o,--output", a.output,
                  "the profile to write (layer test: its lines). Points go to FILE.points.jsonl, "
                  "from which a killed run resumes")
      ->type_name("FILE");
  verb.add_option("--points", a.points, "where points go instead")->type_name("FILE");
  verb.add_flag("--quick", a.run.quick, "a first profile in under two minutes");
  verb.add_option("--budget", a.run.budget_s, "seconds of measuring (110 with --quick, else 460)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--gpus", a.run.gpus, "GPUs of this process (default: all)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--families", a.run.families,
                  "only these: gemm, grouped_gemm, attention, collective, memory_bound, quantize, "
                  "host_link, host, overlap")
      ->delimiter(',');
  verb.add_option("--seed", a.run.seed, "order of the points and random data");
  verb.add_flag("--restart", a.run.restart, "forget points already in the file");
  verb.add_flag("--no-fit", a.no_fit, "measure only");
  verb.add_option("--fit", a.fit, "refit a points file; needs no GPU")->type_name("POINTS");
  verb.add_option("--import", a.logs, "fit logs of nccl-tests (text or JSON); needs no GPU")
      ->type_name("LOG");
  verb.add_option("--collective", a.collective,
                  "with --import: what a log that does not say so ran")
      ->check(
          CLI::IsMember({"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_recv"}));
  verb.add_option("--ranks", a.ranks, "with --import: how many ranks, where a log lists none")
      ->check(CLI::Range(2, 1 << 20));
  verb.add_option("--compare-layer", a.layer_lines,
                  "with --fit: the layer test's lines beside what the fit predicts of them")
      ->type_name("LINES");
  verb.add_option("--cluster", a.cluster, "whose GPU and links the points are of")
      ->capture_default_str();
  verb.add_option("--base", a.base, "profile that answers where points do not (the cluster's)");
  verb.add_option("--name", a.name, "name of the new profile");
  verb.add_flag("--layer", a.layer, "the layer test instead of points");
  verb.add_option("--tokens", a.run.layer_tokens, "tokens a rank of the layer test")
      ->check(CLI::Range(64, 1 << 17));
  verb.add_flag("--lab", a.lab, "four experiments of a minute together, each with its lesson");
  verb.add_flag("--check-kernels", a.check, "every kernel against float64, nothing timed");
  verb.add_flag("--bootstrap", a.bootstrap, "rehearse how ranks find each other; needs no GPU");
}

}  // namespace

void add_calibrate(CLI::App& app, Context& context) {
  auto a = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("calibrate", "measure this machine and fit a profile");
  add_options(*verb, *a);
  verb->footer(
      "Examples:\n"
      "  trifold calibrate --quick -o h200.profile.json\n"
      "  torchrun --no-python --nproc-per-node 8 trifold calibrate -o h200.profile.json\n"
      "  srun --ntasks-per-node 8 trifold calibrate -o h200.profile.json\n"
      "  trifold calibrate --fit h200.profile.json.points.jsonl -o h200.profile.json\n"
      "  trifold calibrate --import all_reduce.log alltoall.log --cluster dgx-h100 -o ours.json\n"
      "  trifold calibrate --lab");
  verb->callback([a, &context] {
    context.run = [a, &context] {
      const Result<int> code = run(context, *a);
      return code ? *code : report(code.error());
    };
  });
}

}  // namespace trifold::cli

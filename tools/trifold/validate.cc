// SPDX-License-Identifier: Apache-2.0

// trifold validate [FILE...]: predictions beside published measurements.

#include <fmt/format.h>

#include "cli.h"
#include "observe/validation_text.h"

namespace trifold::cli {

namespace {

struct Options {
  std::vector<std::string> files;
  double max_mean_error = -1;
  bool json = false, summary = false, markdown = false, simulate = false;
};

int validate(const Context& context, const Options& options) {
  std::vector<std::string> files = options.files;
  if (files.empty())
    for (const char* name : {"training_runs", "single_node_runs"})
      files.push_back(context.data_dir + "/tests/observations/" + name + ".json");
  observe::ObservationSet all;
  for (const std::string& file : files) {
    Result<observe::ObservationSet> set = observe::load_observations(file, context.data_dir);
    if (!set) return report(set.error());
    std::move(set->observations.begin(), set->observations.end(),
              std::back_inserter(all.observations));
    std::move(set->skipped.begin(), set->skipped.end(), std::back_inserter(all.skipped));
  }
  const observe::Method method =
      options.simulate ? observe::Method::simulate : observe::Method::estimate;
  const Result<std::vector<observe::Row>> predicted =
      observe::predict_all(all.observations, context.data_dir, method);
  if (!predicted) return report(predicted.error());
  const std::vector<observe::Row>& rows = *predicted;
  if (options.json)
    print(dump_json(observe::to_json(rows, all.skipped)));
  else
    print(observe::validation_text(rows, all.skipped, {!options.summary, options.markdown}));
  const double mean = observe::summarize(observe::scored(rows)).mean_absolute_error;
  if (options.max_mean_error < 0 || mean <= options.max_mean_error) return kDone;
  return report({ErrorCode::check,
                 fmt::format("mean error {:.2f} % is above the bound of {:.2f} %", 100 * mean,
                             100 * options.max_mean_error),
                 "validate", ""});
}

}  // namespace

void add_validate(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("validate", "predictions against published measurements");
  verb->add_option("files", options->files,
                   "observation records; none: the set that ships with trifold");
  verb->add_option("--max-mean-error", options->max_mean_error,
                   "exit 6 when the mean error is above this (0.05 is 5 %)")
      ->check(CLI::Range(0.0, 10.0));
  verb->add_flag("--simulate", options->simulate, "simulate instead of estimating in closed form");
  verb->add_flag("--summary", options->summary, "leave out the line per record");
  verb->add_flag("--markdown", options->markdown, "the headline table as Markdown");
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n"
      "  trifold validate --summary\n"
      "  trifold validate my_runs.json --json\n"
      "  trifold validate --max-mean-error 0.05\n");
  verb->callback([&context, options] {
    context.run = [&context, options] { return validate(context, *options); };
  });
}

}  // namespace trifold::cli

// SPDX-License-Identifier: Apache-2.0

// trifold estimate JOB.json: one Job, closed form.

#include "estimate/estimate.h"
#include "cli.h"
#include "report/estimate_text.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, id;
  std::vector<std::string> sets;
  bool json = false, explain_memory = false;
};

Result<std::string> estimate(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(job, load_job(context, options.path, options.id, options.sets));
  TRIFOLD_ASSIGN(estimate, estimate::estimate_job(job, context.data_dir));
  if (options.json) return dump_json(estimate::to_json(estimate, job));
  std::string text = report::estimate_text(job, estimate);
  if (options.explain_memory) {
    TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout));
    text += "\n" + report::memory_text(job, pipeline);
  }
  return text;
}

}  // namespace

void add_estimate(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("estimate", "step time and memory of one Job, in closed form");
  verb->add_option("job", options->path,
                   "a Job file, a plan.json, or a file of observation records; - reads stdin")
      ->required();
  verb->add_option("--id", options->id, "which record, when the file holds a list");
  verb->add_option("--set", options->sets,
                   "override a field: layout.ep=16, scaleout_bytes_per_s=400Gbps, ...");
  verb->add_flag("--json", options->json, "for machines");
  verb->add_flag("--explain-memory", options->explain_memory,
                 "every memory term with its formula and divisor");
  verb->footer(
      "Examples:\n"
      "  trifold estimate plan.json --set layout.ep=32\n"
      "  trifold estimate ../shared/data/observations/training_runs.json --id mpf-001 --json\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = estimate(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

// SPDX-License-Identifier: Apache-2.0

// trifold explain PLAN: the order of attack from a naive baseline to the plan, step by step.

#include <memory>

#include "cli.h"
#include "job/profile.h"
#include "planner/ladder.h"
#include "report/ladder_text.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, id, from, from_id;
  std::vector<std::string> sets;
  bool json = false;
};

Result<std::string> explain(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(plan, load_job(context, options.path, options.id, options.sets));
  TRIFOLD_ASSIGN(profile, job::profile_of(plan, context.data_dir));
  std::optional<job::Job> from;
  if (!options.from.empty() || !options.from_id.empty()) {
    const std::string& path = options.from.empty() ? options.path : options.from;
    TRIFOLD_ASSIGN(job, load_job(context, path, options.from_id, {}));
    from = std::move(job);
  }
  TRIFOLD_ASSIGN(ladder, planner::climb(plan, from ? &*from : nullptr, profile));
  return options.json ? dump_json(report::ladder_json(ladder)) : report::ladder_text(ladder);
}

}  // namespace

void add_explain(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "explain", "the order of attack from a naive baseline to a plan, and the next best step");
  verb->add_option("plan", options->path,
                   "a plan.json, a Job file, or a file of observation records; - reads stdin")
      ->required();
  verb->add_option("--id", options->id, "which record, when the file holds a list");
  verb->add_option("--set", options->sets, "override a field of the plan first");
  verb->add_option("--from", options->from,
                   "start from this Job instead of a naive baseline (same model, GPUs and batch)");
  verb->add_option("--from-id", options->from_id,
                   "which record of --from (or of the plan's file) to start from");
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n"
      "  trifold explain plan.json\n"
      "  trifold explain plan.json --from yesterday.json --json\n"
      "  trifold explain ../shared/data/observations/training_runs.json "
      "--id mcore-gb200-dsv3-ablation-12-norm-quant --from-id mcore-gb200-dsv3-ablation-00-baseline"
      "\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = explain(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

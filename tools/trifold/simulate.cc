// SPDX-License-Identifier: Apache-2.0

// trifold simulate JOB.json: one step, event by event.

#include <fmt/format.h>

#include "cli.h"
#include "estimate/estimate.h"
#include "job/profile.h"
#include "report/timeline_text.h"
#include "report/trace.h"
#include "timeline/timeline.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, id, trace;
  std::vector<std::string> sets;
  int trace_stage = -1, first_microbatch = 0, microbatches = 0;
  std::uint64_t seed = 0;
  bool json = false, vary_load = false;
};

Result<std::string> simulate(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(job, load_job(context, options.path, options.id, options.sets));
  TRIFOLD_ASSIGN(closed_form, estimate::estimate_job(job, context.data_dir));
  TRIFOLD_ASSIGN(profile, job::profile_of(job, context.data_dir));
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
  cost::Pricer pricer(job.cluster, profile);
  timeline::Simulator simulator;
  timeline::Timeline timeline;
  timeline::SimulateOptions how;
  how.lowering.vary_load = options.vary_load;
  how.lowering.seed = options.seed;
  simulator.run(job, pipeline, pricer, how, timeline);
  if (!timeline.completes)
    return Error{ErrorCode::input,
                 "this order of units hangs: the last interleaving group has fewer micro-batches "
                 "than stages",
                 options.path, "choose a global batch that gives a multiple of pp micro-batches"};
  if (!options.trace.empty()) {
    report::TraceOptions trace;
    trace.stage = options.trace_stage;
    trace.first_microbatch = options.first_microbatch;
    if (options.microbatches > 0)
      trace.last_microbatch = options.first_microbatch + options.microbatches - 1;
    TRIFOLD_TRY(report::write_trace(simulator, trace, options.trace));
    fmt::print(stderr, "trace: {} (open it at https://ui.perfetto.dev)\n", options.trace);
  }
  if (options.json) return dump_json(timeline::to_json(timeline, job, closed_form));
  return report::timeline_text(job, timeline, closed_form);
}

}  // namespace

void add_simulate(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("simulate", "one step of one Job, event by event");
  verb->add_option("job", options->path,
                   "a Job file, a plan.json, or a file of records; - reads stdin")
      ->required();
  verb->add_option("--id", options->id, "which record, when the file holds a list");
  verb->add_option("--set", options->sets, "override a field");
  verb->add_option("--trace", options->trace, "write a Chrome trace for Perfetto here");
  verb->add_option("--trace-stage", options->trace_stage,
                   "this pipeline stage alone (default: all)");
  verb->add_option("--first-microbatch", options->first_microbatch,
                   "first micro-batch of the trace");
  verb->add_option("--microbatches", options->microbatches, "how many (default: all)");
  verb->add_flag("--vary-load", options->vary_load,
                 "draw expert load for each layer and micro-batch (routing natural or with a "
                 "distribution): stragglers show as waits");
  verb->add_option("--seed", options->seed, "of those draws");
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n"
      "  trifold simulate plan.json --trace step.json --microbatches 4\n"
      "  trifold simulate plan.json --set techniques.dispatcher=alltoall --json\n"
      "  trifold simulate plan.json --set techniques.routing.balance=natural --vary-load --seed "
      "3\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = simulate(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

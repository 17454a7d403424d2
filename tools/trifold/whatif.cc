// SPDX-License-Identifier: Apache-2.0

// trifold whatif BASE --vary key=v1,v2 ...: how the answer moves when fields of the Job do.

#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "job/profile.h"
#include "model/catalogue.h"
#include "planner/search.h"
#include "report/plan_text.h"
#include "report/whatif_text.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, id, until, output;
  std::string model, cluster, profile, precision = "bf16";  // --plan
  int gpus = 0, draws = 200;
  std::int64_t sequence_length = 4096, global_batch_size = 0;
  std::vector<std::string> sets, vary;
  bool json = false, replan = false, sensitivity = false, risk = false;
};

Error usage(std::string message, std::string hint) {
  return Error{ErrorCode::usage, std::move(message), "whatif", std::move(hint)};
}

// The best plan of the arguments that `trifold plan` takes, as a Job file.
Result<Json> plan_base(const Context& context, const Options& options) {
  if (options.cluster.empty() || options.gpus <= 0 || options.global_batch_size <= 0)
    return usage("--plan needs --cluster, --gpus and --global-batch-size", "as trifold plan does");
  Json json = {{"schema", "trifold.job/1"},
               {"model", options.model},
               {"cluster", options.cluster},
               {"gpus", options.gpus},
               {"training",
                {{"sequence_length", options.sequence_length},
                 {"global_batch_size", options.global_batch_size},
                 {"precision", options.precision}}}};
  if (!options.profile.empty()) json["profile"] = options.profile;
  if (options.model.find(".json") != std::string::npos) {
    TRIFOLD_ASSIGN(config, read_json(options.model));
    json["model"] = config;
  }
  for (const std::string& set : options.sets) TRIFOLD_TRY(job::set_field(json, set));
  TRIFOLD_ASSIGN(job, job::read_job(json, "--plan", {context.data_dir, true}));
  TRIFOLD_ASSIGN(profile, job::profile_of(job, context.data_dir));
  planner::Query query = planner::query_of(job);
  query.training.optimizer.fp8_param_gather = job::is_low_precision(job.training.precision);
  TRIFOLD_TRY(planner::validate(query));
  TRIFOLD_ASSIGN(result, planner::plan(query, profile));
  if (result.plans.empty())
    return Error{ErrorCode::infeasible, "nothing fits", "--plan",
                 "trifold plan says what is short"};
  job::Job best = result.plans.front().job;
  best.model_origin = job.model_origin;
  best.cluster_origin = job.cluster_origin;
  return job::to_json(best);
}

Result<Json> base_json(const Context& context, const Options& options) {
  if (!options.model.empty()) {
    if (!options.path.empty()) return usage("both a base and --plan", "give one of the two");
    return plan_base(context, options);
  }
  if (options.path.empty())
    return usage("what to vary? no base", "a plan.json, a Job, a record with --id, or --plan");
  return load_job_json(options.path, options.id, options.sets);
}

Result<void> write_or_print(const Options& options, const std::string& text) {
  if (!options.output.empty()) return write_text(options.output, text);
  print(text);
  return {};
}

// The sweep's own exit code: nothing at all could be priced, or no crossing.
int code_of(const report::WhatIfAnswer& answer) {
  if (answer.crossing != nullptr && !answer.crossing->found) return kInfeasible;
  const auto priced = [](const planner::Point& p) { return p.evaluated(); };
  const bool none =
      !answer.points.empty() && std::none_of(answer.points.begin(), answer.points.end(), priced);
  return none ? kInfeasible : kDone;
}

Result<int> whatif(const Context& context, const Options& options) {
  if (options.vary.empty() && !options.sensitivity && !options.risk)
    return usage("nothing to ask", "--vary key=v1,v2, --sensitivity or --risk");
  if (!options.until.empty() && (options.vary.size() != 1 || options.replan))
    return usage("--until takes one --vary key=low..high", "and no --replan");
  TRIFOLD_ASSIGN(json, base_json(context, options));
  const std::string name = options.path.empty() ? "--plan" : options.path;
  TRIFOLD_ASSIGN(what_if, planner::WhatIf::make(std::move(json), name, context.data_dir));
  report::WhatIfAnswer answer;
  answer.base = what_if.base();
  answer.replan = options.replan;
  TRIFOLD_TRY(what_if.evaluate(what_if.base(), answer.base_point));
  planner::Target target;
  planner::Crossing crossing;
  planner::Sensitivity bars;
  planner::RoutingRisk risk;
  if (!options.until.empty()) {
    TRIFOLD_ASSIGN(wanted, planner::parse_target(options.until));
    TRIFOLD_ASSIGN(range, planner::parse_range(options.vary.front()));
    target = wanted;
    TRIFOLD_ASSIGN(found, planner::find_crossing(what_if, range, target));
    crossing = std::move(found);
    answer.target = &target, answer.crossing = &crossing;
  } else if (!options.vary.empty()) {
    for (const std::string& text : options.vary) {
      TRIFOLD_ASSIGN(axis, planner::parse_axis(text));
      answer.axes.push_back(std::move(axis));
    }
    TRIFOLD_ASSIGN(points,
                   options.replan ? what_if.replan(answer.axes) : what_if.sweep(answer.axes));
    answer.points = std::move(points);
  }
  if ((options.sensitivity || options.risk) && !answer.base_point.evaluated())
    return Error{ErrorCode::infeasible, planner::reason_of(answer.base_point), name, ""};
  if (options.sensitivity) {
    bars = planner::sensitivity(answer.base, what_if.profile());
    answer.sensitivity = &bars;
  }
  if (options.risk) {
    TRIFOLD_ASSIGN(odds, planner::routing_risk(answer.base, what_if.profile(), options.draws));
    risk = std::move(odds);
    answer.risk = &risk;
  }
  TRIFOLD_TRY(write_or_print(options, options.json ? dump_json(report::whatif_json(answer))
                                                   : report::whatif_text(answer)));
  return code_of(answer);
}

void add_base(CLI::App& verb, Options& o) {
  verb.add_option("base", o.path,
                  "a plan.json, a Job file, or a file of observation records; - reads stdin");
  verb.add_option("--id", o.id, "which record, when the file holds a list");
  verb.add_option("--set", o.sets, "override a field of the base first");
  const char* group = "Base from a plan (instead of a file)";
  verb.add_option("--plan", o.model, "model: catalogue name or config.json")->group(group);
  verb.add_option("--cluster", o.cluster, "catalogue name or a cluster JSON")->group(group);
  verb.add_option("--gpus", o.gpus, "how many GPUs")->group(group);
  verb.add_option("--global-batch-size", o.global_batch_size, "sequences a step")->group(group);
  verb.add_option("--sequence-length", o.sequence_length, "tokens a sequence")->group(group);
  verb.add_option("--precision", o.precision, "number format")->group(group);
  verb.add_option("--profile", o.profile, "cost profile")->group(group);
}

}  // namespace

void add_whatif(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("whatif", "sweeps, sensitivities, crossings and routing risk of a Job");
  Options& o = *options;
  add_base(*verb, o);
  verb->add_option("--vary", o.vary,
                   "key=v1,v2,... or key=low..high:count; repeat for a product; lists join with +")
      ->take_all();
  verb->add_flag("--replan", o.replan,
                 "plan anew around each point instead of evaluating it as is");
  verb->add_option("--until", o.until,
                   "where a number crosses a value over --vary key=low..high: headroom=10GiB, "
                   "ep_share=0.05, step_time=2s, ...");
  verb->add_flag("--sensitivity", o.sensitivity,
                 "elasticity to each hardware rate, and each technique switched");
  verb->add_flag("--risk", o.risk, "chance of out-of-memory and slow-down under the Job's routing");
  verb->add_option("--draws", o.draws, "routing draws of --risk")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  verb->add_option("-o,--output", o.output, "write here instead of standard output");
  verb->add_flag("--json", o.json, "for machines");
  verb->footer(
      "Examples:\n"
      "  trifold whatif plan.json --vary ep=8,16,32,64 --vary scaleout_bandwidth=25,50,100\n"
      "  trifold whatif plan.json --vary sequence_length=4096..131072 --until headroom=10GiB\n"
      "  trifold whatif plan.json --vary recompute=none,moe_act,moe_act+layernorm --json\n"
      "  trifold whatif plan.json --vary scaleout_bytes_per_s=400Gbps,800Gbps --replan\n"
      "  trifold whatif plan.json --sensitivity\n"
      "  trifold whatif plan.json --set distribution=zipf --set parameters=0.5 --risk\n"
      "  trifold whatif --plan qwen3-30b-a3b --cluster dgx-h100 --gpus 64 --global-batch-size 512 "
      "--vary ep=8,16\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      const Result<int> code = whatif(context, *options);
      return code ? *code : report(code.error());
    };
  });
}

}  // namespace trifold::cli

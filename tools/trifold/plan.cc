// SPDX-License-Identifier: Apache-2.0

// trifold plan MODEL --cluster C --gpus N ...: ranked, explained, launchable layouts.

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "cli.h"
#include "launch/files.h"
#include "model/catalogue.h"
#include "planner/answers.h"
#include "planner/search.h"
#include "report/plan_answers.h"
#include "report/plan_text.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string model, cluster, profile, precision = "bf16", runtime = "megatron", optimizer = "auto",
                                       directory;
  int gpus = 0, best = 10, threads = 0;
  std::int64_t sequence_length = 4096, global_batch_size = 0, max_evaluations = 0;
  double simplicity = 0.01, min_headroom_gib = 0, tokens_per_second = 0;
  int simulate = 4;
  bool pareto = false, half = false;
  std::string compare;
  std::vector<std::string> dispatcher, recompute, schedule, cluster_sets;
  planner::Pins pins;
  bool json = false;
};

Result<void> read_pins(const Options& options, planner::Query& query) {
  query.pins = options.pins;
  for (const std::string& word : options.dispatcher) {
    TRIFOLD_ASSIGN(dispatcher, parse_token(job::kDispatchers, word, "dispatcher", "--dispatcher"));
    query.pins.dispatcher.push_back(dispatcher);
  }
  for (const std::string& word : options.schedule) {
    TRIFOLD_ASSIGN(kind, parse_token(layout::kScheduleKinds, word, "schedule", "--schedule"));
    query.pins.schedule.push_back(kind);
  }
  if (!options.recompute.empty()) {
    EnumSet<job::Recompute> set;
    for (const std::string& word : options.recompute) {
      if (word == "none") continue;
      TRIFOLD_ASSIGN(module,
                     parse_token(job::kRecomputes, word, "recompute module", "--recompute"));
      set.insert(module);
    }
    query.pins.recompute = set;
  }
  for (const std::vector<int>* axis :
       {&query.pins.tp, &query.pins.ulysses_sp, &query.pins.cp, &query.pins.pp, &query.pins.vpp,
        &query.pins.ep, &query.pins.etp, &query.pins.micro_batch_size, &query.pins.dispatcher_sms})
    for (int value : *axis)
      if (value < 1 || value > 1 << 20)
        return input_error(fmt::format("a pinned size of {} is outside 1..{}", value, 1 << 20),
                           "plan", "pin a positive size");
  return {};
}

// FP8 and narrower runs keep their parameters in the low format, as NVIDIA's recipes do; gradients
// reduce in BF16 there.
job::Optimizer optimizer_for(job::Precision precision) {
  job::Optimizer optimizer;
  if (job::is_low_precision(precision)) optimizer.fp8_param_gather = true;
  return optimizer;
}

Result<planner::Query> read_query(const Context& context, const Options& options) {
  planner::Query query;
  TRIFOLD_ASSIGN(model, model::load_model(options.model, context.data_dir));
  TRIFOLD_ASSIGN(cluster, hardware::load_cluster(options.cluster, context.data_dir));
  TRIFOLD_ASSIGN(precision,
                 parse_token(job::kPrecisions, options.precision, "precision", "--precision"));
  TRIFOLD_ASSIGN(runtime, parse_token(job::kRuntimes, options.runtime, "runtime", "--runtime"));
  TRIFOLD_ASSIGN(optimizer, parse_token(planner::kOptimizerPrecisions, options.optimizer,
                                        "optimizer precision", "--optimizer-precision"));
  query.model = std::move(model);
  query.cluster = std::move(cluster);
  query.profile = options.profile;
  query.gpus = options.gpus;
  query.training.sequence_length = options.sequence_length;
  query.training.global_batch_size = options.global_batch_size;
  query.training.precision = precision;
  query.training.optimizer = optimizer_for(precision);
  query.optimizer_precision = optimizer;
  query.runtime = runtime;
  query.best = options.best;
  query.threads = options.threads;
  query.max_evaluations = options.max_evaluations;
  query.simplicity = options.simplicity;
  query.min_headroom = Bytes(static_cast<std::int64_t>(options.min_headroom_gib * (1 << 30)));
  TRIFOLD_TRY(read_pins(options, query));
  TRIFOLD_TRY(planner::validate(query));
  for (const auto& [flag, value, most] :  // what a Job file may hold
       {std::tuple{"--sequence-length", options.sequence_length, std::int64_t{100'000'000}},
        std::tuple{"--global-batch-size", options.global_batch_size, std::int64_t{1'000'000'000}}})
    if (value > most) return input_error(fmt::format("{} is outside 1..{}", value, most), flag);
  if (query.cluster.gpu.peak(job::gemm_dtype(precision)).value() <= 0)
    return input_error(
        fmt::format("{} cannot compute in {}", query.cluster.gpu.name, options.precision),
        "--precision", "choose bf16, or another cluster");
  return query;
}

Result<void> write_plan(const std::string& directory, const planner::Candidate& plan) {
  if (mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
    return input_error(std::string("cannot create: ") + std::strerror(errno), directory);
  std::map<std::string, std::string> files;
  if (plan.launchable) {
    TRIFOLD_ASSIGN(launch, launch::emit(plan.job));
    launch::ScriptOptions script;
    script.plan_id = job::job_id(plan.job);
    script.step_time_s = plan.estimate.step_time_s;
    script.low_s = plan.estimate.low_s;
    script.high_s = plan.estimate.high_s;
    files = launch::launch_files(plan.job, launch, script);
    for (const std::string& note : launch.notes) fmt::print(stderr, "note: {}\n", note);
  } else {
    fmt::print(stderr, "note: no launch files: {}\n", job::explain(plan.verdict));
  }
  files["plan.json"] = dump_json(report::plan_file(plan));
  return launch::write_launch_directory(directory, files);
}

// The three that most points fell for, most first.
std::string most_common_reasons(const std::map<std::string, double>& rejected) {
  std::vector<std::pair<double, std::string>> reasons;
  for (const auto& [reason, points] : rejected)
    if (points > 0) reasons.emplace_back(-points, reason);
  std::sort(reasons.begin(), reasons.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, reasons.size()); ++i)
    text += (i > 0 ? "; " : "") + reasons[i].second;
  return text;
}

// Exit 4: what is short by how much, and the smallest cluster that would do.
Error nothing_fits(const planner::Query& query, const planner::PlanResult& result,
                   const hardware::Profile& profile) {
  if (result.tightest_layout.empty())
    return {ErrorCode::infeasible,
            fmt::format("no legal layout on {} GPUs; most fall for: {}", query.gpus,
                        most_common_reasons(result.rejected)),
            "plan", "change the batch, the pins or the number of GPUs"};
  const int enough = planner::smallest_cluster_that_fits(query, profile);
  return {
      ErrorCode::infeasible,
      fmt::format("{} fits on no layout of {} x {}: the tightest ({}) is short of {:.1f} GiB a GPU",
                  query.model.name, query.gpus, query.cluster.name, result.tightest_layout,
                  to_gib(Bytes(result.smallest_shortage_bytes))),
      "plan",
      enough > 0
          ? fmt::format("{} GPUs of this kind would do", enough)
          : std::string("64 times as many GPUs of this kind would not do; choose larger ones")};
}

// The questions beside the plan itself.
Result<report::PlanAnswers> answer(const Context& context, const Options& options,
                                   const planner::Query& query, const hardware::Profile& profile,
                                   planner::PlanResult& result) {
  report::PlanAnswers answers;
  if (options.simulate > 0)
    answers.reranking =
        planner::rerank_by_simulation(result.plans, profile, options.simulate, query.threads);
  if (options.pareto) answers.pareto = planner::pareto_front(query, profile);
  if (options.half && query.gpus % 2 == 0) {
    planner::Query smaller = query;
    smaller.gpus /= 2;
    TRIFOLD_ASSIGN(half, planner::plan(smaller, profile));
    if (options.simulate > 0)  // as the plan beside it
      planner::rerank_by_simulation(half.plans, profile, options.simulate, query.threads);
    answers.half = report::PlanAnswers::Half{smaller.gpus, {}};
    if (!half.plans.empty()) answers.half->best = std::move(half.plans.front());
  }
  if (options.tokens_per_second > 0) {
    answers.tokens_per_s = options.tokens_per_second;
    answers.smallest = planner::smallest_cluster_for(query, options.tokens_per_second, profile);
  }
  if (!options.compare.empty()) {
    TRIFOLD_ASSIGN(job, load_job(context, options.compare, "", {}));
    TRIFOLD_ASSIGN(named, planner::evaluate_named(job, query, profile));
    answers.named = std::move(named);
  }
  return answers;
}

Result<std::string> plan(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(query, read_query(context, options));
  TRIFOLD_ASSIGN(
      profile, hardware::load_profile(query.profile.empty() ? query.cluster.profile : query.profile,
                                      context.data_dir));
  note_other_gpu(profile, query.cluster);
  TRIFOLD_ASSIGN(result, planner::plan(query, profile));
  if (result.plans.empty()) return nothing_fits(query, result, profile);
  TRIFOLD_ASSIGN(answers, answer(context, options, query, profile, result));
  if (!options.directory.empty()) TRIFOLD_TRY(write_plan(options.directory, result.plans.front()));
  if (options.json) {
    Json json = report::plan_json(query, result);
    report::add_answers(answers, json);
    return dump_json(json);
  }
  std::string text = report::plan_text(query, result) + report::answers_text(answers, result);
  if (!options.directory.empty())
    text += fmt::format(
        "\nwritten to {}/: plan.json and launch files; start with {}/launch.sh or sbatch "
        "{}/submit.sbatch\n",
        options.directory, options.directory, options.directory);
  return text;
}

void add_axes(CLI::App& verb, Options& o) {
  const auto axis = [&](const char* name, std::vector<int>& values, const char* help) {
    verb.add_option(name, values, help)
        ->delimiter(',')
        ->group("Pins (comma-separated allowed values)");
  };
  axis("--tp", o.pins.tp, "tensor parallel sizes");
  axis("--ulysses-sp", o.pins.ulysses_sp, "Ulysses sequence parallel sizes");
  axis("--cp", o.pins.cp, "context parallel sizes");
  axis("--pp", o.pins.pp, "pipeline parallel sizes");
  axis("--vpp", o.pins.vpp, "virtual stages per pipeline rank");
  axis("--ep", o.pins.ep, "expert parallel sizes");
  axis("--etp", o.pins.etp, "expert tensor parallel sizes");
  axis("--micro-batch-size", o.pins.micro_batch_size, "sequences a micro-batch");
  axis("--dispatcher-sms", o.pins.dispatcher_sms, "SMs lent to the dispatcher; 0: its default");
  verb.add_option("--schedule", o.schedule,
                  "1f1b, interleaved, zb_h1, zb_h2, zb_v, dualpipe, dualpipe_v")
      ->delimiter(',')
      ->group("Pins (comma-separated allowed values)");
  verb.add_option("--dispatcher", o.dispatcher, "alltoall, allgather, deepep, hybridep")
      ->delimiter(',')
      ->group("Pins (comma-separated allowed values)");
  verb.add_option("--recompute", o.recompute, "exactly these modules, or none")
      ->delimiter(',')
      ->group("Pins (comma-separated allowed values)");
  const auto choice = [&](const char* name, std::optional<bool>& pin, const char* help) {
    verb.add_flag_callback(
            std::string("--") + name, [&pin] { pin = true; }, help)
        ->group("Pins (on or off)");
    verb.add_flag_callback(
            std::string("--no-") + name, [&pin] { pin = false; }, help)
        ->group("Pins (on or off)");
  };
  choice("fsdp", o.pins.fsdp, "fully sharded data parallel");
  choice("ep-overlap", o.pins.ep_overlap, "merged forward-backward hiding expert communication");
  choice("cuda-graph", o.pins.cuda_graph, "CUDA graphs over attention, router and preprocessing");
  choice("offload", o.pins.activation_offload, "fine-grained activation offload");
}

void add_questions(CLI::App& verb, Options& o) {
  const char* group = "Questions";
  verb.add_option("--simplicity", o.simplicity,
                  "list the simplest variant of a geometry within this share of its fastest")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0))
      ->group(group);
  verb.add_option("--min-headroom", o.min_headroom_gib, "GiB of memory a plan must leave")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  verb.add_option("--simulate", o.simulate,
                  "put this many of the best in the order of their simulation (default 4; 0: none)")
      ->check(CLI::Range(0, 100))
      ->group(group);
  verb.add_flag("--pareto", o.pareto, "step time against headroom against number of GPUs")
      ->group(group);
  verb.add_flag("--half", o.half, "what if I had half the GPUs")->group(group);
  verb.add_option("--tokens-per-second", o.tokens_per_second,
                  "the smallest cluster that trains this many")
      ->check(CLI::PositiveNumber)
      ->group(group);
  verb.add_option("--compare", o.compare, "a Job file: why this layout loses, term by term")
      ->group(group);
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "plan", "ranked parallel layouts for a model on a cluster, with launch files");
  Options& o = *options;
  verb->add_option("model", o.model, "catalogue name or a Hugging Face config.json")->required();
  verb->add_option("--cluster", o.cluster, "catalogue name or a cluster JSON")->required();
  verb->add_option("--gpus", o.gpus, "how many GPUs")->required();
  verb->add_option("--global-batch-size", o.global_batch_size, "sequences a step")->required();
  verb->add_option("--sequence-length", o.sequence_length, "tokens a sequence")
      ->capture_default_str();
  verb->add_option("--precision", o.precision,
                   "bf16, fp8_delayed, fp8_tensor, fp8_block, mxfp8, nvfp4")
      ->capture_default_str();
  verb->add_option("--optimizer-precision", o.optimizer, "auto, fp32 or bf16_moments")
      ->capture_default_str();
  verb->add_option("--profile", o.profile, "cost profile (catalogue name or file)");
  verb->add_option("--runtime", o.runtime, "megatron: rank what Megatron can run; any: rank all")
      ->capture_default_str();
  verb->add_option("--best", o.best, "how many plans to list")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  verb->add_option("--threads", o.threads, "0: all cores; the answer does not depend on it")
      ->check(CLI::Range(0, 1024));
  verb->add_option("--max-evaluations", o.max_evaluations, "stop after about this many step times")
      ->check(CLI::NonNegativeNumber);
  add_questions(*verb, o);
  verb->add_option("-o,--output", o.directory,
                   "write plan.json and launch files of the first plan here");
  verb->add_flag("--json", o.json, "for machines");
  add_axes(*verb, o);
  verb->footer(
      "Examples:\n"
      "  trifold plan deepseek-v3 --cluster dgx-h100 --gpus 1024 --global-batch-size 8192 "
      "--precision fp8_block -o run\n"
      "  trifold plan config.json --cluster gb200-nvl72 --gpus 256 --global-batch-size 4096 "
      "--precision mxfp8 --tp 1,2\n"
      "  trifold plan mixtral-8x22b --cluster dgx-h100 --gpus 128 --global-batch-size 256 "
      "--no-fsdp --json\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = plan(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

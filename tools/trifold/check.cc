// SPDX-License-Identifier: Apache-2.0

// trifold check plan.json|megatron.args|launch.sh: would Megatron start?

#include <fmt/format.h>

#include "cli.h"
#include "estimate/estimate.h"
#include "job/legality.h"
#include "launch/check.h"
#include "launch/emit.h"
#include "launch/import.h"
#include "launch/script.h"
#include "model/catalogue.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, id, version = "main", gpu = "hopper", cluster;
  std::vector<std::string> sets, variables;
  std::int64_t gpus = 0;
  bool json = false;
};

bool is_json(const std::string& path) {
  return path.size() > 5 && path.substr(path.size() - 5) == ".json";
}

// What Megatron would find out when it runs.
Result<void> check_memory(const Context& context, const job::Job& job,
                          std::vector<launch::Finding>& findings) {
  TRIFOLD_ASSIGN(estimate, estimate::estimate_job(job, context.data_dir));
  if (!estimate.memory.fits())
    findings.push_back(
        {launch::Severity::warning, "TRI-OOM", "the step is predicted not to fit in memory",
         fmt::format("stage {} reserves {:.1f} GiB of {:.1f} GiB", estimate.memory.worst_stage,
                     to_gib(estimate.memory.reserved), to_gib(estimate.memory.capacity)),
         "trifold estimate --explain-memory shows what to free"});
  return {};
}

// A plan: its structure, then the arguments that it would start with, then memory.
Result<std::vector<launch::Finding>> check_plan(const Context& context, const Options& options,
                                                launch::CheckOptions check) {
  TRIFOLD_ASSIGN(job, load_job(context, options.path, options.id, options.sets));
  std::vector<launch::Finding> findings;
  for (const job::Verdict& verdict : job::check_all(job))
    findings.push_back({launch::Severity::reject, verdict.rule->id, verdict.rule->reason,
                        verdict.left != 0 || verdict.right != 0
                            ? fmt::format("{} and {}", verdict.left, verdict.right)
                            : "",
                        verdict.rule->fix});
  if (!findings.empty()) return findings;
  launch::EmitOptions emit;
  emit.version = check.version;
  TRIFOLD_ASSIGN(plan, launch::emit(job, emit));
  check.gpus = job.gpus;
  check.arch = job.cluster.gpu.arch;
  findings = launch::check_arguments(plan.arguments, plan.environment, check);
  TRIFOLD_TRY(check_memory(context, job, findings));
  return findings;
}

// With a cluster, arguments are a Job whose memory can be predicted.
Result<void> check_on_cluster(const Context& context, const Options& options,
                              const launch::LaunchScript& script, hardware::Cluster cluster,
                              std::int64_t gpus, std::vector<launch::Finding>& findings) {
  launch::ImportOptions import;
  import.file = options.path;
  import.gpus = gpus;
  import.cluster = std::move(cluster);
  for (const std::string& name : model::list_models(context.data_dir)) {
    TRIFOLD_ASSIGN(known, model::load_model(name, context.data_dir));
    import.known_models.push_back(std::move(known));
  }
  TRIFOLD_ASSIGN(imported, launch::import_script(script, import));
  if (!job::check(imported.job, job::Runtime::any).legal()) return {};
  return check_memory(context, imported.job, findings);
}

Result<std::vector<launch::Finding>> check_script(const Context& context, const Options& options,
                                                  launch::CheckOptions check) {
  launch::Environment variables;
  for (const std::string& assignment : options.variables) {
    const auto equal = assignment.find('=');
    if (equal == std::string::npos)
      return Error{ErrorCode::usage, "expected NAME=value", "--env", ""};
    variables[assignment.substr(0, equal)] = assignment.substr(equal + 1);
  }
  TRIFOLD_ASSIGN(script, launch::read_launch_script(options.path, variables));
  for (const auto& [name, value] : variables) script.environment.emplace(name, value);
  if (check.gpus == 0 && script.gpus) check.gpus = *script.gpus;
  if (check.gpus == 0)
    return Error{ErrorCode::usage, "how many GPUs?", options.path,
                 "add --gpus N: the arguments do not say"};
  if (options.cluster.empty())
    return launch::check_arguments(script.arguments, script.environment, check);
  TRIFOLD_ASSIGN(cluster, hardware::load_cluster(options.cluster, context.data_dir));
  check.arch = cluster.gpu.arch;
  std::vector<launch::Finding> findings =
      launch::check_arguments(script.arguments, script.environment, check);
  if (launch::accepted(findings))
    TRIFOLD_TRY(
        check_on_cluster(context, options, script, std::move(cluster), check.gpus, findings));
  return findings;
}

int run(const Context& context, const Options& options) {
  const Result<launch::MegatronVersion> version =
      parse_token(launch::kMegatronVersions, options.version, "Megatron version", "--megatron");
  if (!version) return report(version.error());
  const Result<hardware::GpuArch> arch =
      parse_token(hardware::kGpuArchs, options.gpu, "GPU architecture", "--gpu");
  if (!arch) return report(arch.error());
  launch::CheckOptions check;
  check.version = *version;
  check.arch = *arch;
  check.gpus = options.gpus;
  const auto findings = is_json(options.path) ? check_plan(context, options, check)
                                              : check_script(context, options, check);
  if (!findings) return report(findings.error());
  const bool accepted = launch::accepted(*findings);
  if (options.json) {
    Json list = Json::array();
    for (const launch::Finding& f : *findings)
      list.push_back({{"severity", f.severity == launch::Severity::reject ? "reject" : "warning"},
                      {"rule", f.rule},
                      {"reason", f.reason},
                      {"detail", f.detail},
                      {"fix", f.fix}});
    print(dump_json({{"schema", "trifold.check/1"},
                     {"verdict", accepted ? "accept" : "reject"},
                     {"findings", list}}));
  } else {
    for (const launch::Finding& f : *findings)
      print(fmt::format("{}: {}\n", f.severity == launch::Severity::reject ? "reject" : "warning",
                        launch::explain(f)));
    print(accepted ? "accepted: Megatron would start this\n"
                   : "rejected: Megatron would refuse this\n");
  }
  return accepted ? kDone : kCheckFailed;
}

}  // namespace

void add_check(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("check", "would Megatron start this plan or these arguments?");
  verb->add_option("input", options->path,
                   "plan.json, megatron.args, a launch script or ModelZoo YAML")
      ->required();
  verb->add_option("--megatron", options->version, "0.16, 0.17, 0.18, 0.19, main")
      ->capture_default_str();
  verb->add_option("--gpus", options->gpus, "world size, where the input does not say")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_option("--gpu", options->gpu, "ampere, hopper or blackwell (for arguments)")
      ->capture_default_str();
  verb->add_option("--cluster", options->cluster,
                   "where the arguments would run: their memory is predicted too");
  verb->add_option("--env", options->variables, "NAME=value that the job would see");
  verb->add_option("--id", options->id, "which record, when the file holds a list");
  verb->add_option("--set", options->sets, "override a field of a plan");
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n"
      "  trifold check run/plan.json\n"
      "  trifold check run/megatron.args --gpus 1024 --megatron 0.17\n");
  verb->callback([&context, options] {
    context.run = [&context, options] { return run(context, *options); };
  });
}

}  // namespace trifold::cli

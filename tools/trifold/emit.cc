// SPDX-License-Identifier: Apache-2.0

// trifold emit PLAN.json -o DIR: launch files for a Megatron version.

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "cli.h"
#include "estimate/estimate.h"
#include "launch/files.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, id, directory, version = "main";
  std::vector<std::string> sets;
};

Result<std::string> emit(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(job, load_job(context, options.path, options.id, options.sets));
  TRIFOLD_ASSIGN(version, parse_token(launch::kMegatronVersions, options.version,
                                      "Megatron version", "--megatron"));
  TRIFOLD_ASSIGN(estimate, estimate::estimate_job(job, context.data_dir));
  launch::EmitOptions emit_options;
  emit_options.version = version;
  TRIFOLD_ASSIGN(plan, launch::emit(job, emit_options));
  for (const std::string& note : plan.notes) fmt::print(stderr, "note: {}\n", note);
  if (options.directory.empty()) return launch::megatron_args(plan);
  if (mkdir(options.directory.c_str(), 0777) != 0 && errno != EEXIST)
    return input_error(std::string("cannot create: ") + std::strerror(errno), options.directory);
  launch::ScriptOptions script;
  script.plan_id = job::job_id(job);
  script.step_time_s = estimate.step_time_s;
  script.low_s = estimate.low_s;
  script.high_s = estimate.high_s;
  TRIFOLD_TRY(
      launch::write_launch_directory(options.directory, launch::launch_files(job, plan, script)));
  return fmt::format("written to {}: start with launch.sh or sbatch submit.sbatch\n",
                     options.directory);
}

}  // namespace

void add_emit(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("emit", "launch files of a plan for a Megatron version");
  verb->add_option("job", options->path,
                   "a plan.json, a Job file, or a file of records; - reads stdin")
      ->required();
  verb->add_option("--id", options->id, "which record, when the file holds a list");
  verb->add_option("--set", options->sets, "override a field");
  verb->add_option("--megatron", options->version, "0.16, 0.17, 0.18, 0.19, main")
      ->capture_default_str();
  verb->add_option("-o,--output", options->directory,
                   "write every launch file here; without it megatron.args is printed");
  verb->footer(
      "Examples:\n  trifold emit plan.json --megatron 0.17\n  trifold emit plan.json -o run\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = emit(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

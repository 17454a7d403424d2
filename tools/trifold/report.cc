// SPDX-License-Identifier: Apache-2.0

// trifold report PLAN|WHATIF -o report.html: the answer as one self-contained page.

#include "report/html.h"

#include <fmt/format.h>

#include "base/table.h"
#include "cli.h"
#include "report/page_data.h"

namespace trifold::cli {

namespace {

constexpr std::size_t kMostBytes = 1'500'000;
constexpr int kFewestSlices = 2000;

struct Options {
  std::vector<std::string> paths, sets;
  std::string id, title, output;
  int slices = 50000;
  bool json = false;
};

struct Inputs {
  Json job, plans, whatif;
};

std::string schema_of(const Json& json) {
  return json.is_object() && json.contains("schema") && json["schema"].is_string()
             ? json["schema"].get<std::string>()
             : "";
}

Error unknown_schema(const std::string& schema, const std::string& path) {
  return input_error(fmt::format("schema is '{}'", schema), path + "#/schema",
                     "this reads trifold.plan/1, trifold.plans/1, trifold.whatif/1 and "
                     "trifold.job/1; a newer trifold may have written the file");
}

// Sorts one file into the three kinds of input. The first Job met is the one that is shown.
Result<void> take(const Options& options, const std::string& path, Inputs& inputs) {
  TRIFOLD_ASSIGN(json, read_json(path));
  const std::string schema = schema_of(json);
  Json job;
  if (schema == "trifold.whatif/1") {
    if (!json.contains("base") || !json["base"].contains("job"))
      return input_error("a what-if without a base", path + "#/base");
    job = json["base"]["job"];
    inputs.whatif = std::move(json);
  } else if (schema == "trifold.plans/1") {
    if (!json.contains("plans") || !json["plans"].is_array() || json["plans"].empty())
      return input_error("no plans to show", path + "#/plans");
    job = json["plans"][0].value("job", Json());
    inputs.plans = std::move(json);
  } else if (schema.empty() || schema == "trifold.plan/1" || schema == "trifold.job/1") {
    if (json.is_object()) {
      job = json.contains("job") ? json["job"] : json;
    } else {
      TRIFOLD_ASSIGN(record, load_job_json(path, options.id, {}));
      job = std::move(record);
    }
  } else {
    return unknown_schema(schema, path);
  }
  if (inputs.job.is_null()) inputs.job = std::move(job);
  return {};
}

Result<report::PageInput> read_input(const Context& context, const Options& options) {
  Inputs inputs;
  for (const std::string& path : options.paths) TRIFOLD_TRY(take(options, path, inputs));
  for (const std::string& set : options.sets) TRIFOLD_TRY(job::set_field(inputs.job, set));
  TRIFOLD_ASSIGN(job, job::read_job(inputs.job, options.paths.front(), {context.data_dir, true}));
  report::PageInput input;
  input.title = options.title;
  for (const std::string& word : context.argv)
    input.command += (input.command.empty() ? "" : " ") + word;
  input.job = std::move(job);
  input.plans = std::move(inputs.plans);
  input.whatif = std::move(inputs.whatif);
  input.data_dir = context.data_dir;
  input.most_slices = options.slices;
  return input;
}

// Fewer slices until the file is small enough to mail.
Result<std::string> page(report::PageInput input, const hardware::Profile& profile) {
  for (;;) {
    TRIFOLD_ASSIGN(data, report::page_data(input, profile));
    std::string html = report::html_page(data);
    if (html.size() <= kMostBytes || input.most_slices / 2 < kFewestSlices) return html;
    input.most_slices /= 2;
    fmt::print(stderr, "note: {} bytes; drawing again with at most {} slices\n",
               thousands(static_cast<long long>(html.size())), thousands(input.most_slices));
  }
}

Result<int> write_report(const Context& context, const Options& options) {
  if (options.output.empty() && !options.json)
    return Error{ErrorCode::usage, "where to? no --output", "report", "-o report.html"};
  TRIFOLD_ASSIGN(input, read_input(context, options));
  TRIFOLD_ASSIGN(profile, input.job.profile.empty()
                              ? hardware::profile_of(input.job.cluster, context.data_dir)
                              : hardware::load_profile(input.job.profile, context.data_dir));
  if (options.json) {
    TRIFOLD_ASSIGN(data, report::page_data(input, profile));
    print(dump_json(data));
    return static_cast<int>(kDone);
  }
  TRIFOLD_ASSIGN(html, page(std::move(input), profile));
  TRIFOLD_TRY(write_text(options.output, html));
  fmt::print(stderr, "{}: {} bytes, opens in any browser without a network\n", options.output,
             thousands(static_cast<long long>(html.size())));
  return static_cast<int>(kDone);
}

}  // namespace

void add_report(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("report", "a plan or a what-if as one self-contained page");
  verb->add_option("inputs", options->paths,
                   "a plan.json, the JSON of trifold plan or trifold whatif, a Job; several at "
                   "once are shown together, the first one's Job in detail")
      ->required();
  verb->add_option("-o,--output", options->output, "the HTML file");
  verb->add_option("--id", options->id, "which record, when a file holds a list");
  verb->add_option("--set", options->sets, "override a field of the Job that is shown");
  verb->add_option("--title", options->title, "of the page");
  verb->add_option("--slices", options->slices, "most slices of the timeline")
      ->capture_default_str()
      ->check(CLI::Range(kFewestSlices, 1'000'000));
  verb->add_flag("--json", options->json, "the page's data (trifold.page/1) on standard output");
  verb->footer(
      "Examples:\n"
      "  trifold report run/plan.json -o report.html\n"
      "  trifold plan deepseek-v3 --cluster dgx-h100 --gpus 1024 --global-batch-size 8192 "
      "--precision fp8_block --json > plans.json && trifold report plans.json -o report.html\n"
      "  trifold whatif run/plan.json --vary ep=8,16,32,64 --json > sweep.json && trifold report "
      "run/plan.json sweep.json -o report.html\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<int> code = write_report(context, *options);
      return code ? *code : report(code.error());
    };
  });
}

}  // namespace trifold::cli

// SPDX-License-Identifier: Apache-2.0

// trifold import: what a Hugging Face config says, in our words; or a Megatron argument list,
// launch script or ModelZoo YAML as a Job, with everything that a Job cannot hold listed.

#include <fmt/format.h>

#include "base/table.h"
#include "cli.h"
#include "job/job_text.h"
#include "job/legality.h"
#include "launch/import.h"
#include "launch/script.h"
#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path, from = "auto", cluster, profile, extra, output;
  std::vector<std::string> variables, sets;
  int gpus = 0;
  bool json = false;
};

enum class From : std::uint8_t { automatic, hf, megatron, yaml };
constexpr Token<From> kFroms[] = {{From::automatic, "auto"},
                                  {From::hf, "hf"},
                                  {From::megatron, "megatron"},
                                  {From::yaml, "yaml"}};

From guess(const std::string& text, const std::string& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json_name = path.size() > 5 && path.substr(path.size() - 5) == ".json";
  const bool named = path.find('.') != std::string::npos;
  if (json_name || (!named && first == std::string::npos) ||
      (first != std::string::npos && (text[first] == '{' || text[first] == '[')))
    return From::hf;
  return launch::guess_format(text, path) == launch::Format::yaml ? From::yaml : From::megatron;
}

Result<std::string> import_config(const Options& options, const std::string& text) {
  const bool piped = options.path == "-";
  TRIFOLD_ASSIGN(config,
                 piped ? parse_json(text, options.path) : model::read_hf_config(options.path));
  std::vector<model::ImportNote> notes;
  TRIFOLD_ASSIGN(m, model::import_hf_config(config, options.path, &notes));
  const model::Parameters p = model::count_parameters(m);
  if (options.json) {
    Json read;
    for (const model::ImportNote& note : notes) read[note.field] = note.key;
    return dump_json({{"schema", "trifold.model/1"},
                      {"model", model::to_hf_config(m)},
                      {"parameters", p.total()},
                      {"active_parameters", p.active()},
                      {"keys", read}});
  }
  Table table({"Field", "read from"});
  table.align(1, Table::Align::left);
  for (const model::ImportNote& note : notes) table.add({note.field, note.key});
  Table parts({"Parameters", "billions"});
  const auto row = [&](const char* name, std::int64_t count) {
    if (count != 0) parts.add({name, fmt::format("{:.3f}", static_cast<double>(count) * 1e-9)});
  };
  row("embedding", p.embedding), row("head", p.head), row("attention", p.attention),
      row("norms", p.norms + p.final_norm);
  row("dense feed-forward", p.dense_ffn), row("router", p.router), row("routed experts", p.experts);
  row("shared experts", p.shared), parts.rule(), row("total", p.total()), row("active", p.active()),
      row("MTP (not in the total)", p.mtp);
  return fmt::format("{} ({}): {} layers, {} of them MoE\n\n{}\n{}", m.name, m.family,
                     m.num_layers(), m.moe_layers(), parts.text("  "), table.text("  "));
}

Result<launch::LaunchScript> read_script(const Options& options, const std::string& text,
                                         From from) {
  launch::Environment variables;
  for (const std::string& assignment : options.variables) {
    const auto equal = assignment.find('=');
    if (equal == std::string::npos || equal == 0)
      return Error{ErrorCode::usage, "expected NAME=value", "--env", ""};
    variables[assignment.substr(0, equal)] = assignment.substr(equal + 1);
  }
  TRIFOLD_ASSIGN(script,
                 launch::parse_launch_script(
                     text, options.path,
                     from == From::yaml ? launch::Format::yaml : launch::Format::shell, variables));
  if (options.extra.empty()) return script;
  TRIFOLD_ASSIGN(extra, launch::parse_shell(options.extra, "--extra"));
  for (launch::Argument& argument : extra.arguments.items) {
    argument.line = 0;
    script.arguments.items.push_back(std::move(argument));
  }
  return script;
}

// The catalogue's own model where it has the same shape, so that the Job names it.
void name_model(const std::vector<model::Model>& known, launch::Imported& imported) {
  job::Job& job = imported.job;
  for (const model::Model& m : known) {
    if (!launch::same_shape(m, job.model)) continue;
    if (m.max_position != job.model.max_position)
      imported.no_effect.push_back(fmt::format("--max-position-embeddings {} ({} has {})",
                                               job.model.max_position, m.name, m.max_position));
    job.model = m;
    job.model_origin = {m.name, "", job::fingerprint(m)};
    return;
  }
}

std::string list_of(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("\n{}:\n", title);
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

std::string job_text(const Options& options, const launch::Imported& imported,
                     const launch::Environment& environment) {
  const job::Job& job = imported.job;
  const layout::Layout& l = job.layout;
  std::string text = fmt::format(
      "{}: {} on {} x {}, sequence {}, global batch {}, micro-batch {}, {}\n"
      "  tp {} cp {} pp {} vpp {} ep {} etp {}{}{}\n",
      options.path, job.model.name, job.gpus, job.cluster.name, job.training.sequence_length,
      job.training.global_batch_size, job.training.micro_batch_size,
      token_name(job::kPrecisions, job.training.precision), l.tp, l.cp, l.pp, l.vpp, l.ep, l.etp,
      l.fsdp ? " fsdp" : "", l.pipeline_layout.empty() ? "" : " layout " + l.pipeline_layout);
  const job::Verdict verdict = job::check(job);
  text += verdict.legal() ? "  Megatron would start it\n"
                          : fmt::format("  Megatron would refuse it: {}\n", job::explain(verdict));
  text += list_of("Not understood, and may change speed or memory", imported.not_understood);
  text += list_of("Assumed", imported.assumed);
  std::vector<std::string> rest = imported.no_effect;
  for (const auto& [name, value] : environment) rest.push_back(name + "=" + value);
  text += list_of("Without effect on a prediction", rest);
  return text +
         (options.output.empty()
              ? "\nwith -o job.json the Job is written; trifold estimate job.json prices it\n"
              : fmt::format("\nwritten to {0}; trifold estimate {0} prices it\n", options.output));
}

Result<std::string> import_run(const Context& context, const Options& options,
                               const std::string& text, From from) {
  TRIFOLD_ASSIGN(script, read_script(options, text, from));
  if (options.cluster.empty())
    return Error{ErrorCode::usage, "which cluster does it run on?", options.path,
                 "add --cluster NAME (trifold list clusters)"};
  launch::ImportOptions import;
  import.file = options.path;
  import.gpus = options.gpus > 0 ? options.gpus : script.gpus.value_or(0);
  if (import.gpus == 0)
    return Error{ErrorCode::usage, "on how many GPUs does it run?", options.path,
                 "add --gpus N: the input does not say"};
  TRIFOLD_ASSIGN(cluster, hardware::load_cluster(options.cluster, context.data_dir));
  import.cluster = std::move(cluster);
  for (const std::string& name : model::list_models(context.data_dir)) {
    TRIFOLD_ASSIGN(known, model::load_model(name, context.data_dir));
    import.known_models.push_back(std::move(known));
  }
  TRIFOLD_ASSIGN(imported, launch::import_script(script, import));
  name_model(import.known_models, imported);
  imported.job.cluster_origin = {options.cluster, "", job::fingerprint(imported.job.cluster)};
  imported.job.profile = options.profile;
  Json json = job::to_json(imported.job);
  for (const std::string& assignment : options.sets) TRIFOLD_TRY(job::set_field(json, assignment));
  // Read back, so that its bounds are those of any Job file.
  TRIFOLD_ASSIGN(job, job::read_job(json, options.path, {context.data_dir, false}));
  imported.job = std::move(job);
  if (options.output == "-") return dump_json(json);
  if (!options.output.empty()) TRIFOLD_TRY(write_text(options.output, dump_json(json)));
  if (options.json)
    return dump_json({{"schema", "trifold.import/1"},
                      {"job", json},
                      {"not_understood", imported.not_understood},
                      {"assumed", imported.assumed},
                      {"no_effect", imported.no_effect},
                      {"environment", script.environment}});
  return job_text(options, imported, script.environment);
}

Result<std::string> import(const Context& context, const Options& options) {
  TRIFOLD_ASSIGN(given, parse_token(kFroms, options.from, "kind of input", "--from"));
  TRIFOLD_ASSIGN(text, read_text(options.path));
  const From from = given == From::automatic ? guess(text, options.path) : given;
  return from == From::hf ? import_config(options, text) : import_run(context, options, text, from);
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "import", "read a Hugging Face config, or a Megatron run as a Job to ask about");
  verb->add_option("input", options->path,
                   "config.json, megatron.args, a launch script or ModelZoo YAML; - reads stdin")
      ->required();
  verb->add_option("--from", options->from, "auto, hf, megatron (arguments or script), yaml")
      ->capture_default_str();
  verb->add_option("--cluster", options->cluster, "where the run runs: arguments do not say");
  verb->add_option("--gpus", options->gpus, "how many GPUs, where the input does not say")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--profile", options->profile, "cost profile (catalogue name or file)");
  verb->add_option("--env", options->variables, "NAME=value of a variable that the input uses");
  verb->add_option("--extra", options->extra, "more Megatron arguments, e.g. '--vocab-size 32000'");
  verb->add_option("--set", options->sets, "override a field of the Job");
  verb->add_option("-o,--output", options->output, "write the Job here; - prints it alone");
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n"
      "  trifold import ~/models/DeepSeek-V3/config.json\n"
      "  trifold import run/launch.sh --cluster dgx-h100 -o job.json\n"
      "  trifold import DeepSeek-V3.yaml --cluster dgx-h100 --gpus 1024 --env TP=2 --env PP=8\n"
      "  trifold import train.sh --cluster dgx-h200 --gpus 16 -o - | trifold estimate -\n");
  verb->callback([&context, options] {
    context.run = [&context, options] {
      Result<std::string> text = import(context, *options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

// SPDX-License-Identifier: Apache-2.0

// trifold import config.json: what a Hugging Face config says, in our words, and which key said it.

#include <fmt/format.h>

#include "base/table.h"
#include "cli.h"
#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::cli {

namespace {

struct Options {
  std::string path;
  bool json = false;
};

Result<std::string> import(const Options& options) {
  TRIFOLD_ASSIGN(config, read_json(options.path));
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

}  // namespace

void add_import(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("import", "read a Hugging Face config.json");
  verb->add_option("config", options->path, "config.json; - reads stdin")->required();
  verb->add_flag("--json", options->json, "for machines");
  verb->footer(
      "Examples:\n  trifold import ~/models/DeepSeek-V3/config.json\n  trifold import config.json "
      "--json > model.json\n");
  verb->callback([&context, options] {
    context.run = [options] {
      Result<std::string> text = import(*options);
      if (!text) return report(text.error());
      print(*text);
      return static_cast<int>(kDone);
    };
  });
}

}  // namespace trifold::cli

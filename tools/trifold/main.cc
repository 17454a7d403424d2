// SPDX-License-Identifier: Apache-2.0

// trifold <verb> [options]. Results on standard output, everything else on standard error.

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/tokens.h"
#include "cli.h"

namespace {

using trifold::cli::Context;

// Beside the source it was built from, beside an installed program, or where TRIFOLD_DATA says.
std::string find_data_dir(const char* program) {
  if (const char* from_environment = std::getenv("TRIFOLD_DATA")) return from_environment;
  std::error_code ignored;
  const auto installed = std::filesystem::path(program).parent_path() / "../share/trifold";
  if (std::filesystem::exists(installed / "models", ignored)) return installed.string();
  return TRIFOLD_SOURCE_DIR;
}

bool known_verb(const CLI::App& app, const std::string& word) {
  for (const CLI::App* verb : app.get_subcommands({}))
    if (verb->get_name() == word) return true;
  return false;
}

int unknown_verb(const CLI::App& app, const std::string& word) {
  std::vector<std::string_view> verbs;
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  verbs.assign(names.begin(), names.end());
  fmt::print(stderr, "error: unknown verb '{}' ({})\n", word, trifold::suggest(word, verbs));
  return trifold::cli::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Performance simulator and parallelism planner for Mixture-of-Experts training",
               "trifold"};
  app.set_version_flag("--version", "trifold " TRIFOLD_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  trifold plan deepseek-v3 --cluster dgx-h100 --gpus 1024 --global-batch-size 8192 "
      "--precision fp8_block\n"
      "  trifold estimate job.json --explain-memory\n"
      "  trifold list models\n");
  Context context;
  context.argv.assign(argv, argv + argc);
  context.data_dir = find_data_dir(argv[0]);
  app.add_option("--data", context.data_dir, "folder that holds models/ and hardware/");
  trifold::cli::add_verbs(app, context);

  if (argc > 1 && argv[1][0] != '-' && !known_verb(app, argv[1])) return unknown_verb(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e, std::cout, std::cerr);
    return code == 0 ? trifold::cli::kDone : trifold::cli::kUsage;
  }
  try {
    return context.run ? context.run() : trifold::cli::kUsage;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: internal: {}\n", e.what());
    return trifold::cli::kInternal;
  }
}

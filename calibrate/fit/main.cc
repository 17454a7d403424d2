// SPDX-License-Identifier: Apache-2.0

// trifold_fit: public tables to hardware/profiles/*.json. Maintainers run it; users read its
// output.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/json.h"
#include "calibrate/fit/profile_fit.h"

namespace {

int fail(const trifold::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.to_string().c_str());
  return error.code == trifold::ErrorCode::input ? 3 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Fit hardware profiles from published measurements."};
  std::string data, out = "hardware/profiles";
  std::vector<std::string> names;
  bool dry = false;
  app.add_option("data", data, "folder with hardware.json, h200x2/, third_party_measurements/")
      ->required();
  app.add_option("-o,--output", out, "folder for the profiles")->capture_default_str();
  app.add_option("--profile", names, "which ones (default: all)")->delimiter(',');
  app.add_flag("--dry-run", dry, "print the error tables and write nothing");
  app.footer("Example:\n  trifold_fit ../shared/data --profile h200,gb200");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (names.empty()) names = trifold::fit::public_profile_names();
  for (const std::string& name : names) {
    const auto fitted = trifold::fit::fit_public(name, data);
    if (!fitted) return fail(fitted.error());
    std::printf("%s\n%s\n", name.c_str(), trifold::fit::error_table(fitted->reports).c_str());
    if (dry) continue;
    const std::string path = out + "/" + name + ".json";
    const auto written =
        trifold::write_text(path, trifold::hardware::dump_profile(fitted->profile));
    if (!written) return fail(written.error());
    const auto json = trifold::read_json(path);
    if (!json) return fail(json.error());
    const auto again = trifold::hardware::read_profile(*json, path);
    if (!again) return fail(again.error());
    std::fprintf(stderr, "wrote %s\n", path.c_str());
  }
  return 0;
}

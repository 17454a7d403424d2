// SPDX-License-Identifier: Apache-2.0
// A driver for device runs until `trifold calibrate` links it: flags in, points out, a summary on
// standard error. Removed when the verb exists.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "calibrate/calibrate.h"

namespace {

using trifold::ErrorCode;
using trifold::calibrate::Mode;
using trifold::calibrate::Options;
using trifold::calibrate::Summary;

int usage(const char* what) {
  std::fprintf(stderr,
               "trifold_calibrate: %s\n"
               "  -o FILE        points (or layer-test lines), appended; resumes\n"
               "  --layer | --lab | --check-kernels | --bootstrap   instead of points\n"
               "  --quick  --budget S  --gpus N  --families a,b  --seed N  --restart\n"
               "  --tokens N     of a rank, layer test   --commit ID\n",
               what);
  return 2;
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (arg == "--layer")
      o.mode = Mode::layer;
    else if (arg == "--lab")
      o.mode = Mode::lab;
    else if (arg == "--check-kernels")
      o.mode = Mode::check_kernels;
    else if (arg == "--bootstrap")
      o.mode = Mode::bootstrap;
    else if (arg == "--quick")
      o.quick = true;
    else if (arg == "--restart")
      o.restart = true;
    else if (value == nullptr)
      return false;
    else {
      ++i;
      if (arg == "-o")
        o.output = value;
      else if (arg == "--budget")
        o.budget_s = std::atof(value);
      else if (arg == "--gpus")
        o.gpus = std::atoi(value);
      else if (arg == "--seed")
        o.seed = std::strtoull(value, nullptr, 10);
      else if (arg == "--tokens")
        o.layer_tokens = std::atoi(value);
      else if (arg == "--commit")
        o.commit = value;
      else if (arg == "--families") {
        for (std::string rest = value; !rest.empty();) {
          const std::size_t comma = rest.find(',');
          o.families.push_back(rest.substr(0, comma));
          rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        }
      } else
        return false;
    }
  }
  return true;
}

void print(const Summary& s) {
  for (const std::string& line : s.lines) std::printf("%s\n", line.c_str());
  if (s.rank != 0) return;
  for (const std::string& line : s.skipped) std::fprintf(stderr, "skipped %s\n", line.c_str());
  std::fprintf(stderr,
               "%d measured, %d resumed, %d bad, %d throttled, %d unstable, %zu skipped, drift of "
               "anchors %.1f %%, %.0f s%s\n",
               s.measured, s.resumed, s.bad, s.throttled, s.unstable, s.skipped.size(),
               100 * s.worst_drift, s.seconds, s.budget_spent ? ", budget spent" : "");
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return 2;
    case ErrorCode::input:
      return 3;
    case ErrorCode::infeasible:
      return 4;
    case ErrorCode::environment:
      return 5;
    case ErrorCode::check:
      return 6;
    case ErrorCode::internal:
      return 1;
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return usage("unknown flag or missing value");
  const trifold::Result<Summary> result = trifold::calibrate::run(options);
  if (!result) {
    std::fprintf(stderr, "trifold_calibrate: %s\n", result.error().to_string().c_str());
    return exit_code(result.error().code);
  }
  print(*result);
  return result->bad > 0 && options.mode == Mode::check_kernels ? 6 : 0;
}

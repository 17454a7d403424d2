// SPDX-License-Identifier: Apache-2.0
#pragma once

// The entry point of `trifold calibrate`: measures where it stands and appends points
// (calibrate/fit/points.h). The fit is another step and needs no CUDA (calibrate/fit/fit.h).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace trifold::calibrate {

enum class Mode { points, layer, lab, check_kernels, bootstrap };

struct Options {
  Mode mode = Mode::points;
  bool quick = false;                 // a first profile in under two minutes
  double budget_s = 0;                // 0: 110 with quick, 460 without
  std::string output;                 // points or layer-test lines; appended, resumed
  bool restart = false;               // forget what `output` holds
  std::vector<std::string> families;  // empty: all
  int gpus = 0;             // of this process, 0: all visible (one when a launcher started us)
  std::uint64_t seed = 1;   // order of the points and random data
  bool progress = true;     // on standard error, when that is a terminal
  std::string commit;       // for the header
  int layer_tokens = 4096;  // tokens a rank of the layer test
};

struct Summary {
  int rank = 0, ranks = 1;
  int measured = 0, resumed = 0, bad = 0, throttled = 0, unstable = 0;
  bool budget_spent = false;
  double seconds = 0;
  double worst_drift = 0;            // of the anchors, relative
  std::vector<std::string> skipped;  // "what: why", one a point or family
  std::vector<std::string> lines;    // for people: what the lab shows, what a check found
  std::string output;
};

bool built_with_cuda();

// environment errors (exit 5): built without CUDA, no driver, no GPU. Faults of CUDA or NCCL name
// host, rank and call; the points file stays valid.
Result<Summary> run(const Options& options);

}  // namespace trifold::calibrate

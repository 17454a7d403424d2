// SPDX-License-Identifier: Apache-2.0
#pragma once

// The layer test's lines beside what trifold says of the same layer from parts, in closed form
// (estimate/) and event by event (sim/, with schedule/'s contention). Needs no GPU.

#include <array>
#include <string>
#include <vector>

#include "base/result.h"
#include "hardware/cluster.h"
#include "hardware/profile.h"

namespace trifold::calibrate {

// Steps as the layer test names them (moe_layer.h).
inline constexpr int kLayerSteps = 10;
inline constexpr const char* kLayerStepNames[kLayerSteps] = {
    "router",     "permute", "dispatch", "sort",    "fc1",
    "activation", "fc2",     "unsort",   "combine", "unpermute"};

// A line of the layer test.
struct LayerCase {
  std::string model;  // catalogue name
  std::string pass;   // forward, backward, forward_then_backward, forward_over_backward
  int tokens = 0, ep = 1, hidden = 0, width = 0, experts = 0, top_k = 0;
  double rows = 0;  // token copies at this rank's experts
  bool graph = false, throttled = false;
  double us = 0, us_p10 = 0, us_p90 = 0, clock_mhz = 0;
  std::array<double, kLayerSteps> step_us{};  // 0: not measured
  bool overlapped() const { return pass == "forward_over_backward"; }
};
Result<std::vector<LayerCase>> read_layer_test(const std::string& path);
// What its first line says of the machine; empty fields where it says nothing.
Result<hardware::Provenance> layer_provenance(const std::string& path);

struct LayerPrediction {
  double closed_us = 0, simulated_us = 0;
  std::array<double, kLayerSteps> step_us{};
};
// `profile` must hold a benchmark's constants (FittedProfile::benchmark): bare kernels, no
// framework.
Result<LayerPrediction> predict_layer(const LayerCase& c, const hardware::Cluster& cluster,
                                      const hardware::Profile& profile,
                                      const std::string& data_dir);

struct LayerComparison {
  LayerCase measured;
  LayerPrediction predicted;
  double closed_error() const { return predicted.closed_us / measured.us - 1; }
  double simulated_error() const { return predicted.simulated_us / measured.us - 1; }
};
Result<std::vector<LayerComparison>> compare_layers(const std::string& path,
                                                    const hardware::Cluster& cluster,
                                                    const hardware::Profile& profile,
                                                    const std::string& data_dir);
std::string layer_table(const std::vector<LayerComparison>& comparisons);

}  // namespace trifold::calibrate

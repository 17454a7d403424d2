// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "calibrate/fit/csv.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/solve.h"

// Constants that a micro-benchmark saw directly; the rest keep their defaults until the observation
// records move them (marked `fitted` then, inside their ranges).
//
//   hbm_efficiency       geometric mean over permute, unpermute, SwiGLU, RMSNorm and Adam at 100 us
//   and
//                        more, data/h200x2/moe.csv, of the datasheet rate. Benchmarks stream large
//                        tensors; training's smaller ones get less, so the range still applies.
//   quantize_efficiency  1x128 E4M3, same file, 50 us and more.
//   kernel_gap_graph_s   a graph of 1000 empty kernels, same file. The gap in a stream there, 3.7
//   us, is
//                        the host's enqueue (3.6 us), so kernel_gap_s keeps its default.
//   host_link_efficiency pinned copies of 64 MiB and more (H200), Azure's nvbandwidth rows
//   elsewhere
//                        (data/hardware.json achieved.h2d_gbs).

namespace trifold::fit {

using hardware::Basis;

namespace {

void set(hardware::Profile& profile, const char* key, double value, const std::string& source) {
  hardware::Constant& c = profile.constants.at(key);
  c.value = std::clamp(round_significant(value, 3), c.low, c.high);
  c.basis = Basis::measured;
  c.source = source;
}

Result<void> measured_h200(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile) {
  TRIFOLD_ASSIGN(csv, Csv::read(data_dir + "/h200x2/moe.csv"));
  std::vector<double> stream, quantize, link;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string_view op = csv.text(i, "op"), var = csv.text(i, "var");
    const double us = csv.number(i, "us"), rate = csv.number(i, "rate") * 1e9;
    const bool memory =
        op == "permute" || op == "unpermute" || op == "swiglu" || op == "rmsnorm" || op == "adam";
    if (memory && us >= 100) stream.push_back(std::log(rate / gpu.hbm));
    if (op == "quant" && us >= 50) quantize.push_back(rate / gpu.hbm);
    if (op == "graph" && var == "device_us_per_graph" && csv.number(i, "d0") == 1000)
      set(profile, "kernel_gap_graph_s", us * 1e-6 / 1000, "data/h200x2/moe.csv, graph of 1000");
    if (op == "hostlink" && var != "bidir" && csv.number(i, "d0") >= 64 << 20)
      link.push_back(rate / gpu.host);
  }
  if (stream.empty() || quantize.empty() || link.empty())
    return input_error("missing memory, quantise or host link rows", data_dir + "/h200x2/moe.csv");
  double mean = 0;
  for (double v : stream) mean += v / static_cast<double>(stream.size());
  set(profile, "hbm_efficiency", std::exp(mean), "data/h200x2/moe.csv, 100 us and more");
  set(profile, "quantize_efficiency", quantile(quantize, 0.5), "data/h200x2/moe.csv quant");
  set(profile, "host_link_efficiency", quantile(link, 0.5), "data/h200x2/moe.csv hostlink");
  return {};
}

}  // namespace

Result<void> fit_constants(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile) {
  for (const hardware::ConstantSpec& spec : hardware::constant_specs())
    profile.constants[spec.key] = hardware::default_constant(spec);
  if (gpu.profile == "h200") return measured_h200(gpu, data_dir, profile);
  if (gpu.h2d > 0 && gpu.host > 0)
    set(profile, "host_link_efficiency", gpu.h2d / gpu.host, "data/hardware.json achieved h2d_gbs");
  return {};
}

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#pragma once

// One function per family of operations: public tables in, one part of a Profile out.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "calibrate/fit/gpu_facts.h"
#include "calibrate/fit/grid_fit.h"
#include "hardware/profile.h"

namespace trifold::fit {

// Axes of the surfaces, plain values.
std::array<std::vector<double>, 3> gemm_nodes();
std::array<std::vector<double>, 3> attention_nodes();

// The activation quantise inside a TRT-LLM low-precision linear.
struct QuantizeCost {
  double bytes = 3;         // an element, at 70 % of HBM
  double fixed_s = 1.5e-6;  // launches
  double seconds(double m, double k, double hbm_bytes_per_s) const;
};
Result<QuantizeCost> fit_per_tensor_quantize(const GpuFacts& h200, const std::string& data_dir);

// What fp32 accumulation into the gradient buffer costs, in HBM bytes a weight at the peak rate:
// the median of data/h200x2/gemm.csv, bf16_acc32 minus bf16 (fit_pass_ratios finds it again).
inline constexpr double kAccumulateBytes = 3.85;

// dgrad and wgrad read off the forward surface of the permuted shape.
struct PassRatios {
  double dgrad = 1, wgrad = 1;  // utilisation over the forward one of the same GEMM
  double accumulate_bytes = 0;  // HBM bytes a weight that fp32 accumulation costs, at peak rate
  double error = 0.08;
};

Result<void> fit_gemm(const GpuFacts& gpu, const std::string& data_dir,
                      const QuantizeCost& per_tensor, const PassRatios& ratios,
                      hardware::Profile& profile, std::vector<ErrorReport>& reports);
// From data/h200x2/gemm.csv against the H200 forward surface.
Result<PassRatios> fit_pass_ratios(const GpuFacts& h200, const hardware::Grid3& bf16_forward,
                                   const std::string& data_dir);

// Grouped GEMM as the dense surface at `rows` times the tokens per expert, times `efficiency`, with
// a weight-read floor.
struct GroupedModel {
  double rows = 1, efficiency = 1, weight_efficiency = 0.85;
  double error = 0.1;
  int samples = 0;
};
Result<GroupedModel> fit_grouped_measured(const GpuFacts& h200, const hardware::Profile& profile,
                                          const std::string& data_dir,
                                          std::vector<ErrorReport>& reports);
// The fused MoE operator of moe_compact.csv, predicted with `model`: a check, and the error bar.
Result<ErrorReport> check_grouped_fused(const GpuFacts& gpu, const hardware::Profile& profile,
                                        const GroupedModel& model, const std::string& data_dir);
void tabulate_grouped(const GpuFacts& gpu, const GroupedModel& model, hardware::Basis basis,
                      hardware::Profile& profile);

Result<void> fit_attention(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_collectives(const GpuFacts& gpu, const std::string& data_dir,
                             hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_dispatchers(const GpuFacts& gpu, const std::string& data_dir,
                             hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_constants(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile);

}  // namespace trifold::fit

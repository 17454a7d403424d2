// SPDX-License-Identifier: Apache-2.0
#pragma once

// One function per family of operations: public tables in, one part of a Profile out.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "calibrate/fit/csv.h"
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

// Experts' GEMMs by one back end ("loop4s") of data/h200x2/gemm.csv, 4 experts and more.
struct GroupedRow {
  hardware::Dtype dtype = hardware::Dtype::bf16;
  double groups = 0, rows = 0, n = 0, k = 0;  // rows of each group
  double seconds = 0;
};
std::vector<GroupedRow> grouped_rows(const Csv& csv, const std::string& back_end);

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
void tabulate_grouped(const GpuFacts& gpu, const GroupedModel& model, hardware::Basis basis,
                      hardware::Profile& profile);

// A rank's share of a fused MoE operator: one row of moe_compact.csv under balanced routing.
struct FusedMoe {
  hardware::Dtype dtype = hardware::Dtype::bf16;
  double groups = 0, rows = 0;  // local experts, rows of each
  double tokens = 0;            // of all ranks of the group: every rank holds them all
  double hidden = 0, width = 0, experts = 0;
  double seconds = 0;
  std::string text() const;
  // HBM traffic of what is not a GEMM: rows permuted and quantised, SwiGLU, outputs summed.
  double row_bytes() const;
};
// Of one GPU (GpuFacts::gemm), with 16 rows an expert and more.
Result<std::vector<FusedMoe>> read_fused_moe(const std::string& gpu, const std::string& data_dir);

// Grouped GEMMs that are not on four streams (Profile::grouped_launch); `profile` has its dense
// surfaces already. cuBLAS' from any rows, or from data/h200x2/gemm.csv; DeepGEMM's from its
// README; CUTLASS' from moe_compact.csv, nothing for a GPU that has no rows there.
struct GpuRates {
  double peak = 0, hbm = 0;  // FLOP/s of the format, B/s
};
ErrorReport fit_launch_rows(hardware::GroupedKernel kernel, hardware::Dtype dtype,
                            const std::vector<GroupedRow>& rows, const GpuRates& gpu,
                            const std::string& source, hardware::Profile& profile);
Result<void> fit_cublas_launches(const GpuFacts& h200, const std::string& data_dir,
                                 hardware::Profile& profile, std::vector<ErrorReport>& reports);
void fit_deepgemm(const GpuFacts& h800, hardware::Profile& profile,
                  std::vector<ErrorReport>& reports);
Result<void> fit_fused_moe(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_attention(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_collectives(const GpuFacts& gpu, const std::string& data_dir,
                             hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_dispatchers(const GpuFacts& gpu, const std::string& data_dir,
                             hardware::Profile& profile, std::vector<ErrorReport>& reports);

Result<void> fit_constants(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile);

}  // namespace trifold::fit

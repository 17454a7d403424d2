// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <set>
#include <tuple>

#include "calibrate/fit/csv.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/solve.h"
#include "hardware/gemm_shape.h"

// Grouped GEMMs that are not on four streams, hardware::GroupedLaunch on the GPU's dense surface:
//
//   loop      cuBLAS, an expert after another: efficiency and weight rate, data/h200x2/gemm.csv
//   strided   cuBLAS' strided batch: the same
//   batched   cublasGemmGroupedBatchedEx: 250-320 TFLOP/s whatever the shape, so a ceiling and a
//             weight rate; same file
//   deepgemm  FP8 blockwise: efficiency and weight rate from its README (H800)
//   cutlass   TensorRT-LLM's fused MoE operator, moe_compact.csv under balanced routing: two GEMMs
//             with tiles of 128 rows, and passes over rows. Every rank holds every token of its
//             group, so the output of all of them is written, whatever share of the experts is
//             local. Efficiency, weight rate, row rate and what an operator starts with are fitted
//             for a format.
//
// Known error: cuBLAS 5 to 7 % mean; fused 4 to 6 %, with a model left out below 10 %.

namespace trifold::fit {

using hardware::Basis;
using hardware::Dtype;
using hardware::GemmPass;
using hardware::GroupedKernel;
using hardware::GroupedLaunch;

namespace {

GpuRates rates_of(const GpuFacts& gpu, Dtype dtype) { return {gpu.peak(dtype), gpu.hbm}; }

double gemm_seconds(const GpuRates& gpu, const hardware::Profile& profile, GroupedKernel kernel,
                    Dtype dtype, double groups, double rows, double n, double k) {
  const hardware::GemmRate rate =
      profile.grouped_rate(kernel, dtype, GemmPass::forward, groups, rows, n, k);
  const double compute =
      2 * groups * rows * n * k / (gpu.peak * rate.utilisation.value) * hardware::tile_waste(n);
  const double weights =
      groups * n * k * hardware::element_bytes(dtype) / (rate.weight_rate * gpu.hbm);
  return std::max(compute, weights) + rate.launch_s;
}

GroupedLaunch& launch_in(hardware::Profile& profile, GroupedKernel kernel, Dtype dtype) {
  return profile.grouped_launch[static_cast<std::size_t>(kernel)][static_cast<std::size_t>(dtype)];
}

double fused_moe_seconds(const GpuFacts& gpu, const hardware::Profile& profile, const FusedMoe& f) {
  const auto gemm = [&](double n, double k) {
    return gemm_seconds(rates_of(gpu, f.dtype), profile, GroupedKernel::cutlass, f.dtype, f.groups,
                        f.rows, n, k);
  };
  const GroupedLaunch& launch =
      profile.grouped_launch[static_cast<std::size_t>(GroupedKernel::cutlass)]
                            [static_cast<std::size_t>(f.dtype)];
  return gemm(2 * f.width, f.hidden) + gemm(f.hidden, f.width) +
         f.row_bytes() / (launch.row_rate * gpu.hbm);
}

// What is searched: how parameters make a launch, where, from where, and in which folds the error
// is judged.
struct Search {
  GroupedKernel kernel;
  Dtype dtype;
  std::function<GroupedLaunch(const std::vector<double>&)> launch;
  std::vector<double> start;
  std::vector<Box> box;
  std::size_t rows = 0;
  std::function<double(const hardware::Profile&, std::size_t)> log_error;  // of a row
  std::function<double(std::size_t)> fold;
};

// Fits the launch into `profile`; signed errors of every row when its fold is left out.
std::vector<double> fit_launch(const Search& s, hardware::Profile& profile) {
  constexpr double kHuber = 0.1;
  const auto put = [&](const std::vector<double>& p) {
    launch_in(profile, s.kernel, s.dtype) = s.launch(p);
  };
  const auto fit_without = [&](const double* fold) {
    const auto loss = [&](const std::vector<double>& p) {
      put(p);
      double sum = 0;
      for (std::size_t i = 0; i < s.rows; ++i)
        if (fold == nullptr || s.fold(i) != *fold) sum += huber(s.log_error(profile, i), kHuber);
      return sum;
    };
    put(box_search(loss, s.start, s.box));
  };
  std::set<double> folds;
  for (std::size_t i = 0; i < s.rows; ++i) folds.insert(s.fold(i));
  std::vector<double> errors;
  for (const double fold : folds) {
    fit_without(&fold);
    for (std::size_t i = 0; i < s.rows; ++i)
      if (s.fold(i) == fold) errors.push_back(std::expm1(s.log_error(profile, i)));
  }
  fit_without(nullptr);
  return errors;
}

}  // namespace

std::vector<GroupedRow> grouped_rows(const Csv& csv, const std::string& back_end) {
  std::vector<GroupedRow> rows;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string_view op = csv.text(i, "op"), variant = csv.text(i, "var");
    if (op != "grouped_fc1" && op != "grouped_fc2") continue;
    const bool bf16 = variant == "bf16_" + back_end;
    if (!bf16 && variant != "fp8_" + back_end) continue;
    const double groups = csv.number(i, "d0");
    if (groups < 4) continue;
    rows.push_back({bf16 ? Dtype::bf16 : Dtype::fp8_tensor, groups, csv.number(i, "d1") / groups,
                    csv.number(i, "d2"), csv.number(i, "d3"), csv.number(i, "us") * 1e-6});
  }
  return rows;
}

ErrorReport fit_launch_rows(GroupedKernel kernel, Dtype dtype, const std::vector<GroupedRow>& rows,
                            const GpuRates& gpu, const std::string& source,
                            hardware::Profile& profile) {
  const bool flat = kernel == GroupedKernel::batched;
  Search search{kernel, dtype, {}, {0.9, 0.8}, {{0.3, 1.2}, {0.4, 1}}, rows.size(), {}, {}};
  if (flat) search.start[0] = 0.3, search.box[0] = {0.1, 0.9};
  search.launch = [&](const std::vector<double>& p) {
    GroupedLaunch launch;
    launch.efficiency = flat ? 1 : p[0];
    launch.ceiling = flat ? p[0] : 1;
    launch.weight_rate = p[1];
    launch.source = source;
    return launch;
  };
  search.log_error = [&](const hardware::Profile& p, std::size_t i) {
    const GroupedRow& r = rows[i];
    return std::log(gemm_seconds(gpu, p, kernel, dtype, r.groups, r.rows, r.n, r.k) / r.seconds);
  };
  search.fold = [&](std::size_t i) { return rows[i].groups; };
  ErrorReport report = report_of(
      fmt::format("grouped {} {} (leave one group count out)", token_name(hardware::kDtypes, dtype),
                  token_name(hardware::kGroupedKernels, kernel)),
      fit_launch(search, profile));
  report.gated = false;  // two parameters for every shape
  GroupedLaunch& launch = launch_in(profile, kernel, dtype);
  launch.basis = Basis::interpolated;
  launch.error = report.sigma();
  return report;
}

Result<void> fit_cublas_launches(const GpuFacts& h200, const std::string& data_dir,
                                 hardware::Profile& profile, std::vector<ErrorReport>& reports) {
  const std::string path = data_dir + "/h200x2/gemm.csv";
  TRIFOLD_ASSIGN(csv, Csv::read(path));
  constexpr std::pair<GroupedKernel, const char*> kBackEnds[] = {
      {GroupedKernel::loop, "loop1"},
      {GroupedKernel::strided, "strided"},
      {GroupedKernel::batched, "grouped"}};
  for (const auto& [kernel, back_end] : kBackEnds) {
    const std::vector<GroupedRow> rows = grouped_rows(csv, back_end);
    if (rows.empty()) return input_error("no grouped GEMMs of " + std::string(back_end), path);
    reports.push_back(fit_launch_rows(kernel, Dtype::bf16, rows, rates_of(h200, Dtype::bf16),
                                      "data/h200x2/gemm.csv, on the dense surface", profile));
  }
  return {};
}

void fit_deepgemm(const GpuFacts& h800, hardware::Profile& profile,
                  std::vector<ErrorReport>& reports) {
  struct Published {
    double groups, rows, fc1, fc2;  // TFLOP/s at 4096 x 7168 and 7168 x 2048
  };
  constexpr Published kRows[] = {{4, 8192, 1297, 1099},
                                 {8, 4096, 1288, 1093},
                                 {1, 1024, 1233, 925},
                                 {2, 512, 1040, 916},
                                 {4, 256, 932, 815}};
  std::vector<GroupedRow> rows;
  for (const Published& p : kRows)
    for (const auto& [n, k, tflops] : {std::tuple(4096.0, 7168.0, p.fc1), {7168.0, 2048.0, p.fc2}})
      rows.push_back({Dtype::fp8_block, p.groups, p.rows, n, k,
                      2 * p.groups * p.rows * n * k / (tflops * 1e12)});
  reports.push_back(fit_launch_rows(GroupedKernel::deepgemm, Dtype::fp8_block, rows,
                                    rates_of(h800, Dtype::fp8_block),
                                    "DeepGEMM's README at its first release, H800", profile));
}

std::string FusedMoe::text() const {
  return fmt::format("{} of {} experts, {:.0f} rows each, {} x {}", groups, experts, rows, hidden,
                     width);
}

// Bytes a row and element, 2 in bf16: gathered rows and outputs of experts read once, what stands
// between written and read. Per-tensor FP8 casts the tokens before it permutes them and SwiGLU
// writes a byte; block FP8 permutes in bf16 and casts both inputs in passes of their own.
double FusedMoe::row_bytes() const {
  const double all = groups * rows;
  switch (dtype) {
    case Dtype::fp8_tensor:
      return all * (4 * hidden + 5 * width) + tokens * 5 * hidden;
    case Dtype::fp8_block:
      return all * (9 * hidden + 9 * width) + tokens * 2 * hidden;
    default:
      return all * (6 * hidden + 6 * width) + tokens * 2 * hidden;
  }
}

Result<std::vector<FusedMoe>> read_fused_moe(const std::string& gpu, const std::string& data_dir) {
  constexpr double kFewestRows = 16;
  TRIFOLD_ASSIGN(csv, Csv::read(data_dir + "/third_party_measurements/moe_compact.csv"));
  std::vector<FusedMoe> out;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    if (csv.text(i, "gpu") != gpu || csv.text(i, "dist") != "balanced") continue;
    const std::string_view name = csv.text(i, "dtype");
    const double ep = csv.number(i, "ep");
    FusedMoe f;
    f.dtype = name == "bfloat16" ? Dtype::bf16
              : name == "fp8"    ? Dtype::fp8_tensor
                                 : Dtype::fp8_block;
    f.experts = csv.number(i, "experts");
    f.groups = f.experts / ep;
    f.tokens = csv.number(i, "tokens");
    f.rows = f.tokens * csv.number(i, "topk") / f.experts;
    f.hidden = csv.number(i, "hidden");
    f.width = csv.number(i, "inter") / csv.number(i, "tp");
    f.seconds = csv.number(i, "us") * 1e-6;
    if (f.rows >= kFewestRows && f.groups >= 2) out.push_back(f);
  }
  return out;
}

Result<void> fit_fused_moe(const GpuFacts& gpu, const std::string& data_dir,
                           hardware::Profile& profile, std::vector<ErrorReport>& reports) {
  constexpr std::size_t kFewest = 20;
  constexpr int kTileRows = 128;
  TRIFOLD_ASSIGN(all, read_fused_moe(gpu.gemm, data_dir));
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp8_tensor, Dtype::fp8_block}) {
    std::vector<FusedMoe> rows;
    for (const FusedMoe& f : all)
      if (f.dtype == dtype) rows.push_back(f);
    const bool dense = !profile.gemm[static_cast<std::size_t>(dtype)][0].empty();
    if (rows.size() < kFewest || !dense) continue;
    Search search{GroupedKernel::cutlass,
                  dtype,
                  {},
                  {1, 0.8, 15e-6, 0.5},
                  {{0.4, 1.6}, {0.4, 1}, {0, 50e-6}, {0.25, 1}},
                  rows.size(),
                  {},
                  {}};
    search.launch = [&](const std::vector<double>& p) {
      GroupedLaunch launch;
      launch.efficiency = p[0];
      launch.weight_rate = p[1];
      launch.launch_s = p[2];
      launch.row_rate = p[3];
      launch.tile_rows = kTileRows;
      launch.source = "fused MoE operator, moe_compact.csv, on the dense surface";
      return launch;
    };
    search.log_error = [&](const hardware::Profile& p, std::size_t i) {
      return std::log(fused_moe_seconds(gpu, p, rows[i]) / rows[i].seconds);
    };
    search.fold = [&](std::size_t i) { return rows[i].experts; };
    const ErrorReport report = report_of(
        fmt::format("fused MoE {} (leave one model out)", token_name(hardware::kDtypes, dtype)),
        fit_launch(search, profile));
    GroupedLaunch& launch = launch_in(profile, GroupedKernel::cutlass, dtype);
    launch.basis = Basis::interpolated;
    launch.error = report.sigma();
    reports.push_back(report);
  }
  return {};
}

}  // namespace trifold::fit

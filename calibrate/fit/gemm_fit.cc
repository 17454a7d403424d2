// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "calibrate/fit/csv.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/solve.h"

// Dense GEMM.
//
// Utilisation is 2 m n k / (peak t): of the dense datasheet peak of the input format, no byte term;
// the reader divides FLOPs by it. Source: gemm_compact.csv (aiconfigurator @095f58a), 64 rows and
// more; below that the time is a floor, not a slope, and training does not go there.
//
// Low-precision rows time a TRT-LLM linear that quantises its activation first. That is taken off:
// m k elements x 3 B / (0.7 HBM) + 1.5 us (shared/reference/modelling.md section 3), never below
// the time at 95 % of peak.
//
// dgrad and wgrad of y[m,n] = x[m,k] w[n,k] are GEMMs of the permuted shapes (m,k,n) and (n,k,m):
//   u_dgrad(m,n,k) = r_d u(m,k,n)
//   u_wgrad(m,n,k) = r_w u(n,k,m)
// without the gradient buffer: src/cost adds its traffic. Measured, fp32 accumulation (8 B a
// weight) costs kAccumulateBytes of HBM time at the peak rate: half hides under the GEMM. r_d, r_w
// are medians over data/h200x2/gemm.csv, in per-tensor FP8 on Hopper over our own run, which has
// those passes (tests/observations/h200x2-2026-11-30, 2048 to 8192 each way); on other GPUs they
// are `scaled`.
//
// Known error: leave one point out about 4 % median; NVFP4 tables are not cuBLAS training kernels.

namespace trifold::fit {

using hardware::Basis;
using hardware::Dtype;
using hardware::GemmPass;
using hardware::Grid3;

namespace {

constexpr double kMinRows = 64;
constexpr QuantizeCost kOnePass{3, 1.5e-6};
constexpr double kHopperFp8Dgrad = 0.934, kHopperFp8Wgrad = 0.932;
constexpr double kCeiling = 0.95;  // of the datasheet peak: no published GEMM passes it

struct Series {
  Dtype dtype;
  std::vector<std::string> names;  // columns of the csv; several: the best of them
};

std::vector<Series> series_of(const GpuFacts& gpu) {
  if (gpu.fp8 == 0) return {{Dtype::bf16, {"bfloat16"}}};
  if (!gpu.blackwell)
    return {{Dtype::bf16, {"bfloat16"}},
            {Dtype::fp8_tensor, {"fp8"}},
            {Dtype::fp8_block, {"fp8_block"}}};
  return {{Dtype::bf16, {"bfloat16"}},
          {Dtype::fp8_tensor, {"fp8", "fp8_block"}},
          {Dtype::fp8_block, {"fp8_block"}},
          {Dtype::mxfp8, {"fp8_block"}},
          {Dtype::nvfp4, {"nvfp4"}}};
}

struct Shape {
  double m, n, k;
  bool operator<(const Shape& o) const { return std::tie(m, n, k) < std::tie(o.m, o.n, o.k); }
};

// Best net seconds by shape.
std::map<Shape, double> net_seconds(const Csv& csv, const GpuFacts& gpu, const Series& series,
                                    const QuantizeCost& per_tensor) {
  std::map<Shape, double> best;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    if (csv.text(i, "gpu") != gpu.gemm) continue;
    const std::string_view name = csv.text(i, "dtype");
    if (std::find(series.names.begin(), series.names.end(), name) == series.names.end()) continue;
    const Shape s{csv.number(i, "m"), csv.number(i, "n"), csv.number(i, "k")};
    if (s.m < kMinRows) continue;
    double t = csv.number(i, "us") * 1e-6;
    const double floor = 2 * s.m * s.n * s.k / (gpu.peak(series.dtype) * kCeiling);
    if (series.dtype != Dtype::bf16)
      t = std::max(t - (name == "fp8" ? per_tensor : kOnePass).seconds(s.m, s.k, gpu.hbm), floor);
    if (!(t > 0)) continue;
    const auto it = best.find(s);
    if (it == best.end() || t < it->second) best[s] = t;
  }
  return best;
}

// The rows measured on H200 itself, of one format.
std::map<Shape, double> own_seconds(const Csv& csv, Dtype dtype) {
  const std::string_view name = dtype == Dtype::bf16         ? "bf16"
                                : dtype == Dtype::fp8_tensor ? "fp8_tensor"
                                : dtype == Dtype::fp8_block  ? "fp8_blk128w_vec128x"
                                                             : "";
  std::map<Shape, double> rows;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string_view op = csv.text(i, "op");
    if ((op != "fwd" && op != "wave" && op != "ksweep") || csv.text(i, "var") != name) continue;
    const Shape s{csv.number(i, "d0"), csv.number(i, "d1"), csv.number(i, "d2")};
    if (s.m >= kMinRows && csv.text(i, "ok") != "BAD") rows[s] = csv.number(i, "us") * 1e-6;
  }
  return rows;
}

std::vector<Sample> samples_of(const std::map<Shape, double>& seconds, double peak) {
  std::vector<Sample> samples;
  std::map<std::pair<double, double>, int> curves;
  for (const auto& [s, t] : seconds) {
    const int curve =
        curves.emplace(std::make_pair(s.n, s.k), static_cast<int>(curves.size())).first->second;
    samples.push_back({s.m, s.n, s.k, 2 * s.m * s.n * s.k / (peak * t), 1, curve});
  }
  return samples;
}

bool node_supported(const Grid3& grid, double x, double y, double z) {
  return grid.at(x, y, z).basis <= Basis::interpolated;
}

// The tables reduce over 512 and more; a weight gradient reduces over tokens. Below, the saturating
// form with a half-point of 280: 0.49 and 0.74 of the rate at 512 for 128 and 256, measured 0.48
// and 0.70 (data/h200x2/gemm.csv ksweep, 4096 x 4096).
constexpr double kShortest = 512;
double short_reduction(double k) {
  constexpr double kHalf = 280;
  if (k >= kShortest) return 1;
  return k / (k + kHalf) / (kShortest / (kShortest + kHalf));
}

void derive_passes(const PassRatios& ratios, Basis basis,
                   std::array<Grid3, hardware::kGemmPasses>& passes) {
  const Grid3& forward = passes[static_cast<std::size_t>(GemmPass::forward)];
  const double error = std::hypot(forward.error, ratios.error);
  passes[static_cast<std::size_t>(
      GemmPass::dgrad)] = tabulate(gemm_nodes(), error, basis, [&](double m, double n, double k) {
    return NodeValue{ratios.dgrad * forward.at(m, k, n).value, node_supported(forward, m, k, n)};
  });
  passes[static_cast<std::size_t>(GemmPass::wgrad)] =
      tabulate(gemm_nodes(), error, basis, [&](double m, double n, double k) {
        const double u = ratios.wgrad * short_reduction(m) * forward.at(n, k, m).value;
        return NodeValue{u, m >= kShortest && node_supported(forward, n, k, m)};
      });
}

}  // namespace

std::array<std::vector<double>, 3> gemm_nodes() {
  return {{{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
           {512, 1024, 2048, 4096, 8192, 16384, 65536},
           {512, 1024, 2048, 4096, 8192, 16384}}};
}

double QuantizeCost::seconds(double m, double k, double hbm_bytes_per_s) const {
  constexpr double kEfficiency = 0.7;
  return m * k * bytes / (kEfficiency * hbm_bytes_per_s) + fixed_s;
}

Result<QuantizeCost> fit_per_tensor_quantize(const GpuFacts& h200, const std::string& data_dir) {
  TRIFOLD_ASSIGN(table, Csv::read(data_dir + "/third_party_measurements/gemm_compact.csv"));
  TRIFOLD_ASSIGN(own, Csv::read(data_dir + "/h200x2/gemm.csv"));
  const std::map<Shape, double> alone = own_seconds(own, Dtype::fp8_tensor);
  std::vector<std::array<double, 3>> rows;  // elements / rate, 1, difference; over the table's time
  for (std::size_t i = 0; i < table.rows(); ++i) {
    if (table.text(i, "gpu") != h200.gemm || table.text(i, "dtype") != "fp8") continue;
    const Shape s{table.number(i, "m"), table.number(i, "n"), table.number(i, "k")};
    const auto it = alone.find(s);
    if (it == alone.end()) continue;
    const double t = table.number(i, "us") * 1e-6;
    rows.push_back(
        {QuantizeCost{1, 0}.seconds(s.m, s.k, h200.hbm) / t, 1e-6 / t, (t - it->second) / t});
  }
  if (rows.size() < 4) return input_error("too few common fp8 shapes", data_dir);
  Eigen::MatrixXd a(static_cast<int>(rows.size()), 2);
  Eigen::VectorXd b(static_cast<int>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const int at = static_cast<int>(i);
    a(at, 0) = rows[i][0];
    a(at, 1) = rows[i][1];
    b[at] = rows[i][2];
  }
  const Eigen::VectorXd x = nnls(a, b);
  return QuantizeCost{x[0], x[1] * 1e-6};
}

Result<void> fit_gemm(const GpuFacts& gpu, const std::string& data_dir,
                      const QuantizeCost& per_tensor, const PassRatios& ratios,
                      hardware::Profile& profile, std::vector<ErrorReport>& reports) {
  TRIFOLD_ASSIGN(own, Csv::read(data_dir + "/h200x2/gemm.csv"));
  TRIFOLD_ASSIGN(csv, Csv::read(data_dir + "/third_party_measurements/gemm_compact.csv"));
  const Basis basis = gpu.scaled_from.empty() ? Basis::interpolated : Basis::scaled;
  for (const Series& series : series_of(gpu)) {
    std::vector<Sample> samples =
        samples_of(net_seconds(csv, gpu, series, per_tensor), gpu.peak(series.dtype));
    if (gpu.profile == "h200")
      for (Sample s : samples_of(own_seconds(own, series.dtype), gpu.peak(series.dtype))) {
        s.weight = 2;
        s.curve += 1000;
        samples.push_back(s);
      }
    if (samples.empty())
      return input_error("no rows for " + gpu.gemm, "third_party_measurements/gemm_compact.csv");
    const SaturatingPrior prior = fit_prior(samples, {0.8, {175, 175, 280}});
    GridFit fit =
        fit_grid("gemm " + std::string(token_name(hardware::kDtypes, series.dtype)) + " forward",
                 samples, gemm_nodes(), prior, basis);
    reports.push_back(fit.report);
    auto& passes = profile.gemm[static_cast<std::size_t>(series.dtype)];
    passes[static_cast<std::size_t>(GemmPass::forward)] = std::move(fit.grid);
    PassRatios backward = ratios;
    if (!gpu.blackwell && series.dtype == Dtype::fp8_tensor)
      backward.dgrad = kHopperFp8Dgrad, backward.wgrad = kHopperFp8Wgrad;
    derive_passes(backward, Basis::scaled, passes);
  }
  return {};
}

Result<PassRatios> fit_pass_ratios(const GpuFacts& h200, const Grid3& forward,
                                   const std::string& data_dir) {
  TRIFOLD_ASSIGN(csv, Csv::read(data_dir + "/h200x2/gemm.csv"));
  PassRatios ratios;
  std::vector<double> dgrad, wgrad, bytes;
  std::map<Shape, double> plain;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    const std::string_view op = csv.text(i, "op"), var = csv.text(i, "var");
    // d0..d2 are the dimensions of the GEMM that runs; its reduction is last.
    const Shape s{csv.number(i, "d0"), csv.number(i, "d1"), csv.number(i, "d2")};
    const double t = csv.number(i, "us") * 1e-6;
    const double u = 2 * s.m * s.n * s.k / (h200.bf16 * t);
    if (op == "dgrad" && var == "bf16") dgrad.push_back(u / forward.at(s.m, s.n, s.k).value);
    if (op == "wgrad" && var == "bf16") {
      wgrad.push_back(u / forward.at(s.m, s.n, s.k).value);
      plain[s] = t;
    }
    // Plain wgrad writes 2 B a weight; fp32 accumulation reads and writes 4 B each.
    if (op == "wgrad" && var == "bf16_acc32" && plain.count(s) > 0)
      bytes.push_back((t - plain[s]) * h200.hbm / (s.m * s.n));
  }
  if (dgrad.empty() || wgrad.empty() || bytes.empty())
    return input_error("no dgrad, wgrad or bf16_acc32 rows", data_dir + "/h200x2/gemm.csv");
  ratios.dgrad = quantile(dgrad, 0.5);
  ratios.wgrad = quantile(wgrad, 0.5);
  ratios.accumulate_bytes = std::max(0.0, quantile(bytes, 0.5));
  std::vector<double> spread;
  for (double r : dgrad) spread.push_back(std::abs(r / ratios.dgrad - 1));
  for (double r : wgrad) spread.push_back(std::abs(r / ratios.wgrad - 1));
  ratios.error = std::max(0.03, quantile(spread, 0.9) / 1.645);
  return ratios;
}

}  // namespace trifold::fit

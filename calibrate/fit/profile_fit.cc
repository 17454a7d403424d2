// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/profile_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/table.h"
#include "calibrate/fit/family_fits.h"

namespace trifold::fit {

using hardware::Basis;
using hardware::Profile;

namespace {

constexpr const char* kSource =
    "ai-dynamo/aiconfigurator @095f58a measured tables; 2x H200 measurements; arXiv:2603.07685; "
    "DeepEP and HybridEP READMEs; fitted by trifold_fit";

// dgrad, wgrad and grouping were measured on H200 alone; its ratios serve every GPU.
struct Shared {
  QuantizeCost per_tensor;
  PassRatios ratios;
  GroupedModel grouped;
  decltype(Profile::grouped_launch) launches;
  std::vector<ErrorReport> reports;
};

Result<Shared> fit_shared(const GpuFacts& h200, const GpuFacts& h800, const std::string& data_dir) {
  Shared shared;
  Profile scratch;
  std::vector<ErrorReport> ignored;
  TRIFOLD_ASSIGN(per_tensor, fit_per_tensor_quantize(h200, data_dir));
  shared.per_tensor = per_tensor;
  TRIFOLD_TRY(fit_gemm(h200, data_dir, per_tensor, {}, scratch, ignored));
  const auto& bf16 = scratch.gemm[static_cast<std::size_t>(hardware::Dtype::bf16)];
  TRIFOLD_ASSIGN(ratios, fit_pass_ratios(h200, bf16[0], data_dir));
  shared.ratios = ratios;
  TRIFOLD_ASSIGN(grouped, fit_grouped_measured(h200, scratch, data_dir, shared.reports));
  shared.grouped = grouped;
  TRIFOLD_TRY(fit_cublas_launches(h200, data_dir, scratch, shared.reports));
  TRIFOLD_TRY(fit_fused_moe(h200, data_dir, scratch, ignored));
  Profile of_h800;
  TRIFOLD_TRY(fit_gemm(h800, data_dir, per_tensor, ratios, of_h800, ignored));
  fit_deepgemm(h800, of_h800, shared.reports);
  constexpr auto kDeepGemm = static_cast<std::size_t>(hardware::GroupedKernel::deepgemm);
  shared.launches = scratch.grouped_launch;
  shared.launches[kDeepGemm] = of_h800.grouped_launch[kDeepGemm];
  return shared;
}

// The GPU's own fused operator where it was measured, else the H200's; cuBLAS' from the H200,
// DeepGEMM's from the H800.
Result<void> put_launches(const GpuFacts& gpu, const Shared& shared, const std::string& data_dir,
                          FittedProfile& out) {
  constexpr double kOtherGpu = 0.1;
  out.profile.grouped_launch = shared.launches;
  for (const auto& kernel : hardware::kGroupedKernels) {
    const bool own =
        gpu.profile == (kernel.value == hardware::GroupedKernel::deepgemm ? "h800" : "h200");
    if (own) continue;
    for (hardware::GroupedLaunch& launch :
         out.profile.grouped_launch[static_cast<std::size_t>(kernel.value)])
      launch.basis = Basis::scaled, launch.error = std::hypot(launch.error, kOtherGpu);
  }
  return fit_fused_moe(gpu, data_dir, out.profile, out.reports);
}

// The few that no fit found, over all families.
std::string worst_points(const std::vector<ErrorReport>& reports) {
  constexpr std::size_t kShown = 5;
  std::vector<std::pair<const ErrorReport*, Outlier>> all;
  for (const ErrorReport& r : reports)
    for (const Outlier& o : r.outliers) all.emplace_back(&r, o);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::abs(a.second.error) > std::abs(b.second.error);
  });
  all.resize(std::min(all.size(), kShown));
  std::string text;
  for (const auto& [report, o] : all)
    text += fmt::format("{}{} at {:.0f} x {:.0f} x {:.0f} {:+.0f} %", text.empty() ? "" : "; ",
                        report->family, o.x, o.y, o.z, 100 * o.error);
  return text.empty() ? "" : "furthest off when left out: " + text + "\n";
}

}  // namespace

std::vector<std::string> public_profile_names() {
  return {"h100", "h800", "h200", "b200", "b300", "gb200", "gb300", "a100"};
}

Result<FittedProfile> fit_public(const std::string& name, const std::string& data_dir) {
  TRIFOLD_ASSIGN(all, read_gpu_facts(data_dir));
  const GpuFacts* gpu = find_gpu(all, name);
  if (gpu == nullptr) {
    std::vector<std::string_view> names;
    for (const GpuFacts& g : all) names.push_back(g.profile);
    return input_error("no public tables for '" + name + "'", {}, suggest(name, names));
  }
  TRIFOLD_ASSIGN(shared, fit_shared(*find_gpu(all, "h200"), *find_gpu(all, "h800"), data_dir));

  FittedProfile out;
  Profile& profile = out.profile;
  profile.name = name;
  profile.provenance.gpu = gpu->device;
  profile.provenance.nccl = name == "a100" ? "2.27.3" : "2.29.2";
  profile.provenance.source = kSource;
  if (!gpu->scaled_from.empty())
    profile.provenance.source += "; GEMM and collectives scaled from " + gpu->scaled_from;
  TRIFOLD_TRY(fit_constants(*gpu, data_dir, profile));
  TRIFOLD_TRY(fit_gemm(*gpu, data_dir, shared.per_tensor, shared.ratios, profile, out.reports));
  const bool own_rows = name == "h200";
  tabulate_grouped(*gpu, shared.grouped, own_rows ? Basis::interpolated : Basis::scaled, profile);
  if (own_rows) out.reports.insert(out.reports.end(), shared.reports.begin(), shared.reports.end());
  TRIFOLD_TRY(put_launches(*gpu, shared, data_dir, out));
  TRIFOLD_TRY(fit_attention(*gpu, data_dir, profile, out.reports));
  TRIFOLD_TRY(fit_collectives(*gpu, data_dir, profile, out.reports));
  TRIFOLD_TRY(fit_dispatchers(*gpu, data_dir, profile, out.reports));
  return out;
}

std::string error_table(const std::vector<ErrorReport>& reports) {
  Table table({"family", "points", "curves", "fit med", "LOO med", "LOO p90", "LOO worst", "bias",
               "curve med", "curve p90", "largest med", "largest p90", "noise"});
  const auto percent = [](double v) {
    return v == 0 ? std::string("-") : fmt::format("{:.1f}%", 100 * v);
  };
  for (const ErrorReport& r : reports)
    table.add({r.family, fmt::format("{}", r.samples), fmt::format("{}", r.curves),
               percent(r.fit_median), percent(r.point_median), percent(r.point_p90),
               percent(r.worst), percent(r.bias), percent(r.curve_median), percent(r.curve_p90),
               percent(r.holdout_median), percent(r.holdout_p90), percent(r.noise)});
  return table.text() + worst_points(reports);
}

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "calibrate/fit/csv.h"
#include "calibrate/fit/curve_fit.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/solve.h"

// Collectives of one NVLink domain.
//
// Source: nccl-tests tables of aiconfigurator, half precision, the newest NCCL per GPU (2.29.2;
// A100 2.27.3); H200 send/recv from data/h200x2/nccl.csv (NCCL 2.28.3, one direction).
// `message_size` counts elements; nccl-tests' size is twice that in bytes.
//
// NVL72 beyond the 4 ranks of those tables: all-to-all at 8, 16, 32, 64 ranks keeps the shape of
// the 4-rank curve and is moved to one measured point each, arXiv:2603.07685 Table 7 (4096 tokens
// of 7168 bf16, top 8: S = 8 x 4096 x 7168 x 2 B, mean of dispatch and combine). Latency grows as
// the reader's step model, 25 + n - 1 hops. `scaled`. GB300 takes GB200's points times the ratio of
// the 4-rank curves at that size.
//
// B200: two machines are published, aiconfigurator's and SimuMax's (its system file: share of
// 900 GB/s on the whole message, latency a hop and fixed). They differ by up to 1.4 at 8 ranks and
// 64 MiB; the curve is their geometric mean, the error half their ratio.
//
// H800 is an H100 with 8 of 18 NVLinks: transfer time x 18/8, latency kept; `scaled`.

namespace trifold::fit {

using hardware::Basis;
using hardware::Collective;
using hardware::CollectiveCurve;

namespace {

struct Source {
  const char* files;
  const char* table;
};
constexpr Source kTables[] = {{"a100_sxm", "nccl_2.27.3"}, {"h100_sxm", "nccl_2.29.2"},
                              {"h200_sxm", "nccl_2.29.2"}, {"b200_sxm", "nccl_2.29.2"},
                              {"b300_sxm", "nccl_2.29.2"}, {"gb200", "nccl_2.29.2"},
                              {"gb300", "nccl_2.29.2"}};

std::string table_of(const GpuFacts& gpu, const std::string& data_dir) {
  for (const Source& s : kTables)
    if (gpu.files == s.files)
      return data_dir + "/third_party_measurements/" + s.files + "_comm_" + s.table +
             "_nccl_perf.csv";
  return {};
}

constexpr Token<Collective> kTableNames[] = {{Collective::all_gather, "all_gather"},
                                             {Collective::reduce_scatter, "reduce_scatter"},
                                             {Collective::all_reduce, "all_reduce"},
                                             {Collective::all_to_all, "alltoall"}};

using Tables = std::map<std::pair<Collective, int>, Timings>;

Result<Tables> read_tables(const GpuFacts& gpu, const std::string& data_dir) {
  TRIFOLD_ASSIGN(csv, Csv::read(table_of(gpu, data_dir)));
  Tables tables;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    if (csv.text(i, "nccl_dtype") != "half") continue;
    for (const auto& name : kTableNames)
      if (csv.text(i, "op_name") == name.name) {
        const double bytes = 2 * csv.number(i, "message_size");
        const double seconds = csv.number(i, "latency") * 1e-3;
        if (bytes >= 1024 && seconds > 0)
          tables[{name.value, static_cast<int>(csv.number(i, "num_gpus"))}][bytes].push_back(
              seconds);
      }
  }
  if (tables.empty()) return input_error("no usable rows", table_of(gpu, data_dir));
  return tables;
}

void slow_links(CollectiveCurve& curve, double factor) {
  const double alpha = curve.seconds.front();
  for (double& t : curve.seconds) t = alpha + (t - alpha) * factor;
  curve.basis = Basis::scaled;
  curve.error = std::hypot(curve.error, 0.1);
}

double read_curve(const CollectiveCurve& curve, double bytes) {
  hardware::Profile one;
  one.collectives[static_cast<std::size_t>(Collective::all_to_all)] = {curve};
  return one.collective_seconds(Collective::all_to_all, curve.ranks, bytes).value;
}

struct WidePoint {
  int ranks;
  double dispatch_us, combine_us;
};
constexpr WidePoint kTableSeven[] = {{8, 735, 741}, {16, 743, 765}, {32, 769, 758}, {64, 930, 827}};
constexpr double kTableSevenBytes = 8.0 * 4096 * 7168 * 2;

void widen_all_to_all(double level, std::vector<CollectiveCurve>& curves) {
  const CollectiveCurve base = curves.back();
  const double alpha = base.seconds.front();
  for (const WidePoint& point : kTableSeven) {
    CollectiveCurve curve = base;
    curve.ranks = point.ranks;
    curve.basis = Basis::scaled;
    curve.error = 0.12;
    curve.source = "4-rank curve moved to arXiv:2603.07685 Table 7";
    const double target = level * 0.5e-6 * (point.dispatch_us + point.combine_us);
    const double latency = alpha * (25.0 + point.ranks - 1) / (25.0 + base.ranks - 1);
    const double factor = (target - latency) / (read_curve(base, kTableSevenBytes) - alpha);
    for (double& t : curve.seconds) t = latency + (t - alpha) * factor;
    curves.push_back(std::move(curve));
  }
}

Result<void> add_send_recv(const std::string& data_dir, hardware::Profile& profile) {
  TRIFOLD_ASSIGN(csv, Csv::read(data_dir + "/h200x2/nccl.csv"));
  Timings timings;
  for (std::size_t i = 0; i < csv.rows(); ++i)
    if (csv.text(i, "op") == "p2p_uni" && csv.text(i, "var") == "stream")
      timings[csv.number(i, "d1")].push_back(csv.number(i, "us") * 1e-6);
  if (timings.size() < 2) return input_error("no p2p_uni rows", data_dir + "/h200x2/nccl.csv");
  CollectiveCurve curve = fit_curve(2, timings, Basis::measured);
  curve.source = "data/h200x2/nccl.csv p2p_uni";
  profile.collectives[static_cast<std::size_t>(Collective::send_recv)] = {curve};
  return {};
}

struct LinkModel {
  Collective op;
  double share, hop_us, fixed_us;
};
// Its all-reduce (0.742 of the whole message, more than a ring can carry) is another convention.
constexpr LinkModel kSimuMaxB200[] = {{Collective::all_gather, 0.674, 9.2, 23},
                                      {Collective::reduce_scatter, 0.673, 8.0, 26},
                                      {Collective::all_to_all, 0.597, 7.3, 0}};

void average_with(const LinkModel& model, CollectiveCurve& curve) {
  double ratio = 0;
  for (std::size_t i = 0; i < curve.bytes.size(); ++i) {
    // The straight line is of large messages.
    if (curve.bytes[i] < 1 << 20) continue;
    const double line = curve.bytes[i] / (model.share * 900e9) +
                        1e-6 * (model.hop_us * (curve.ranks - 1) + model.fixed_us);
    ratio = std::max(ratio, std::abs(std::log(line / curve.seconds[i])));
    curve.seconds[i] = std::sqrt(curve.seconds[i] * line);
  }
  for (std::size_t i = 1; i < curve.seconds.size(); ++i)
    curve.seconds[i] = std::max(curve.seconds[i], curve.seconds[i - 1]);
  curve.error = std::hypot(curve.error, ratio / 2);
  curve.basis = Basis::interpolated;
  curve.source += " and SimuMax's system file";
}

ErrorReport report_of(const hardware::Profile& profile) {
  ErrorReport report;
  report.family = "collectives (leave one size out, 4x gaps)";
  std::vector<double> errors, magnitude, noise;
  for (const auto& curves : profile.collectives)
    for (const CollectiveCurve& curve : curves) {
      ++report.curves;
      for (double e : curve_leave_one_out(curve)) errors.push_back(e);
    }
  for (double e : errors) magnitude.push_back(std::abs(e));
  report.samples = static_cast<int>(errors.size());
  report.point_median = quantile(magnitude, 0.5);
  report.point_p90 = quantile(magnitude, 0.9);
  report.worst = quantile(magnitude, 1);
  report.bias = quantile(errors, 0.5);
  return report;
}

}  // namespace

Result<void> fit_collectives(const GpuFacts& gpu, const std::string& data_dir,
                             hardware::Profile& profile, std::vector<ErrorReport>& reports) {
  TRIFOLD_ASSIGN(tables, read_tables(gpu, data_dir));
  for (const auto& [key, timings] : tables) {
    CollectiveCurve curve = fit_curve(key.second, timings, Basis::measured);
    if (gpu.profile == "h800") slow_links(curve, 18.0 / 8.0);
    if (gpu.profile == "b200")
      for (const LinkModel& model : kSimuMaxB200)
        if (model.op == key.first) average_with(model, curve);
    profile.collectives[static_cast<std::size_t>(key.first)].push_back(std::move(curve));
  }
  if (gpu.domain > 8) {
    double level = 1;
    auto& all_to_all = profile.collectives[static_cast<std::size_t>(Collective::all_to_all)];
    if (gpu.profile != "gb200") {
      TRIFOLD_ASSIGN(all, read_gpu_facts(data_dir));
      TRIFOLD_ASSIGN(base, read_tables(*find_gpu(all, "gb200"), data_dir));
      const CollectiveCurve reference =
          fit_curve(4, base.at({Collective::all_to_all, 4}), Basis::measured);
      level =
          read_curve(all_to_all.back(), kTableSevenBytes) / read_curve(reference, kTableSevenBytes);
    }
    widen_all_to_all(level, all_to_all);
  }
  if (gpu.profile == "h200") TRIFOLD_TRY(add_send_recv(data_dir, profile));
  reports.push_back(report_of(profile));
  return {};
}

}  // namespace trifold::fit

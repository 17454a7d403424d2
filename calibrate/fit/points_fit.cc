// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "calibrate/fit/curve_fit.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/profile_fit.h"
#include "calibrate/fit/solve.h"

// A profile from points measured on this machine.
//
// Each surface is the same ridge regression as for public tables. Where the machine was not
// measured the base profile answers at this machine's level: its nodes enter as weak samples
// (kBorrowed), multiplied by the median ratio of measured to base. They guide a node without
// counting as support. Collectives replace the base's curves rank count by rank count; a base curve
// that stays is `scaled`. Points flagged `bad` or `hot` are never used; `throttled` ones at half
// weight.
//
// gemm_sustained_factor is not set from the 2 s run at full duty: training's duty is lower, and
// H100 fleets run GEMMs at table speed (shared/reference/modelling.md section 3, clk 0.92). What
// the run showed stays in the points file.

namespace trifold::fit {

using hardware::Basis;
using hardware::Collective;
using hardware::Dtype;
using hardware::GemmPass;
using hardware::Grid3;
using hardware::Profile;

namespace {

using Nodes = std::array<std::vector<double>, 3>;

constexpr double kBorrowed = 0.03;
constexpr std::size_t kFewest = 4;  // points a surface needs

constexpr Token<GemmPass> kPasses[] = {
    {GemmPass::forward, "forward"}, {GemmPass::dgrad, "dgrad"}, {GemmPass::wgrad, "wgrad"}};

bool usable(const Point& p) {
  return p.us > 0 && !p.flags.contains(PointFlag::bad) && !p.flags.contains(PointFlag::hot);
}

double weight_of(const Point& p) { return p.flags.contains(PointFlag::throttled) ? 0.5 : 1; }

// Relative spread of a family's samples: what no fit can go below.
double noise_of(const std::vector<const Point*>& points) {
  std::vector<double> spread;
  for (const Point* p : points)
    if (p->us_p90 > p->us_p10) spread.push_back((p->us_p90 - p->us_p10) / p->us / 2);
  return quantile(spread, 0.5);
}

Nodes dense_nodes() {
  return {{{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
           {256, 512, 1024, 1536, 2048, 4096, 7168, 16384, 32768},
           {512, 1024, 2048, 4096, 7168, 16384}}};
}

Nodes grouped_nodes() {
  return {{{16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192},
           {1024, 2048, 4096, 7168, 16384, 32768},
           {512, 1024, 2048, 4096, 7168, 16384}}};
}

Nodes sequence_nodes() {
  return {{{512, 1024, 2048, 4096, 8192, 16384, 32768}, {64, 128, 192, 256}, {16, 64, 256}}};
}

using BaseValue = std::function<double(double, double, double)>;

GridFit fit_surface(const std::string& name, const std::vector<const Point*>& points,
                    std::vector<Sample> samples, const Nodes& nodes, const BaseValue& base) {
  std::vector<double> level;
  for (const Sample& s : samples) level.push_back(s.u / base(s.x, s.y, s.z));
  const double scale = quantile(level, 0.5);
  const SaturatingPrior prior = fit_prior(samples, {0.8, {175, 175, 280}});
  for (double x : nodes[0])
    for (double y : nodes[1])
      for (double z : nodes[2])
        samples.push_back({x, y, z, std::min(1.1, scale * base(x, y, z)), kBorrowed, -1});
  GridFit fit = fit_grid(name, samples, nodes, prior, Basis::measured);
  fit.report.noise = noise_of(points);
  fit.grid.error = std::max(fit.report.sigma(), 0.02);
  fit.grid.source = "measured here";
  return fit;
}

int curve_id(double y, double z) { return static_cast<int>(std::fmod(y * 7919 + z, 1e9)); }

struct Fitter {
  const PointsFile& file;
  const hardware::Gpu& gpu;
  FittedProfile& out;

  std::vector<const Point*> select(const std::function<bool(const Point&)>& want) const {
    std::vector<const Point*> found;
    for (const Point& p : file.points)
      if (usable(p) && want(p)) found.push_back(&p);
    return found;
  }

  std::vector<Sample> gemm_samples(const std::vector<const Point*>& points, double peak,
                                   bool grouped) const {
    std::vector<Sample> samples;
    for (const Point* p : points) {
      const double groups = grouped ? p->shape[3] : 1;
      const double u = 2 * groups * p->shape[0] * p->shape[1] * p->shape[2] / (peak * p->us * 1e-6);
      samples.push_back({p->shape[0], p->shape[1], p->shape[2], u, weight_of(*p),
                         curve_id(p->shape[1], p->shape[2])});
    }
    return samples;
  }

  void dense(Dtype dtype, const Token<GemmPass>& pass) {
    const auto points = select([&](const Point& p) {
      const bool plain = p.variant.empty() || p.variant == "f32";
      return p.family == PointFamily::gemm && p.dtype == dtype && p.op == pass.name && plain &&
             p.shape[0] >= 64;
    });
    const double peak = gpu.peak(dtype).value();
    if (points.size() < kFewest || peak <= 0) return;
    const Profile& base = out.profile;
    const BaseValue value = [&](double m, double n, double k) {
      return base.gemm_utilisation(dtype, pass.value, m, n, k).value;
    };
    GridFit fit =
        fit_surface(fmt::format("gemm {} {}", token_name(hardware::kDtypes, dtype), pass.name),
                    points, gemm_samples(points, peak, false), dense_nodes(), value);
    out.reports.push_back(fit.report);
    fitted.push_back(
        {&out.profile.gemm[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(pass.value)],
         std::move(fit.grid)});
  }

  void grouped(Dtype dtype, const Token<GemmPass>& pass) {
    // Transformer Engine runs experts over streams; a serial loop where that was not measured.
    std::vector<const Point*> points;
    for (const char* backend : {"streams", "loop"}) {
      const std::string name = std::string(backend) + (pass.value == GemmPass::wgrad ? "_f32" : "");
      if (points.size() < kFewest)
        points = select([&](const Point& p) {
          return p.family == PointFamily::grouped_gemm && p.dtype == dtype && p.op == pass.name &&
                 p.variant == name && p.shape[3] >= 4;
        });
    }
    const double peak = gpu.peak(dtype).value();
    if (points.size() < kFewest || peak <= 0) return;
    const BaseValue value = [&](double m, double n, double k) {
      return out.profile.grouped_utilisation(dtype, pass.value, m, n, k).value;
    };
    GridFit fit =
        fit_surface(fmt::format("grouped {} {}", token_name(hardware::kDtypes, dtype), pass.name),
                    points, gemm_samples(points, peak, true), grouped_nodes(), value);
    out.reports.push_back(fit.report);
    fitted.push_back({&out.profile.grouped_gemm[static_cast<std::size_t>(dtype)]
                                               [static_cast<std::size_t>(pass.value)],
                      std::move(fit.grid)});
  }

  void attention(bool backward) {
    const auto points = select([&](const Point& p) {
      return p.family == PointFamily::attention && (p.op == "backward") == backward;
    });
    if (points.size() < kFewest) return;
    std::vector<Sample> samples;
    for (const Point* p : points) {
      const double s = p->shape[0], dims = p->shape[1] + p->shape[3];
      const double flops = s * s * dims * p->shape[2] * (backward ? 2.5 : 1);
      samples.push_back({s, p->shape[1], p->shape[2], flops / (gpu.bf16.value() * p->us * 1e-6),
                         weight_of(*p), curve_id(p->shape[1], p->shape[2])});
    }
    const BaseValue value = [&](double s, double d, double hb) {
      return out.profile.attention_utilisation(backward, s, d, hb).value;
    };
    GridFit fit = fit_surface(backward ? "attention backward" : "attention forward", points,
                              samples, sequence_nodes(), value);
    out.reports.push_back(fit.report);
    fitted.push_back({&out.profile.attention[backward ? 1 : 0], std::move(fit.grid)});
  }

  void collectives() {
    std::vector<double> errors;
    int count = 0;
    for (const auto& op : hardware::kCollectives) {
      auto& curves = out.profile.collectives[static_cast<std::size_t>(op.value)];
      for (auto& curve : curves) curve.basis = std::max(curve.basis, Basis::scaled);
      std::map<int, Timings> timings;
      // A pipeline sends one way at a time; a ring of both ways where that was not measured.
      for (const char* variant : {"stream_one_way", "stream"})
        if (timings.empty())
          for (const Point* p : select([&](const Point& q) {
                 return q.family == PointFamily::collective && q.op == op.name &&
                        q.variant == variant && q.shape[2] == 0;
               }))
            timings[static_cast<int>(p->shape[0])][p->shape[1]].push_back(p->us * 1e-6);
      for (const auto& [ranks, sizes] : timings) {
        if (sizes.size() < 2) continue;
        hardware::CollectiveCurve curve = fit_curve(ranks, sizes, Basis::measured);
        curve.source = "measured here";
        for (double e : curve_leave_one_out(curve)) errors.push_back(std::abs(e));
        ++count;
        put(curves, std::move(curve));
      }
    }
    if (count == 0) return;
    ErrorReport report;
    report.family = "collectives (leave one size out)";
    report.samples = static_cast<int>(errors.size());
    report.curves = count;
    report.point_median = quantile(errors, 0.5);
    report.point_p90 = quantile(errors, 0.9);
    report.worst = quantile(errors, 1);
    out.reports.push_back(report);
  }

  static void put(std::vector<hardware::CollectiveCurve>& curves, hardware::CollectiveCurve curve) {
    const auto at = std::lower_bound(
        curves.begin(), curves.end(), curve.ranks,
        [](const hardware::CollectiveCurve& c, int ranks) { return c.ranks < ranks; });
    if (at != curves.end() && at->ranks == curve.ranks)
      *at = std::move(curve);
    else
      curves.insert(at, std::move(curve));
  }

  void constant(const char* key, const std::vector<double>& values) {
    if (values.empty()) return;
    hardware::Constant& c = out.profile.constants.find(key)->second;
    c.value = std::clamp(round_significant(quantile(values, 0.5), 3), c.low, c.high);
    c.basis = Basis::measured;
    c.source = "measured here";
  }

  void constants(double host_bytes_per_s) {
    std::vector<double> memory, quantize, link;
    for (const Point& p : file.points) {
      if (!usable(p)) continue;
      const double rate = p.shape[0] / (p.us * 1e-6);
      const bool copy = p.op.rfind("copy", 0) == 0;
      if (p.family == PointFamily::memory_bound && !copy && p.us >= 50)
        memory.push_back(rate / gpu.hbm_bandwidth.value());
      if (p.family == PointFamily::quantize && p.us >= 50)
        quantize.push_back(rate / gpu.hbm_bandwidth.value());
      if (p.family == PointFamily::host_link && p.op != "bidirectional" && p.shape[0] >= 1 << 24 &&
          host_bytes_per_s > 0)
        link.push_back(rate / host_bytes_per_s);
    }
    constant("hbm_efficiency", memory);
    constant("quantize_efficiency", quantize);
    constant("host_link_efficiency", link);
  }

  // Grids are installed at the end: while fitting, the base must still answer for every pass.
  std::vector<std::pair<Grid3*, Grid3>> fitted;
};

}  // namespace

Result<FittedProfile> fit_points(const PointsFile& file, const hardware::Cluster& cluster,
                                 const Profile& base, const std::string& name) {
  FittedProfile out;
  out.profile = base;
  Profile measured;
  measured.provenance = file.provenance;
  if (!file.provenance.gpu.empty() && !hardware::made_for(measured, cluster.gpu))
    return input_error(
        "points were measured on '" + file.provenance.gpu + "', not on " + cluster.gpu.name, {},
        "choose the cluster that has this GPU with --cluster");
  if (!hardware::made_for(base, cluster.gpu))
    return input_error("profile '" + base.name + "' was made on '" + base.provenance.gpu +
                           "', not on " + cluster.gpu.name,
                       {}, "start from the profile of this GPU");
  if (file.points.empty()) return input_error("no points");
  out.profile.name = name;
  if (!file.provenance.gpu.empty()) out.profile.provenance = file.provenance;
  if (out.profile.provenance.source.empty())
    out.profile.provenance.source = "points measured on this machine; the rest from " + base.name;
  Fitter fitter{file, cluster.gpu, out, {}};
  for (const auto& dtype : hardware::kDtypes)
    for (const auto& pass : kPasses) {
      fitter.dense(dtype.value, pass);
      fitter.grouped(dtype.value, pass);
    }
  fitter.attention(false);
  fitter.attention(true);
  fitter.collectives();
  fitter.constants(cluster.host_bandwidth.value());
  for (auto& [slot, grid] : fitter.fitted) *slot = std::move(grid);
  return out;
}

std::vector<std::string> gate(const std::vector<ErrorReport>& reports) {
  constexpr double kMedian = 0.08, kWorst = 0.40;
  std::vector<std::string> complaints;
  for (const ErrorReport& r : reports) {
    if (r.point_median > kMedian)
      complaints.push_back(fmt::format("{}: median error of left-out points {:.1f} % > {:.0f} %",
                                       r.family, 100 * r.point_median, 100 * kMedian));
    if (r.point_p90 > kWorst)
      complaints.push_back(
          fmt::format("{}: one left-out point in ten is off by {:.0f} % > {:.0f} %", r.family,
                      100 * r.point_p90, 100 * kWorst));
  }
  return complaints;
}

}  // namespace trifold::fit

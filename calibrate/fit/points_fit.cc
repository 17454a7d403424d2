// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <tuple>

#include "calibrate/fit/causal_prior.h"
#include "calibrate/fit/curve_fit.h"
#include "calibrate/fit/family_fits.h"
#include "calibrate/fit/profile_fit.h"
#include "calibrate/fit/scaleout_fit.h"
#include "calibrate/fit/solve.h"
#include "hardware/gemm_shape.h"

// A profile from points measured on this machine.
//
// A point's utilisation is what cost/ needs to give the point's time back: with one kernel gap a
// launch (a grouped GEMM's overlap over its streams), the shown part of fp32 accumulation and
// column tile waste taken out first. Surfaces are indexed by the forward's n and k in every pass.
//
// Each surface is the same ridge regression as for public tables. Where the machine was not
// measured the base profile answers at this machine's level: its nodes enter as weak samples
// (kBorrowed), multiplied by the median ratio of measured to base. They guide a node without
// counting as support. Attention starts from its own prior (causal_prior.h), which extrapolates
// better than a base does; only head dims that were not measured borrow. Collectives replace the
// base's curves rank count by rank count; a base curve that stays is `scaled`. Points flagged `bad`
// or `hot` are never used; `throttled` ones at half weight.
//
// Constants that the base has from training runs stay (a framework's gaps and small kernels, power
// limits); what the points show of them goes to `benchmark`. gemm_sustained_factor is not set from
// the 2 s run at full duty: training's duty is lower. What the run showed stays in the points file.
//
// Known error on 2x H200, leave one point out: printed by `trifold calibrate --fit`, committed in
// tests/observations/h200x2.

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
constexpr std::size_t kFewest = 4;              // points a surface or a curve needs
constexpr double kBackwardKernels = 3;          // of an attention backward: row sums, main, dQ
constexpr double kBandwidthBound_us = 50;       // below it launch and ramp-up decide
constexpr double kTransfer = 64.0 * (1 << 20);  // bytes a rank sends in a typical dispatch

constexpr Token<GemmPass> kPasses[] = {
    {GemmPass::forward, "forward"}, {GemmPass::dgrad, "dgrad"}, {GemmPass::wgrad, "wgrad"}};

bool usable(const Point& p) {
  return p.us > 0 && !p.flags.contains(PointFlag::bad) && !p.flags.contains(PointFlag::hot);
}

double weight_of(const Point& p) { return p.flags.contains(PointFlag::throttled) ? 0.5 : 1; }

using Key = std::tuple<PointFamily, std::string, std::string, Dtype, std::array<double, 4>>;

Key key_of(const Point& p) { return {p.family, p.op, p.variant, p.dtype, p.shape}; }

// Turns of one question become their median; how far they differ is what no fit can go below.
struct Turns {
  std::vector<Point> points;         // one a question
  std::map<Key, double> difference;  // (largest - smallest) / median, where measured twice
};

Turns merge_turns(const std::vector<Point>& all) {
  std::map<Key, std::vector<const Point*>> by_key;
  std::vector<const std::vector<const Point*>*> order;
  for (const Point& p : all) {
    if (!usable(p)) continue;
    auto& turns = by_key[key_of(p)];
    if (turns.empty()) order.push_back(&turns);
    turns.push_back(&p);
  }
  Turns merged;
  for (const auto* turns : order) {
    Point p = *turns->front();
    std::vector<double> us;
    for (const Point* turn : *turns) us.push_back(turn->us);
    p.us = quantile(us, 0.5);
    if (us.size() > 1) merged.difference[key_of(p)] = (quantile(us, 1) - quantile(us, 0)) / p.us;
    merged.points.push_back(std::move(p));
  }
  return merged;
}

Nodes dense_nodes() {
  return {{{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384},
           {256, 512, 1024, 1536, 2048, 4096, 7168, 16384, 32768, 65536},
           {512, 1024, 2048, 4096, 7168, 16384}}};
}

Nodes grouped_nodes() {
  return {{{16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192},
           {1024, 2048, 4096, 7168, 16384, 32768},
           {512, 1024, 2048, 4096, 7168, 16384}}};
}

Nodes sequence_nodes() {
  return {{{512, 1024, 2048, 4096, 8192, 16384, 32768}, {64, 128, 192, 256}, {8, 32, 128, 512}}};
}

// Large dense GEMMs saturate gently; a weight gradient that accumulates turns from memory-bound to
// compute-bound within a factor of two. The samples say which.
SaturatingPrior sharpest_prior(const std::vector<Sample>& samples) {
  SaturatingPrior best;
  double best_loss = 0;
  for (const double sharpness : {1.0, 2.0, 4.0}) {
    const SaturatingPrior prior = fit_prior(samples, {0.8, {175, 175, 280}, sharpness});
    double loss = 0;
    for (const Sample& s : samples)
      loss += s.weight * huber(std::log(s.u / prior.at(s.x, s.y, s.z)), 0.2);
    if (sharpness > 1 && loss >= best_loss) continue;
    best = prior;
    best_loss = loss;
  }
  return best;
}

// `borrows` says where the base's level-corrected answer stands in as a weak sample.
GridFit fit_surface(const std::string& name, double noise, std::vector<Sample> samples,
                    const Nodes& nodes, const Surface& prior, const Surface& base,
                    const std::function<bool(double)>& borrows) {
  std::vector<double> level;
  for (const Sample& s : samples) level.push_back(s.u / base(s.x, s.y, s.z));
  const double scale = quantile(level, 0.5);
  for (double x : nodes[0])
    for (double y : nodes[1])
      for (double z : nodes[2])
        if (borrows(y))
          samples.push_back({x, y, z, std::min(1.1, scale * base(x, y, z)), kBorrowed, -1});
  GridFit fit = fit_grid(name, samples, nodes, prior, Basis::measured);
  fit.report.noise = noise;
  fit.grid.error = std::max(fit.report.sigma(), 0.02);
  fit.grid.source = "measured here";
  return fit;
}

bool everywhere(double) { return true; }

int curve_id(double y, double z) { return static_cast<int>(std::fmod(y * 7919 + z, 1e9)); }

constexpr std::string_view kHosts = "stream_hosts";

// Domains that a collective's ranks sit in: by the hosts that its log names, else as few as hold
// them.
double domains_of(const Point& p, const hardware::Cluster& cluster) {
  const double ranks = p.variant.rfind(kHosts, 0) == 0
                           ? std::atof(p.variant.c_str() + kHosts.size()) * cluster.gpus_per_node
                           : p.shape[0];
  return std::ceil(ranks / cluster.domain_gpus);
}

bool on_stream(const Point& p) { return p.variant == "stream" || p.variant.rfind(kHosts, 0) == 0; }

struct Fitter {
  const Turns& turns;
  const hardware::Cluster& cluster;
  const hardware::Gpu& gpu;
  FittedProfile& out;

  std::vector<const Point*> select(const std::function<bool(const Point&)>& want) const {
    std::vector<const Point*> found;
    for (const Point& p : turns.points)
      if (want(p)) found.push_back(&p);
    return found;
  }

  // Half the difference between turns of one question; where none was measured twice, half the
  // spread inside a turn.
  double noise_of(const std::vector<const Point*>& points) const {
    std::vector<double> between, inside;
    for (const Point* p : points) {
      const auto found = turns.difference.find(key_of(*p));
      if (found != turns.difference.end()) between.push_back(found->second / 2);
      if (p->us_p90 > p->us_p10) inside.push_back((p->us_p90 - p->us_p10) / p->us / 2);
    }
    return quantile(between.empty() ? inside : between, 0.5);
  }

  std::vector<Sample> gemm_samples(const std::vector<const Point*>& points, double peak,
                                   GemmPass pass, bool grouped) const {
    std::vector<Sample> samples;
    for (const Point* p : points) {
      const double m = p->shape[0], n = p->shape[1], k = p->shape[2];
      const double groups = grouped ? p->shape[3] : 1;
      const double gaps = gap_s * (grouped ? groups / hardware::kGroupedStreams : 1);
      double seconds = p->us * 1e-6;
      if (pass == GemmPass::wgrad)
        seconds -= kAccumulateBytes * groups * n * k / gpu.hbm_bandwidth.value();
      seconds = std::max(seconds - gaps, 0.3 * p->us * 1e-6);
      const double columns = pass == GemmPass::dgrad ? k : n;
      const double u = 2 * groups * m * n * k / (peak * seconds) * hardware::tile_waste(columns);
      samples.push_back({m, n, k, u, weight_of(*p), curve_id(n, k)});
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
    const Surface value = [&](double m, double n, double k) {
      return base.gemm_utilisation(dtype, pass.value, m, n, k).value;
    };
    const std::vector<Sample> samples = gemm_samples(points, peak, pass.value, false);
    GridFit fit = fit_surface(
        fmt::format("gemm {} {}", token_name(hardware::kDtypes, dtype), pass.name),
        noise_of(points), samples, dense_nodes(), sharpest_prior(samples), value, everywhere);
    out.reports.push_back(fit.report);
    fitted.push_back(
        {&out.profile.gemm[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(pass.value)],
         std::move(fit.grid)});
  }

  void grouped(Dtype dtype, const Token<GemmPass>& pass) {
    // Transformer Engine runs experts over streams; a serial loop where that was not measured.
    // Counts as routing scatters them before equal ones, which libraries serve with other kernels
    // (whole tiles: 10 % slower at 128 rows on H200).
    std::vector<const Point*> points;
    for (const char* backend : {"streams_scattered", "streams", "loop"}) {
      const std::string variant =
          backend + std::string(pass.value == GemmPass::wgrad ? "_f32" : "");
      if (points.size() < kFewest)
        points = select([&](const Point& p) {
          return p.family == PointFamily::grouped_gemm && p.dtype == dtype && p.op == pass.name &&
                 p.variant == variant && p.shape[3] >= 4;
        });
    }
    const double peak = gpu.peak(dtype).value();
    if (points.size() < kFewest || peak <= 0) return;
    const Surface value = [&](double m, double n, double k) {
      return out.profile.grouped_utilisation(dtype, pass.value, m, n, k).value;
    };
    const std::vector<Sample> samples = gemm_samples(points, peak, pass.value, true);
    GridFit fit = fit_surface(
        fmt::format("grouped {} {}", token_name(hardware::kDtypes, dtype), pass.name),
        noise_of(points), samples, grouped_nodes(), sharpest_prior(samples), value, everywhere);
    out.reports.push_back(fit.report);
    fitted.push_back({&out.profile.grouped_gemm[static_cast<std::size_t>(dtype)]
                                               [static_cast<std::size_t>(pass.value)],
                      std::move(fit.grid)});
  }

  // On the dense surfaces measured here, so once those stand. What the base has of other libraries
  // stays, `scaled`.
  void launches() {
    constexpr std::pair<hardware::GroupedKernel, const char*> kVariants[] = {
        {hardware::GroupedKernel::loop, "loop"},
        {hardware::GroupedKernel::strided, "strided"},
        {hardware::GroupedKernel::batched, "grouped"}};
    for (auto& kernel : out.profile.grouped_launch)
      for (auto& launch : kernel) launch.basis = std::max(launch.basis, Basis::scaled);
    for (const auto& [kernel, variant] : kVariants)
      for (const auto& dtype : hardware::kDtypes) {
        std::vector<GroupedRow> rows;
        for (const Point& p : turns.points)
          if (p.family == PointFamily::grouped_gemm && p.dtype == dtype.value &&
              p.op == "forward" && p.variant == variant && p.shape[3] >= 4)
            rows.push_back({p.dtype, p.shape[3], p.shape[0], p.shape[1], p.shape[2], p.us * 1e-6});
        const GpuRates rates{gpu.peak(dtype.value).value(), gpu.hbm_bandwidth.value()};
        if (rows.size() < kFewest || rates.peak <= 0) continue;
        out.reports.push_back(
            fit_launch_rows(kernel, dtype.value, rows, rates, "measured here", out.profile));
      }
  }

  void attention(bool backward) {
    const auto points = select([&](const Point& p) {
      return p.family == PointFamily::attention && (p.op == "backward") == backward;
    });
    if (points.size() < kFewest) return;
    std::vector<Sample> samples;
    for (const Point* p : points) {
      const double s = p->shape[0], qk = p->shape[1], v = p->shape[3];
      const double flops = s * s * p->shape[2] * (backward ? 3 * qk + 2 * v : qk + v);
      const double gaps = gap_s * (backward ? kBackwardKernels : 1);
      const double seconds = std::max(p->us * 1e-6 - gaps, 0.3 * p->us * 1e-6);
      samples.push_back({s, qk, p->shape[2], flops / (gpu.bf16.value() * seconds), weight_of(*p),
                         curve_id(qk, p->shape[2])});
    }
    const Surface value = [&](double s, double d, double hb) {
      return out.profile.attention_utilisation(backward, s, d, hb).value;
    };
    const CausalPrior prior = fit_causal_prior(samples);
    GridFit fit = fit_surface(backward ? "attention backward" : "attention forward",
                              noise_of(points), samples, sequence_nodes(), prior, value,
                              [&](double dim) { return prior.level.count(dim) == 0; });
    out.reports.push_back(fit.report);
    fitted.push_back({&out.profile.attention[backward ? 1 : 0], std::move(fit.grid)});
  }

  void collectives() {
    std::vector<double> errors, held;
    int count = 0;
    for (const auto& op : hardware::kCollectives) {
      auto& curves = out.profile.collectives[static_cast<std::size_t>(op.value)];
      for (auto& curve : curves) curve.basis = std::max(curve.basis, Basis::scaled);
      std::map<int, Timings> timings;
      // A pipeline sends one way at a time; a ring of both ways where that was not measured.
      for (const bool one_way : {true, false})
        if (timings.empty())
          for (const Point* p : select([&](const Point& q) {
                 return q.family == PointFamily::collective && q.op == op.name &&
                        (one_way ? q.variant == "stream_one_way" : on_stream(q)) &&
                        q.shape[2] == 0 && domains_of(q, cluster) <= 1;
               }))
            timings[static_cast<int>(p->shape[0])][p->shape[1]].push_back(p->us * 1e-6);
      for (const auto& [ranks, sizes] : timings) {
        if (sizes.size() < kFewest) continue;
        hardware::CollectiveCurve curve = fit_curve(ranks, sizes, Basis::measured);
        curve.source = "measured here";
        for (double e : curve_leave_one_out(curve)) errors.push_back(std::abs(e));
        held.push_back(std::abs(curve_largest_left_out(curve)));
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
    report.holdout_median = quantile(held, 0.5);
    report.holdout_p90 = quantile(held, 0.9);
    report.noise =
        noise_of(select([](const Point& p) { return p.family == PointFamily::collective; }));
    out.reports.push_back(report);
  }

  void scaleout() {
    std::vector<ScaleoutSample> samples;
    for (const auto& op : hardware::kCollectives)
      for (const Point* p : select([&](const Point& q) {
             return q.family == PointFamily::collective && q.op == op.name && on_stream(q) &&
                    q.shape[2] == 0 && domains_of(q, cluster) > 1;
           }))
        samples.push_back(
            {op.value, p->shape[0], domains_of(*p, cluster), p->shape[1], p->us * 1e-6});
    const auto fit = fit_scaleout(samples, cluster.scaleout_bandwidth.value());
    if (!fit) return;
    constant("scaleout_efficiency", {{"", {fit->efficiency}}});
    constant("scaleout_latency_s", {{"", {fit->latency_s}}});
    out.reports.push_back(fit->report);
  }

  // The all-to-all dispatcher is the library's exchange: its rate at large sizes, what a CTA
  // drives, and the time of a small one, at the widest group measured.
  void dispatcher() {
    const auto found = out.profile.dispatchers.find("alltoall");
    const auto all = select([&](const Point& p) {
      return p.family == PointFamily::collective && p.op == "all_to_all" && p.variant == "stream" &&
             domains_of(p, cluster) <= 1;
    });
    double ranks = 0;
    for (const Point* p : all) ranks = std::max(ranks, p->shape[0]);
    std::vector<double> rate, a_cta, small;
    for (const Point* p : all) {
      if (p->shape[0] != ranks) continue;
      const double sent = p->shape[1] * (ranks - 1) / ranks, bytes_per_s = sent / (p->us * 1e-6);
      const bool limited = p->shape[2] > 0;
      if (!limited && sent >= kTransfer && sent <= 8 * kTransfer) rate.push_back(bytes_per_s);
      if (limited && p->shape[2] <= 16 && sent >= kTransfer)
        a_cta.push_back(bytes_per_s / p->shape[2]);
      if (!limited && p->shape[1] <= 16384) small.push_back(p->us * 1e-6);
    }
    if (found == out.profile.dispatchers.end() || rate.empty() || small.empty()) return;
    hardware::DispatcherRate& d = out.benchmark.dispatchers["alltoall"] = found->second;
    d.scaleup_efficiency =
        round_significant(quantile(rate, 0.5) / cluster.scaleup_bandwidth.value(), 4);
    if (!a_cta.empty()) d.bytes_per_s_per_sm = round_significant(quantile(a_cta, 0.5), 4);
    d.latency_s = round_significant(quantile(small, 0.5), 3);
    d.basis = Basis::measured;
    d.source = fmt::format("all-to-all of {:.0f} GPUs, measured here", ranks);
    // A wider domain's rate, where the base knows one, is not this group's.
    if (ranks >= 8 || found->second.basis == Basis::assumed) found->second = d;
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

  // One efficiency for many kernels: what it says of an op's points, that op's points left out one
  // by one and all together.
  void efficiency_report(const char* name,
                         const std::map<std::string, std::vector<double>>& by_op) {
    std::vector<double> points, ops;
    for (const auto& [op, values] : by_op)
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::vector<double> others, other_ops;
        for (const auto& [name_of, more] : by_op)
          for (std::size_t j = 0; j < more.size(); ++j) {
            if (name_of != op) other_ops.push_back(more[j]);
            if (name_of != op || j != i) others.push_back(more[j]);
          }
        if (others.empty()) return;
        points.push_back(std::abs(values[i] / quantile(others, 0.5) - 1));
        if (!other_ops.empty()) ops.push_back(std::abs(values[i] / quantile(other_ops, 0.5) - 1));
      }
    if (points.empty()) return;
    ErrorReport report;
    report.family = name;
    report.gated = false;
    report.samples = static_cast<int>(points.size());
    report.curves = static_cast<int>(by_op.size());
    report.point_median = quantile(points, 0.5);
    report.point_p90 = quantile(points, 0.9);
    report.worst = quantile(points, 1);
    report.curve_median = quantile(ops, 0.5);
    report.curve_p90 = quantile(ops, 0.9);
    out.reports.push_back(report);
  }

  void constant(const char* key, const std::map<std::string, std::vector<double>>& by_op) {
    std::vector<double> values;
    for (const auto& [op, own] : by_op) values.insert(values.end(), own.begin(), own.end());
    if (values.empty()) return;
    hardware::Constant& kept = out.profile.constants.find(key)->second;
    hardware::Constant c = kept;
    c.value = std::clamp(round_significant(quantile(values, 0.5), 3), c.low, c.high);
    c.basis = Basis::measured;
    c.source = "measured here";
    c.fitted = false;
    if (!kept.fitted) kept = c;
    out.benchmark.constants[key] = c;
  }

  // At the smallest count that is at least `count`; 0: not measured.
  double host_us(const char* op, double count) const {
    const Point* best = nullptr;
    for (const Point& p : turns.points)
      if (p.family == PointFamily::host && p.op == op && p.shape[0] >= count &&
          (best == nullptr || p.shape[0] < best->shape[0]))
        best = &p;
    return best == nullptr ? 0 : best->us;
  }

  void constants() {
    const double host_bytes_per_s = cluster.host_bandwidth.value();
    std::map<std::string, std::vector<double>> memory, quantize, link;
    const double in_graph = host_us("graph_node", 100);
    if (gap_s > 0) constant("kernel_gap_s", {{"", {gap_s}}});
    if (in_graph > 0) constant("kernel_gap_graph_s", {{"", {in_graph * 1e-6}}});
    for (const Point& p : turns.points) {
      const double rate = p.shape[0] / (p.us * 1e-6);
      const bool copy = p.op.rfind("copy", 0) == 0;
      if (p.family == PointFamily::memory_bound && !copy && p.us >= kBandwidthBound_us)
        memory[p.op].push_back(rate / gpu.hbm_bandwidth.value());
      if (p.family == PointFamily::quantize && p.us >= kBandwidthBound_us)
        quantize[p.op].push_back(rate / gpu.hbm_bandwidth.value());
      if (p.family == PointFamily::host_link && p.op != "bidirectional" && p.shape[0] >= 1 << 24 &&
          host_bytes_per_s > 0)
        link[p.op].push_back(rate / host_bytes_per_s);
    }
    constant("hbm_efficiency", memory);
    constant("quantize_efficiency", quantize);
    constant("host_link_efficiency", link);
    efficiency_report("memory-bound kernels (one efficiency)", memory);
    efficiency_report("quantise (one efficiency)", quantize);
    efficiency_report("host link (one efficiency)", link);
  }

  // The profile, with what the points alone say in place of what training runs say.
  void finish_benchmark() {
    Profile shown = out.profile;
    shown.name += "-benchmark";
    for (const auto& [key, constant] : out.benchmark.constants) shown.constants[key] = constant;
    for (const auto& [key, rate] : out.benchmark.dispatchers) shown.dispatchers[key] = rate;
    for (const char* key : {"gemm_sustained_factor", "attention_sustained_factor"})
      shown.constants[key].value = 1;
    out.benchmark = std::move(shown);
  }

  double gap_s = 0;  // between kernels of a stream, 0 where it was not measured
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
  const Turns turns = merge_turns(file.points);
  Fitter fitter{turns, cluster, cluster.gpu, out, 0, {}};
  fitter.gap_s = 1e-6 * fitter.host_us("kernel_gap", 0);
  for (const auto& dtype : hardware::kDtypes)
    for (const auto& pass : kPasses) {
      fitter.dense(dtype.value, pass);
      fitter.grouped(dtype.value, pass);
    }
  fitter.attention(false);
  fitter.attention(true);
  fitter.collectives();
  fitter.scaleout();
  fitter.constants();
  fitter.dispatcher();
  for (auto& [slot, grid] : fitter.fitted) *slot = std::move(grid);
  fitter.launches();
  fitter.finish_benchmark();
  return out;
}

std::vector<std::string> gate(const std::vector<ErrorReport>& reports) {
  constexpr double kMedian = 0.08, kWorst = 0.40;
  std::vector<std::string> complaints;
  for (const ErrorReport& r : reports) {
    if (!r.gated) continue;
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

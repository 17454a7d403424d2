// SPDX-License-Identifier: Apache-2.0
#include "planner/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "hardware/rescaled.h"
#include "planner/explain.h"

namespace trifold::planner {

namespace {

constexpr double kChange = 0.1;

struct Setting {
  hardware::Cluster cluster;
  hardware::Profile profile;
};

struct Rate {
  const char* key;
  const char* name;
  void (*scale)(Setting&, double);
  bool (*applies)(const job::Job&);
};

bool always(const job::Job&) { return true; }
void scale_rate(BytesPerSecond& rate, double f) { rate = BytesPerSecond(rate.value() * f); }
void scale_rate(FlopsPerSecond& rate, double f) { rate = FlopsPerSecond(rate.value() * f); }

hardware::Dtype dtype_of(const job::Job& job) { return job::gemm_dtype(job.training.precision); }

constexpr Rate kRates[] = {
    {"cluster_overrides.bf16_flops_per_s", "BF16 tensor cores",
     [](Setting& s, double f) { scale_rate(s.cluster.gpu.bf16, f); }, always},
    {"cluster_overrides.fp8_flops_per_s", "FP8 tensor cores",
     [](Setting& s, double f) { scale_rate(s.cluster.gpu.fp8, f); },
     [](const job::Job& j) {
       return dtype_of(j) != hardware::Dtype::bf16 && dtype_of(j) != hardware::Dtype::nvfp4;
     }},
    {"cluster_overrides.fp4_flops_per_s", "FP4 tensor cores",
     [](Setting& s, double f) { scale_rate(s.cluster.gpu.fp4, f); },
     [](const job::Job& j) { return dtype_of(j) == hardware::Dtype::nvfp4; }},
    {"cluster_overrides.hbm_bytes_per_s", "HBM bandwidth",
     [](Setting& s, double f) { scale_rate(s.cluster.gpu.hbm_bandwidth, f); }, always},
    {"cluster_overrides.hbm_bytes", "HBM capacity",
     [](Setting& s, double f) {
       s.cluster.gpu.hbm = Bytes(std::llround(static_cast<double>(s.cluster.gpu.hbm.value()) * f));
     },
     always},
    {"cluster_overrides.scaleup_bytes_per_s", "NVLink bandwidth",
     [](Setting& s, double f) {
       scale_rate(s.cluster.scaleup_bandwidth, f);
       s.profile = hardware::rescaled(s.profile, f);
     },
     always},
    {"cluster_overrides.scaleout_bytes_per_s", "NIC bandwidth",
     [](Setting& s, double f) { scale_rate(s.cluster.scaleout_bandwidth, f); }, always},
    {"cluster_overrides.host_bytes_per_s", "host link bandwidth",
     [](Setting& s, double f) { scale_rate(s.cluster.host_bandwidth, f); }, always},
    {"profile.host_op_s", "host speed (kernel launches)",
     [](Setting& s, double f) {
       const auto at = s.profile.constants.find("host_op_s");
       if (at != s.profile.constants.end()) at->second.value /= f;
     },
     always}};

RateBar bar_of(const Rate& rate, const job::Job& job, const layout::Pipeline& pipeline,
               const hardware::Profile& profile) {
  RateBar bar;
  bar.key = rate.key;
  bar.name = rate.name;
  const auto at = [&](double factor, double& seconds, Bytes& headroom) {
    Setting setting{job.cluster, profile};
    rate.scale(setting, factor);
    job::Job changed = job;
    changed.cluster = setting.cluster;
    estimate::Estimate e;
    estimate::Estimator(setting.cluster, setting.profile).evaluate(changed, pipeline, e);
    seconds = e.step_time_s;
    headroom = e.memory.headroom;
  };
  at(1 - kChange, bar.low_s, bar.headroom_low);
  at(1 + kChange, bar.high_s, bar.headroom_high);
  bar.elasticity =
      (std::log(bar.high_s) - std::log(bar.low_s)) / (std::log1p(kChange) - std::log1p(-kChange));
  return bar;
}

TechniqueBar bar_of(const Move& move, const job::Job& job, const estimate::Estimate& now,
                    estimate::Estimator& estimator) {
  TechniqueBar bar;
  bar.name = move.name;
  bar.attack = move.attack;
  bar.removes = move.removes;
  job::Job changed = job;
  move.apply(changed);
  if (move.layout)
    recut(changed, changed.layout.pp != job.layout.pp || changed.layout.vpp != job.layout.vpp);
  Point point;
  point.job = changed;
  point.verdict = job::check(changed, job::Runtime::any);
  if (point.verdict.legal()) {
    const Result<layout::Pipeline> pipeline =
        layout::build_pipeline(changed.model, changed.layout, changed.placement());
    TRIFOLD_CHECK(pipeline.has_value());
    estimator.evaluate(changed, *pipeline, point.estimate);
    point.verdict = job::check(changed, *pipeline, job::Runtime::megatron);
    point.status = !point.estimate.memory.fits() ? PointStatus::out_of_memory
                   : point.verdict.legal()       ? PointStatus::fits
                                                 : PointStatus::not_launchable;
    bar.step_time_s = point.estimate.step_time_s;
    bar.change = bar.step_time_s / now.step_time_s - 1;
    bar.headroom_change = point.estimate.memory.headroom - now.memory.headroom;
  }
  bar.status = point.status;
  bar.reason = reason_of(point);
  return bar;
}

}  // namespace

Sensitivity sensitivity(const job::Job& job, const hardware::Profile& profile) {
  const Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job.model, job.layout, job.placement());
  TRIFOLD_CHECK(pipeline.has_value());
  Sensitivity out;
  for (const Rate& rate : kRates)
    if (rate.applies(job)) out.rates.push_back(bar_of(rate, job, *pipeline, profile));
  std::stable_sort(out.rates.begin(), out.rates.end(), [](const RateBar& a, const RateBar& b) {
    return std::abs(a.elasticity) > std::abs(b.elasticity);
  });
  estimate::Estimator estimator(job.cluster, profile);
  estimate::Estimate now;
  estimator.evaluate(job, *pipeline, now);
  for (const Move& move : moves(job)) out.techniques.push_back(bar_of(move, job, now, estimator));
  std::stable_sort(out.techniques.begin(), out.techniques.end(),
                   [](const TechniqueBar& a, const TechniqueBar& b) {
                     const bool first = a.status == PointStatus::illegal,
                                second = b.status == PointStatus::illegal;
                     if (first != second) return second;
                     return std::abs(a.change) > std::abs(b.change);
                   });
  return out;
}

}  // namespace trifold::planner

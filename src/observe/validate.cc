// SPDX-License-Identifier: Apache-2.0
#include "observe/validate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "job/legality.h"
#include "job/profile.h"
#include "model/size.h"
#include "timeline/timeline.h"

namespace trifold::observe {

double throughput_ratio(const Observation& o, const estimate::Estimate& e) {
  const Measured& m = o.measured;
  const double tokens = e.tokens_per_s_per_gpu;
  const auto predicted_tflops = [&] {
    if (o.published_gflop_per_token) return tokens * *o.published_gflop_per_token * 1e-3;
    const auto convention = o.full_attention ? model::FlopsConvention::full_attention
                                             : model::FlopsConvention::causal_half;
    return tokens * 1e-12 *
           model::train_flops_per_token(o.job.model, o.job.training.sequence_length,
                                        o.job.layout.tp, convention);
  };
  if (o.tokens_rounded && m.tflops_per_gpu) return predicted_tflops() / *m.tflops_per_gpu;
  if (m.tokens_per_s_per_gpu) return tokens / *m.tokens_per_s_per_gpu;
  if (m.tflops_per_gpu) return predicted_tflops() / *m.tflops_per_gpu;
  if (m.mfu_percent) {
    const double peak =
        m.mfu_peak_tflops ? *m.mfu_peak_tflops : o.job.cluster.gpu.bf16.value() * 1e-12;
    return predicted_tflops() / peak / (*m.mfu_percent / 100);
  }
  if (m.step_time_s) return *m.step_time_s / e.step_time_s;
  return NAN;
}

namespace {

// Replaces the closed form's step time, interval and throughput by the simulation's.
bool simulate_into(const job::Job& job, const layout::Pipeline& pipeline,
                   estimate::Estimator& estimator, estimate::Estimate& estimate) {
  timeline::Timeline timeline;
  timeline::simulate(job, pipeline, estimator.pricer(), {}, timeline);
  if (!timeline.completes) return false;
  estimate = timeline::as_estimate(timeline, estimate);
  return true;
}

}  // namespace

Row predict(const Observation& o, estimate::Estimator& estimator, Method method) {
  Row row;
  row.observation = &o;
  const std::vector<job::Job> jobs = plausible_jobs(o);
  if (jobs.empty()) {
    row.reason = "no legal Job: " + job::explain(job::check(o.job, job::Runtime::any));
    return row;
  }
  estimate::Estimate best, current;
  for (const job::Job& job : jobs) {
    const Result<layout::Pipeline> pipeline =
        layout::build_pipeline(job.model, job.layout, job.placement());
    if (!pipeline) continue;
    estimator.evaluate(job, *pipeline, current);
    if (method == Method::simulate && !simulate_into(job, *pipeline, estimator, current)) continue;
    const double error = throughput_ratio(o, current) - 1;
    row.low_error = row.usable ? std::min(row.low_error, error) : error;
    row.high_error = row.usable ? std::max(row.high_error, error) : error;
    // People publish the better of their settings: the fastest plausible Job that fits stands for
    // the record.
    const bool better =
        !row.usable || (current.memory.fits() && !best.memory.fits()) ||
        (current.memory.fits() == best.memory.fits() && current.step_time_s < best.step_time_s);
    if (better) best = current;
    row.usable = true;
  }
  row.step_time_s = best.step_time_s;
  row.low_s = best.low_s;
  row.high_s = best.high_s;
  row.tokens_per_s_per_gpu = best.tokens_per_s_per_gpu;
  row.tflops_per_gpu = best.tflops_per_gpu;
  row.peak_bytes = static_cast<double>(best.memory.peak.value());
  row.reserved_bytes = static_cast<double>(best.memory.reserved.value());
  row.headroom_bytes = static_cast<double>(best.memory.headroom.value());
  const double ratio = throughput_ratio(o, best);
  row.has_error = std::isfinite(ratio);
  if (row.has_error) {
    row.relative_error = ratio - 1;
    // A throughput ratio of r means that the true step is r times the predicted one.
    row.in_interval =
        best.step_time_s * ratio >= best.low_s && best.step_time_s * ratio <= best.high_s;
  }
  if (o.measured.allocated_bytes) {
    row.has_memory_error = true;
    row.memory_relative_error = row.peak_bytes / *o.measured.allocated_bytes - 1;
  }
  return row;
}

namespace {

// Records of one cluster and profile share an estimator, which points into both.
struct Priced {
  hardware::Cluster cluster;
  hardware::Profile profile;
  estimate::Estimator estimator;
  Priced(const hardware::Cluster& c, hardware::Profile p)
      : cluster(c), profile(std::move(p)), estimator(cluster, profile) {}
};

}  // namespace

Result<std::vector<Row>> predict_all(const std::vector<Observation>& observations,
                                     const std::string& data_dir, Method method) {
  std::map<std::pair<std::uint64_t, std::string>, std::unique_ptr<Priced>> priced;
  std::vector<Row> rows;
  for (const Observation& o : observations) {
    auto& known = priced[{o.job.cluster_origin.fingerprint, o.job.profile}];
    if (!known) {
      TRIFOLD_ASSIGN(profile, job::profile_of(o.job, data_dir));
      known = std::make_unique<Priced>(o.job.cluster, std::move(profile));
    }
    rows.push_back(predict(o, known->estimator, method));
  }
  return rows;
}

std::vector<const Row*> scored(const std::vector<Row>& rows) {
  std::vector<const Row*> fleets, machine;
  for (const Row& row : rows)
    if (row.usable && row.has_error && row.observation->settings_stated() &&
        row.observation->ladder.empty())
      (row.observation->one_machine() ? machine : fleets).push_back(&row);
  return fleets.empty() ? machine : fleets;
}

Summary summarize(const std::vector<const Row*>& rows) {
  Summary s;
  std::vector<double> errors;
  int inside = 0;
  for (const Row* row : rows) {
    if (!row->has_error) continue;
    errors.push_back(std::abs(row->relative_error));
    s.mean_absolute_error += std::abs(row->relative_error);
    s.bias += row->relative_error;
    if (std::abs(row->relative_error) > std::abs(s.worst)) s.worst = row->relative_error;
    inside += row->in_interval;
  }
  s.count = static_cast<int>(errors.size());
  if (s.count == 0) return s;
  std::sort(errors.begin(), errors.end());
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(errors.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, errors.size() - 1);
    return errors[low] + (at - static_cast<double>(low)) * (errors[high] - errors[low]);
  };
  s.mean_absolute_error /= s.count;
  s.bias /= s.count;
  s.median_absolute_error = quantile(0.5);
  s.p90_absolute_error = quantile(0.9);
  s.interval_coverage = static_cast<double>(inside) / s.count;
  return s;
}

}  // namespace trifold::observe

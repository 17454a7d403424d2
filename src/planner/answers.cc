// SPDX-License-Identifier: Apache-2.0
#include "planner/answers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "base/math.h"
#include "model/size.h"
#include "timeline/timeline.h"

namespace trifold::planner {

namespace {

bool dominates(const Candidate& a, const Candidate& b) {
  const auto no_worse = a.estimate.step_time_s <= b.estimate.step_time_s &&
                        a.estimate.memory.headroom >= b.estimate.memory.headroom &&
                        a.job.gpus <= b.job.gpus;
  return no_worse &&
         (a.estimate.step_time_s < b.estimate.step_time_s ||
          a.estimate.memory.headroom > b.estimate.memory.headroom || a.job.gpus < b.job.gpus);
}

// 1, 2, 3, 4, 6, 8, 12, ...
int next_size(int nodes) {
  if (nodes == 1) return 2;
  return is_power_of_two(nodes) ? nodes + nodes / 2 : nodes / 3 * 4;
}

}  // namespace

Query best_only(const Query& query, int gpus) {
  Query q = query;
  q.gpus = gpus;
  q.best = 1;
  q.side_by_side = false;
  return q;
}

int smallest_cluster_that_fits(const Query& query, const hardware::Profile& profile) {
  for (int factor = 2; factor <= 64; factor *= 2) {
    if (query.gpus > query.cluster.max_gpus / factor) return 0;
    Query larger = best_only(query, query.gpus * factor);
    larger.first_that_fits = true;
    const Result<PlanResult> result = plan(larger, profile);
    if (result && !result->plans.empty()) return larger.gpus;
  }
  return 0;
}

std::optional<Candidate> smallest_cluster_for(const Query& query, double tokens_per_s,
                                              const hardware::Profile& profile) {
  const hardware::Gpu& gpu = query.cluster.gpu;
  const double peak =
      std::max(gpu.bf16.value(), gpu.peak(job::gemm_dtype(query.training.precision)).value());
  const double least = tokens_per_s *
                       model::train_flops_per_token(query.model, query.training.sequence_length) /
                       peak;
  for (int nodes = 1; nodes <= 3 << 14; nodes = next_size(nodes)) {
    const int gpus = nodes * query.cluster.gpus_per_node;
    if (gpus > query.cluster.max_gpus) return {};
    if (gpus < least) continue;
    Result<PlanResult> result = plan(best_only(query, gpus), profile);
    if (!result || result->plans.empty()) continue;
    Candidate& best = result->plans.front();
    if (best.estimate.tokens_per_s_per_gpu * gpus >= tokens_per_s) return std::move(best);
  }
  return {};
}

std::vector<Candidate> pareto_front(const Query& query, const hardware::Profile& profile) {
  std::vector<Candidate> all;
  for (int part : {1, 2, 4}) {
    if (query.gpus % part != 0) continue;
    for (double share : {0.0, 0.1, 0.2, 0.3}) {
      Query q = best_only(query, query.gpus / part);
      q.min_headroom = Bytes(
          static_cast<std::int64_t>(share * static_cast<double>(query.cluster.capacity().value())));
      Result<PlanResult> result = plan(q, profile);
      if (!result || result->plans.empty()) break;
      all.push_back(std::move(result->plans.front()));
    }
  }
  std::vector<Candidate> front;
  for (const Candidate& c : all) {
    const bool beaten = std::any_of(all.begin(), all.end(),
                                    [&](const Candidate& other) { return dominates(other, c); });
    const bool listed = std::any_of(front.begin(), front.end(), [&](const Candidate& other) {
      return job::job_id(other.job) == job::job_id(c.job);
    });
    if (!beaten && !listed) front.push_back(c);
  }
  return front;
}

Result<Candidate> evaluate_named(const job::Job& job, const Query& query,
                                 const hardware::Profile& profile) {
  if (job.model.name != query.model.name || job.gpus != query.gpus ||
      job.training.global_batch_size != query.training.global_batch_size ||
      job.training.sequence_length != query.training.sequence_length)
    return input_error("the named layout asks another question (model, GPUs, batch or sequence)",
                       "--compare", "plan for the same model, GPUs, batch and sequence");
  Candidate named;
  named.job = job;
  named.job.cluster = query.cluster;
  const job::Job& j = named.job;
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(j.model, j.layout, j.placement()));
  const job::Verdict structure = job::check(j, pipeline, job::Runtime::any);
  if (!structure.legal())
    return input_error("the named layout cannot run: " + job::explain(structure), "--compare");
  named.verdict = job::check(j, pipeline, query.runtime);
  named.launchable = named.verdict.legal();
  estimate::Estimator(query.cluster, profile).evaluate(j, pipeline, named.estimate);
  return named;
}

namespace {

// The simulated step; 0: its order of units is cyclic.
double simulated_step(const job::Job& job, cost::Pricer& pricer, timeline::Simulator& simulator) {
  const Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job.model, job.layout, job.placement());
  if (!pipeline) return 0;
  timeline::SimulateOptions options;
  options.memory = false;
  timeline::Timeline timeline;
  simulator.run(job, *pipeline, pricer, options, timeline);
  return timeline.completes ? timeline.step_time_s : 0;
}

}  // namespace

Reranking rerank_by_simulation(std::vector<Candidate>& plans, const hardware::Profile& profile,
                               int most, int threads) {
  Reranking out;
  if (plans.empty()) return out;
  const std::size_t count = std::min(plans.size(), static_cast<std::size_t>(most));
  const std::size_t cores = threads > 0 ? static_cast<std::size_t>(threads)
                                        : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::size_t> next{0};
  const auto share = [&] {
    timeline::Simulator simulator;
    cost::Pricer pricer(plans.front().job.cluster, profile);
    for (std::size_t i = next++; i < count; i = next++)
      plans[i].simulated_s = simulated_step(plans[i].job, pricer, simulator);
  };
  std::vector<std::thread> pool;
  for (std::size_t t = 1; t < std::min(cores, count); ++t) pool.emplace_back(share);
  share();
  for (std::thread& thread : pool) thread.join();
  for (std::size_t i = 0; i < count; ++i) {
    const Candidate& c = plans[i];
    if (c.simulated_s == 0) continue;
    ++out.simulated;
    out.largest_gap =
        std::max(out.largest_gap, std::abs(c.simulated_s / c.estimate.step_time_s - 1));
  }
  const std::string before = job::job_id(plans.front().job);
  std::stable_sort(plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>(count),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.simulated_s == 0 || b.simulated_s == 0)
                       return b.simulated_s == 0 && a.simulated_s > 0;
                     return a.simulated_s < b.simulated_s;
                   });
  out.winner_changed = job::job_id(plans.front().job) != before;
  return out;
}

}  // namespace trifold::planner

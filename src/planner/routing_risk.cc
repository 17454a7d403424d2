// SPDX-License-Identifier: Apache-2.0

// Memory: memory/risk.cc draws the loads of every MoE layer and asks whether the worst rank still
// fits. Time: the slowest rank of a layer sets its experts and its dispatch, so a step's time is
// the mean over draws of the estimate at a draw's imbalance, over the balanced one. Natural routing
// without a stated distribution has one prior imbalance (layer/expert_load.cc), not a draw.
// ECHO (arXiv:2603.07685): spare slots hold clones of hot experts; their weights travel before a
// layer and their gradients after it, hidden here, and a slot's weights and gradients stay
// allocated for one layer at a time (bf16 + fp32: assumed). Known error: the distribution is the
// person's assumption; given it, one draw's time is as good as the estimate.

#include "planner/routing_risk.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "job/legality.h"
#include "layer/expert_load.h"

namespace trifold::planner {

namespace {

using job::Job;

bool varies_by_seed(const Job& job) {
  const job::Routing& r = job.techniques.routing;
  return r.distribution != job::LoadDistribution::balanced && !r.padded();
}

std::int64_t clone_bytes(const Job& job) {
  const std::int64_t matrices = 3;
  return job.techniques.routing.echo_spare_experts * matrices * job.model.hidden *
         job.model.moe.expert_ffn / job.layout.etp * (2 + 4);
}

struct Lever {
  std::string name, note;
  Job job;
};

std::vector<Lever> levers_of(const Job& job) {
  std::vector<Lever> list = {{"as is", "", job}};
  const job::Routing& now = job.techniques.routing;
  const auto with = [&](std::string name, std::string note, auto change) {
    Job changed = job;
    change(changed);
    list.push_back({std::move(name), std::move(note), std::move(changed)});
  };
  for (double factor : {1.0, 1.25, 1.5})
    if (now.capacity_factor == 0 || factor < now.capacity_factor)
      with(fmt::format("capacity factor {}", factor), "drops tokens beyond it",
           [factor](Job& j) { j.techniques.routing.capacity_factor = factor; });
  const std::int64_t groups = job.model.moe.groups, experts = job.model.moe.experts;
  if (groups > 1 && job.model.moe.top_groups < groups)
    with("no group limit", "another router: train with it",
         [groups](Job& j) { j.model.moe.top_groups = groups; });
  else if (experts % 8 == 0 && experts >= 32)
    with("group limit 4 of 8", "another router: train with it", [](Job& j) {
      j.model.moe.groups = 8;
      j.model.moe.top_groups = 4;
    });
  for (int spare : {1, 2})
    if (spare > now.echo_spare_experts)
      with(fmt::format("ECHO, {} spare expert{} a rank", spare, spare > 1 ? "s" : ""),
           "clones of hot experts; weights travel each layer",
           [spare](Job& j) { j.techniques.routing.echo_spare_experts = spare; });
  if (!job.techniques.paged_stash)
    with("paged stash", "activations in pages of the actual load",
         [](Job& j) { j.techniques.paged_stash = true; });
  if (now.echo_spare_experts == 0 && !job.techniques.paged_stash)
    with("ECHO 1 + paged stash", "both", [](Job& j) {
      j.techniques.routing.echo_spare_experts = 1;
      j.techniques.paged_stash = true;
    });
  return list;
}

void time_of(const Lever& lever, const layout::Pipeline& pipeline, double balanced, int draws,
             estimate::Estimator& estimator, RiskRow& row) {
  Job job = lever.job;
  const int count = varies_by_seed(job) ? draws : 1;
  std::vector<double> slow;
  double imbalance = 0, dropped = 0;
  estimate::Estimate e;
  for (int i = 0; i < count; ++i) {
    job.techniques.routing.seed = lever.job.techniques.routing.seed + i;
    estimator.evaluate_time(job, pipeline, e);
    slow.push_back(e.step_time_s / balanced - 1);
    const layer::ExpertLoad load = layer::expert_load(job);
    imbalance += load.imbalance, dropped += load.dropped_share;
  }
  std::sort(slow.begin(), slow.end());
  row.slow_down = std::accumulate(slow.begin(), slow.end(), 0.0) / count;
  row.slow_down_p90 = slow[static_cast<std::size_t>(0.9 * (count - 1) + 0.5)];
  row.imbalance = imbalance / count;
  row.dropped = dropped / count;
}

}  // namespace

Result<RoutingRisk> routing_risk(const job::Job& job, const hardware::Profile& profile, int draws) {
  if (!job.model.is_moe())
    return input_error(fmt::format("{} has no experts: nothing is routed", job.model.name),
                       "--risk", "ask it of a mixture-of-experts model");
  const job::Verdict verdict = job::check(job, job::Runtime::any);
  if (!verdict.legal())
    return Error{ErrorCode::infeasible, "this layout cannot run: " + job::explain(verdict),
                 "--risk", ""};
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
  estimate::Estimator estimator(job.cluster, profile);
  RoutingRisk risk;
  risk.draws = draws;
  risk.capacity = job.cluster.capacity();
  Job even = job;
  even.techniques.routing.distribution = job::LoadDistribution::balanced;
  even.techniques.routing.balance = job::Balance::forced;
  even.techniques.routing.parameters.clear();
  estimate::Estimate e;
  estimator.evaluate_time(even, pipeline, e);
  risk.balanced_step_s = e.step_time_s;
  for (const Lever& lever : levers_of(job)) {
    if (!job::check(lever.job, job::Runtime::any).legal()) continue;
    RiskRow row;
    row.lever = lever.name;
    row.note = lever.note;
    row.launchable = job::check(lever.job, job::Runtime::megatron).legal();
    Job sized = lever.job;  // clones take room from the capacity
    sized.cluster.reserved_hbm += Bytes(clone_bytes(lever.job));
    const memory::OutOfMemoryRisk memory = memory::out_of_memory_risk(sized, pipeline, draws);
    row.out_of_memory = memory.probability;
    row.p50 = memory.p50 + Bytes(clone_bytes(lever.job));
    row.p99 = memory.p99 + Bytes(clone_bytes(lever.job));
    time_of(lever, pipeline, risk.balanced_step_s, std::min(draws, 32), estimator, row);
    risk.rows.push_back(std::move(row));
  }
  return risk;
}

}  // namespace trifold::planner

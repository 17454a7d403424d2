// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "hardware/catalogue.h"
#include "model/catalogue.h"
#include "planner/search.h"

// Full estimates (cut, time and memory) a second on one core: distinct legal DeepSeek-V3 Jobs on
// 1,024 H100s, each seen once, in random order. As in a search, many layouts share the prices of
// their blocks: `neighbours` draws 100 Jobs from each of 200 ways of running the blocks; `anywhere`
// draws every Job alone from the whole space.

namespace {

using namespace trifold;

struct Drawn {
  std::vector<job::Job> jobs;
};

planner::Query deepseek() {
  planner::Query q;
  q.model = model::load_model("deepseek-v3", TRIFOLD_SOURCE_DIR).value();
  q.cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  q.gpus = 1024;
  q.training.sequence_length = 4096;
  q.training.global_batch_size = 8192;
  q.training.precision = job::Precision::fp8_block;
  q.training.optimizer.fp8_param_gather = true;
  return q;
}

template <class T>
const T& any(Random& random, const std::vector<T>& values) {
  return values[random.below(values.size())];
}

// Draws until `count` distinct legal Jobs are found; `share` of them in a row share their blocks.
Drawn draw(std::size_t count, std::size_t share) {
  const planner::Query q = deepseek();
  const hardware::Profile profile = hardware::profile_of(q.cluster, TRIFOLD_SOURCE_DIR).value();
  const planner::Space s = planner::make_space(q);
  planner::Explorer explorer(q, s, profile);
  Random random(1);
  Drawn drawn;
  std::set<std::string> seen;
  planner::Geometry g;
  planner::Transport transport;
  planner::MemorySaving saving;
  std::size_t left = 0;
  for (int tries = 0; drawn.jobs.size() < count; ++tries) {
    if (left == 0 || tries > 200 * static_cast<int>(share)) {
      g.tp = any(random, s.tp), g.cp = any(random, s.cp), g.ep = any(random, s.ep);
      g.etp = any(random, s.etp), g.micro_batch_size = any(random, s.micro_batch_size);
      transport = any(random, s.transports), saving = any(random, s.savings);
      left = share, tries = 0;
    }
    g.pp = any(random, s.pp);
    g.fsdp = random.below(4) == 0;
    planner::MemorySaving mine = any(random, s.savings);
    mine.recompute = saving.recompute;
    const planner::Depth depth = any(random, s.depths);
    if (1024 % (g.tp * g.cp * g.pp) != 0 || 1024 % (g.ep * g.etp * g.pp) != 0) continue;
    if (8192 % (1024 / (g.tp * g.cp * g.pp) * g.micro_batch_size) != 0) continue;
    if (g.pp * depth.vpp > 61 || (g.pp == 1 && depth.vpp > 1)) continue;
    job::Job job = planner::base_job(q);
    planner::set_geometry(g, job);
    planner::set_variant(q, depth, transport, mine, job);
    const planner::CutEntry& cut = explorer.cut(g, depth);
    if (cut.pipeline.chunks.empty()) continue;
    job.layout.pipeline_layout = cut.text;
    if (!job::check(job, cut.pipeline).legal() || !seen.insert(job::job_id(job)).second) continue;
    drawn.jobs.push_back(std::move(job));
    --left;
  }
  for (std::size_t i = drawn.jobs.size(); i > 1; --i)
    std::swap(drawn.jobs[i - 1], drawn.jobs[random.below(i)]);
  return drawn;
}

void estimate_all(benchmark::State& state, std::size_t count, std::size_t share) {
  const Drawn drawn = draw(count, share);
  const hardware::Cluster cluster = drawn.jobs.front().cluster;
  const hardware::Profile profile = hardware::profile_of(cluster, TRIFOLD_SOURCE_DIR).value();
  estimate::Estimate estimate;
  layout::Pipeline pipeline;
  for (auto _ : state) {
    estimate::Estimator estimator(cluster, profile);  // caches start empty: no Job is seen twice
    for (const job::Job& job : drawn.jobs) {
      layout::cut_pipeline(job.model, job.layout, pipeline, job.placement());
      estimator.evaluate(job, pipeline, estimate);
      benchmark::DoNotOptimize(estimate.step_time_s);
    }
  }
  state.counters["jobs"] = static_cast<double>(drawn.jobs.size());
  state.counters["estimates_per_s"] = benchmark::Counter(
      static_cast<double>(drawn.jobs.size()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(estimate_all, neighbours, 20000, 100)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(estimate_all, anywhere, 20000, 1)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

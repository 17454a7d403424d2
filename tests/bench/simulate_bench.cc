// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 on 1,024 GPUs, 128 micro-batches a pipeline, operator level, merged forward-backward.
// Issue 5 asks for under 1 s.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "hardware/profile.h"
#include "job/job.h"
#include "timeline/timeline.h"

namespace trifold {
namespace {

constexpr const char* kJob = R"({"schema": "trifold.job/1", "model": "deepseek-v3",
  "cluster": "dgx-h100", "gpus": 1024,
  "training": {"sequence_length": 4096, "global_batch_size": 16384, "micro_batch_size": 1,
               "precision": "fp8_block"},
  "layout": {"tp": 1, "cp": 1, "ep": 64, "etp": 1, "pp": 8, "pipeline_layout": "Et*3|(tt|)*29m|L"},
  "techniques": {"dispatcher": "deepep", "recompute": ["mla_up_proj", "mlp"],
                 "overlap": ["grad_reduce", "param_gather", "pipeline_p2p", "ep_a2a", "delay_wgrad"],
                 "routing": {"balance": "forced"}}})";

void BM_SimulateDeepSeek(benchmark::State& state) {
  job::ReadOptions options;
  options.data_dir = TRIFOLD_SOURCE_DIR;
  Result<job::Job> job = job::read_job(Json::parse(kJob), "bench", options);
  if (!job) std::fprintf(stderr, "%s\n", job.error().to_string().c_str()), std::exit(1);
  Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job->model, job->layout, job->placement());
  Result<hardware::Profile> profile =
      hardware::load_profile(job->cluster.profile, options.data_dir);
  if (!pipeline || !profile) std::exit(1);
  cost::Pricer pricer(job->cluster, *profile);
  std::size_t tasks = 0;
  for (auto _ : state) {  // everything is built anew: no warm buffers
    timeline::Timeline timeline;
    timeline::simulate(*job, *pipeline, pricer, {}, timeline);
    tasks = timeline.tasks;
  }
  state.counters["tasks"] = static_cast<double>(tasks);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tasks));
}
BENCHMARK(BM_SimulateDeepSeek)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trifold

BENCHMARK_MAIN();

// SPDX-License-Identifier: Apache-2.0
// Estimate and simulate share their operators, prices, memory and layouts, so where nothing
// overlaps or contends they must say the same: within 2 % for every Job drawn here. When they
// disagree, one of them has a bug.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "estimate/estimate.h"
#include "job/job.h"
#include "timeline/timeline.h"

namespace trifold {
namespace {

struct Drawn {
  std::string model;
  std::string pipeline_layout;  // empty: even
  bool merged = false, overlapped_sends = false;
  int layers = 8, pp = 1, vpp = 1, tp = 1, ep = 1, microbatches = 4;
  bool split_data_parallel = true;
  std::string dispatcher, precision;
};

Json job_json(const Drawn& d) {
  const int gpus = 64;
  const int dp = gpus / (d.pp * d.tp);
  Json j;
  j["schema"] = "trifold.job/1";
  j["model"] = d.model;
  j["model_overrides"] = {{"num_layers", d.layers}, {"mtp_layers", 0}};
  if (d.model == "deepseek-v3") j["model_overrides"]["dense_prefix_layers"] = 0;
  j["cluster"] = "dgx-h100";
  j["gpus"] = gpus;
  j["training"] = {{"sequence_length", 4096},
                   {"global_batch_size", dp * d.microbatches},
                   {"micro_batch_size", 1},
                   {"precision", d.precision}};
  j["layout"] = {{"tp", d.tp}, {"cp", 1}, {"pp", d.pp}, {"vpp", d.vpp}, {"ep", d.ep}, {"etp", 1}};
  j["techniques"] = {{"dispatcher", d.dispatcher},
                     {"sequence_parallel", d.tp > 1},
                     {"overlap", Json::array()},
                     {"routing", {{"balance", "forced"}}}};
  if (d.merged) j["techniques"]["overlap"] = {"ep_a2a", "delay_wgrad", "pipeline_p2p"};
  if (d.overlapped_sends) j["techniques"]["overlap"] = {"pipeline_p2p"};
  if (!d.pipeline_layout.empty()) {
    j["layout"].erase("vpp");
    j["layout"]["pipeline_layout"] = d.pipeline_layout;
  }
  return j;
}

// Relative difference of the step times; NaN when the Job cannot be read or cut.
double difference(const Drawn& d, std::string& what) {
  const std::string data = TRIFOLD_SOURCE_DIR;
  job::ReadOptions options;
  options.data_dir = data;
  Result<job::Job> job = job::read_job(job_json(d), "drawn", options);
  if (!job) return what = job.error().to_string(), std::nan("");
  Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job->model, job->layout, job->placement());
  if (!pipeline) return what = pipeline.error().to_string(), std::nan("");
  Result<hardware::Profile> profile = hardware::load_profile(job->cluster.profile, data);
  if (!profile) return what = profile.error().to_string(), std::nan("");
  estimate::Estimator estimator(job->cluster, *profile);
  estimate::Estimate closed;
  estimator.evaluate(*job, *pipeline, closed);
  timeline::SimulateOptions simulate_options;
  simulate_options.lowering.contention = false;
  simulate_options.check = true;
  timeline::Timeline timeline;
  timeline::simulate(*job, *pipeline, estimator.pricer(), simulate_options, timeline);
  what = "estimate " + std::to_string(closed.step_time_s) + " s, simulate " +
         std::to_string(timeline.step_time_s) + " s";
  return timeline.step_time_s / closed.step_time_s - 1;
}

TEST(Agreement, EstimateAndSimulateWithinTwoPercent) {
  const bool ok = rc::check("estimate and simulate agree where nothing overlaps", [] {
    Drawn d;
    d.model = *rc::gen::element<std::string>("deepseek-v3", "qwen3-30b-a3b", "llama3-8b");
    d.pp = *rc::gen::element(1, 2, 4);
    d.vpp = d.pp == 1 ? 1 : *rc::gen::element(1, 2);
    d.layers = d.pp * d.vpp * *rc::gen::inRange(1, 4);
    d.tp = *rc::gen::element(1, 2, 4);
    d.ep = d.model == "llama3-8b" ? 1 : *rc::gen::element(4, 8, 16);
    d.microbatches = d.pp * *rc::gen::inRange(2, 9);
    d.dispatcher = *rc::gen::element<std::string>("alltoall", "deepep");
    d.precision = *rc::gen::element<std::string>("bf16", "fp8_block");
    std::string what;
    const double difference_now = difference(d, what);
    RC_PRE(!std::isnan(difference_now));
    RC_LOG() << d.model << " pp " << d.pp << " vpp " << d.vpp << " tp " << d.tp << " ep " << d.ep
             << " layers " << d.layers << " M " << d.microbatches << ": " << what;
    RC_ASSERT(std::abs(difference_now) <= 0.02);
  });
  EXPECT_TRUE(ok);
}

// Few micro-batches: most units are warm-up or cool-down, and overlapped sends show in each round
// of a chunk. Without that term the estimate is 1.5 % short at vpp 3.
TEST(Agreement, OverlappedSendsOfShortPipelines) {
  const bool ok = rc::check("estimate and simulate agree on rounds of warm-up", [] {
    Drawn d;
    d.model = "qwen3-30b-a3b";
    d.overlapped_sends = true;
    d.pp = *rc::gen::element(2, 4, 8);
    d.vpp = *rc::gen::inRange(2, 13);
    d.layers = d.pp * d.vpp;
    d.ep = 8;
    d.microbatches = d.pp * *rc::gen::inRange(1, 3);
    d.dispatcher = "deepep";
    d.precision = "bf16";
    std::string what;
    const double now = difference(d, what);
    RC_PRE(!std::isnan(now));
    RC_LOG() << "pp " << d.pp << " vpp " << d.vpp << " M " << d.microbatches << ": " << what;
    RC_ASSERT(std::abs(now) <= 0.012);
  });
  EXPECT_TRUE(ok);
}

// Chunks of one to three layers anywhere: what the stages lose by waiting for each other, and
// merged layers by having no partner, is closed form too (estimate/lockstep.h). Not exact: 2 % of
// the step at the median, 6 % at most.
TEST(Agreement, UnequalChunks) {
  std::vector<double> errors;
  const bool ok = rc::check("estimate and simulate agree where chunks are unequal", [&errors] {
    Drawn d;
    d.model = *rc::gen::element<std::string>("deepseek-v3", "qwen3-30b-a3b");
    d.pp = *rc::gen::element(2, 4, 8);
    d.vpp = *rc::gen::inRange(2, 5);
    d.ep = 8;
    d.merged = *rc::gen::element(false, true);
    d.microbatches = d.pp * *rc::gen::inRange(4, 9);
    d.dispatcher = "deepep";
    d.precision = "bf16";
    d.layers = 0;
    d.pipeline_layout = "E";
    for (int i = 0; i < d.pp * d.vpp; ++i) {
      const int layers = *rc::gen::weightedElement<int>({{1, 1}, {6, 2}, {1, 3}});
      d.layers += layers;
      if (i > 0) d.pipeline_layout += '|';
      d.pipeline_layout.append(static_cast<std::size_t>(layers), 't');
    }
    d.pipeline_layout += 'L';
    std::string what;
    const double now = difference(d, what);
    if (std::isnan(now)) RC_LOG() << what << ' ' << d.pipeline_layout;
    RC_ASSERT(!std::isnan(now));
    errors.push_back(std::abs(now));
    RC_LOG() << d.model << (d.merged ? " merged " : " ") << d.pipeline_layout << " M "
             << d.microbatches << ": " << what;
    RC_ASSERT(std::abs(now) <= 0.2);
  });
  EXPECT_TRUE(ok);
  if (errors.empty()) return;
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2], p90 = errors[errors.size() * 9 / 10];
  std::printf("unequal chunks: median %.1f %%, 90th percentile %.1f %%, worst %.1f %%\n",
              100 * median, 100 * p90, 100 * errors.back());
  EXPECT_LE(median, 0.025);
  EXPECT_LE(p90, 0.07);
}

}  // namespace
}  // namespace trifold

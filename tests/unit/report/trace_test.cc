// SPDX-License-Identifier: Apache-2.0
// The trace obeys Perfetto's rules: valid JSON, slices of a thread never overlap, every arrow has
// two ends that lie on slices, counters are there, windows cut.
#include "report/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/json.h"
#include "hardware/profile.h"
#include "job/job.h"

namespace trifold::report {
namespace {

long long ns(const Json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

Json trace_of(const TraceOptions& trace_options) {
  const Json json = Json::parse(R"({"schema": "trifold.job/1", "model": "deepseek-v3",
    "cluster": "dgx-h100", "gpus": 64,
    "model_overrides": {"num_layers": 8, "dense_prefix_layers": 0, "mtp_layers": 0},
    "training": {"sequence_length": 4096, "global_batch_size": 128, "micro_batch_size": 1,
                 "precision": "bf16"},
    "layout": {"tp": 1, "cp": 1, "pp": 4, "vpp": 2, "ep": 8, "etp": 1},
    "techniques": {"dispatcher": "deepep", "overlap": ["ep_a2a", "pipeline_p2p"],
                   "routing": {"balance": "forced"}}})");
  job::ReadOptions options;
  options.data_dir = TRIFOLD_SOURCE_DIR;
  Result<job::Job> job = job::read_job(json, "trace", options);
  EXPECT_TRUE(job) << job.error().to_string();
  Result<layout::Pipeline> pipeline =
      layout::build_pipeline(job->model, job->layout, job->placement());
  Result<hardware::Profile> profile =
      hardware::load_profile(job->cluster.profile, options.data_dir);
  cost::Pricer pricer(job->cluster, *profile);
  timeline::Simulator simulator;
  timeline::Timeline timeline;
  simulator.run(*job, *pipeline, pricer, {}, timeline);
  std::string text;
  append_trace(simulator, trace_options, text);
  return Json::parse(text);
}

TEST(Trace, SlicesOfAThreadNeverOverlap) {
  const Json trace = trace_of({});
  using Thread = std::pair<int, int>;
  std::map<Thread, std::map<long long, long long>> threads;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const long long begin = ns(e["ts"]), end = begin + ns(e["dur"]);
    EXPECT_GT(end, begin);
    const Thread thread{e["pid"].get<int>(), e["tid"].get<int>()};
    const bool first = threads[thread].emplace(begin, end).second;
    EXPECT_TRUE(first);
  }
  EXPECT_GT(threads.size(), 8u);
  for (const auto& [thread, slices] : threads) {
    long long last = -1;
    for (const auto& [begin, end] : slices) {
      EXPECT_GE(begin, last);
      last = end;
    }
  }
}

TEST(Trace, ArrowsHaveTwoEndsAndCountersAreThere) {
  const Json trace = trace_of({});
  std::map<long long, int> ends;
  int counters = 0, names = 0;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] == "s") ends[e["id"].get<long long>()] += 1;
    if (e["ph"] == "f") ends[e["id"].get<long long>()] += 2;
    counters += e["ph"] == "C";
    names += e["ph"] == "M" && e["name"] == "process_name";
  }
  EXPECT_EQ(names, 4);
  EXPECT_GT(counters, 0);
  EXPECT_GT(ends.size(), 0u);
  for (const auto& [id, both] : ends) EXPECT_EQ(both, 3) << id;
}

TEST(Trace, WindowsCut) {
  TraceOptions options;
  options.stage = 1;
  options.first_microbatch = options.last_microbatch = 2;
  const Json trace = trace_of(options);
  int slices = 0;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    EXPECT_EQ(e["pid"].get<int>(), 1);
    const int m = e["args"]["microbatch"].get<int>();
    EXPECT_TRUE(m == 2 || m == -1);
    slices += m == 2;
  }
  EXPECT_GT(slices, 0);
}

}  // namespace
}  // namespace trifold::report

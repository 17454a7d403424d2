// SPDX-License-Identifier: Apache-2.0
#include "planner/whatif.h"

#include <gtest/gtest.h>

#include <ctime>

#include "hardware/rescaled.h"
#include "planner/crossing.h"
#include "planner/sensitivity.h"

namespace trifold::planner {
namespace {

const char* const kQwen = R"({"schema": "trifold.job/1", "model": "qwen3-30b-a3b",
  "cluster": "dgx-h100", "gpus": 64,
  "training": {"sequence_length": 4096, "global_batch_size": 512, "micro_batch_size": 1,
               "precision": "bf16"},
  "layout": {"tp": 2, "pp": 4, "vpp": 2, "ep": 8},
  "techniques": {"overlap": ["grad_reduce", "param_gather", "pipeline_p2p"],
                 "dispatcher": "alltoall", "routing": {"balance": "forced"}}})";

// DeepSeek-V3 on 1,024 H100 as published (arXiv:2603.07685).
const char* const kDeepSeek = R"({"schema": "trifold.job/1", "model": "deepseek-v3",
  "cluster": "dgx-h100", "model_overrides": {"mtp_layers": 1}, "gpus": 1024,
  "training": {"sequence_length": 4096, "global_batch_size": 8192, "precision": "fp8_block"},
  "layout": {"tp": 2, "pp": 8, "ep": 64, "pipeline_layout": "Et|(tt|)*30mL"},
  "techniques": {"overlap": ["grad_reduce", "param_gather", "pipeline_p2p", "ep_a2a",
                             "delay_wgrad"],
                 "dispatcher": "deepep", "recompute": ["mla_up_proj", "mlp"]}})";

WhatIf what_if_of(const char* text) {
  Result<Json> json = parse_json(text, "test");
  Result<WhatIf> made = WhatIf::make(*json, "test", TRIFOLD_SOURCE_DIR);
  if (!made) ADD_FAILURE() << made.error().to_string();
  return *made;
}

// The other way to the same number: set, read, estimate.
double step_time(const char* text, const std::vector<std::string>& sets) {
  Result<Json> json = parse_json(text, "test");
  for (const std::string& set : sets) EXPECT_TRUE(job::set_field(*json, set));
  Result<job::Job> job = job::read_job(*json, "test", {TRIFOLD_SOURCE_DIR, true});
  if (!job) return -1;
  Result<estimate::Estimate> e = estimate::estimate_job(*job, TRIFOLD_SOURCE_DIR);
  return e ? e->step_time_s : -1;
}

std::vector<Axis> axes_of(const std::vector<std::string>& texts) {
  std::vector<Axis> axes;
  for (const std::string& text : texts) {
    Result<Axis> axis = parse_axis(text);
    if (!axis) ADD_FAILURE() << axis.error().to_string();
    axes.push_back(*axis);
  }
  return axes;
}

TEST(Axes, KeysAndValues) {
  const Axis ep = axes_of({"ep=8,16"})[0];
  EXPECT_EQ(ep.key, "layout.ep");
  EXPECT_EQ(ep.values, (std::vector<std::string>{"8", "16"}));
  const Axis nic = axes_of({"scaleout_bandwidth=25,400Gbps"})[0];
  EXPECT_EQ(nic.key, "cluster_overrides.scaleout_bytes_per_s");
  EXPECT_EQ(nic.values[0], "25GB/s");  // a bare number of a bandwidth is in GB/s
  // Five evenly spaced points of 100..500; of 1..2 as integers only two differ.
  EXPECT_EQ(axes_of({"scaleout_bytes_per_s=100Gbps..500Gbps:5"})[0].values,
            (std::vector<std::string>{"100Gbps", "200Gbps", "300Gbps", "400Gbps", "500Gbps"}));
  EXPECT_EQ(axes_of({"micro_batch_size=1..2:9"})[0].values, (std::vector<std::string>{"1", "2"}));
}

TEST(Axes, Mistakes) {
  const Result<Axis> misspelt = parse_axis("sequence_lenght=8");
  ASSERT_FALSE(misspelt);
  EXPECT_EQ(misspelt.error().code, ErrorCode::usage);
  EXPECT_NE(misspelt.error().hint.find("training.sequence_length"), std::string::npos);
  EXPECT_FALSE(parse_axis("ep"));
  EXPECT_FALSE(parse_axis("ep=8,,16"));
  EXPECT_FALSE(parse_axis("ep=8..64"));  // a range needs a count or a target
  EXPECT_FALSE(parse_axis("scaleout_bytes_per_s=1GB/s..8Gbps:4"));
  WhatIf w = what_if_of(kQwen);
  EXPECT_FALSE(w.sweep(axes_of({"ep=8", "layout.ep=16"})));
  const auto far = w.sweep(axes_of({"ep=0"}));  // outside 1..65536
  ASSERT_FALSE(far);
  EXPECT_EQ(far.error().code, ErrorCode::input);
  EXPECT_FALSE(w.sweep(axes_of({"dispatcher=deepeep"})));
}

// A point is what `estimate --set` says, whatever the field.
TEST(Sweep, EqualsSettingAndEstimating) {
  WhatIf w = what_if_of(kQwen);
  const char* const kFields[] = {"layout.ep=16",
                                 "training.micro_batch_size=2",
                                 "training.precision=fp8_block",
                                 "gpus=128",
                                 "scaleout_bytes_per_s=800Gbps",
                                 "model_overrides.top_k=4",
                                 "techniques.paged_stash=true",
                                 "training.sequence_length=8192",
                                 "host_bytes_per_s=100GB/s",
                                 "profile=h200",
                                 "scaleup_bytes_per_s=225GB/s",
                                 "techniques.recompute=full"};
  for (const char* field : kFields) {
    const auto points = w.sweep(axes_of({field}));
    ASSERT_TRUE(points) << points.error().to_string();
    ASSERT_EQ(points->size(), 1u);
    const double expected = step_time(kQwen, {field});
    if (expected < 0)
      EXPECT_FALSE((*points)[0].evaluated()) << field;
    else
      EXPECT_DOUBLE_EQ((*points)[0].estimate.step_time_s, expected) << field;
  }
}

TEST(Sweep, ProductInOrderAndListsJoinedByPlus) {
  WhatIf w = what_if_of(kQwen);
  const auto points = w.sweep(axes_of({"ep=8,16", "recompute=none,moe_act,moe_act+layernorm"}));
  ASSERT_TRUE(points);
  ASSERT_EQ(points->size(), 6u);
  EXPECT_EQ((*points)[1].values, (std::vector<std::string>{"8", "moe_act"}));
  EXPECT_EQ((*points)[3].values, (std::vector<std::string>{"16", "none"}));
  EXPECT_EQ((*points)[5].job.techniques.recompute,
            (EnumSet<job::Recompute>{job::Recompute::moe_act, job::Recompute::layernorm}));
  // Recompute costs time and frees memory.
  EXPECT_GT((*points)[1].estimate.step_time_s, (*points)[0].estimate.step_time_s);
  EXPECT_LT((*points)[1].estimate.memory.peak, (*points)[0].estimate.memory.peak);
}

// 128 experts do not divide by 48; tp 2 x pp 4 = 8 ranks hold no ep of 128 (etp 1 x ep 128 x pp 4
// is 512 > 64 GPUs).
TEST(Sweep, IllegalPointsSayWhy) {
  WhatIf w = what_if_of(kQwen);
  const auto points = w.sweep(axes_of({"ep=16,12,128"}));
  ASSERT_TRUE(points);
  EXPECT_TRUE((*points)[0].evaluated());
  for (std::size_t i : {1u, 2u}) {
    EXPECT_EQ((*points)[i].status, PointStatus::illegal);
    ASSERT_NE((*points)[i].verdict.rule, nullptr);
    EXPECT_FALSE(reason_of((*points)[i]).empty());
  }
}

// A layout string of 32 stages does not cut 4 or 16 pipeline ranks of other depths; the cut is made
// anew, and all 61 layers stay.
TEST(Sweep, CutsAnewWhereTheDepthChanges) {
  WhatIf w = what_if_of(kDeepSeek);
  const auto points = w.sweep(axes_of({"pp=4,8,16"}));
  ASSERT_TRUE(points) << points.error().to_string();
  for (const Point& p : *points) {
    ASSERT_TRUE(p.evaluated()) << reason_of(p);
    const auto pipeline = layout::build_pipeline(p.job.model, p.job.layout, p.job.placement());
    ASSERT_TRUE(pipeline);
    int layers = 0;
    for (const layout::Chunk& chunk : pipeline->chunks) layers += chunk.layers;
    EXPECT_EQ(layers, 61);
  }
}

TEST(Sweep, FasterLinksAreNeverSlower) {
  WhatIf w = what_if_of(kQwen);
  for (const char* key : {"scaleup_bytes_per_s", "scaleout_bytes_per_s"}) {
    const auto points = w.sweep(axes_of({std::string(key) + "=50GB/s,100GB/s,450GB/s,900GB/s"}));
    ASSERT_TRUE(points);
    for (std::size_t i = 1; i < points->size(); ++i)
      EXPECT_LE((*points)[i].estimate.step_time_s, (*points)[i - 1].estimate.step_time_s) << key;
    EXPECT_LT(points->back().estimate.step_time_s, points->front().estimate.step_time_s) << key;
  }
}

// Twice the rate halves what grows with bytes and leaves the latency.
TEST(Rescaled, KeepsLatency) {
  hardware::Profile profile;
  hardware::CollectiveCurve curve;
  curve.bytes = {1024, 1e6, 1e9};
  curve.seconds = {1e-5, 3e-5, 4e-3};
  profile.collectives[0].push_back(curve);
  const hardware::Profile twice = hardware::rescaled(profile, 2.0);
  EXPECT_DOUBLE_EQ(twice.collectives[0][0].seconds[0], 1e-5);
  EXPECT_DOUBLE_EQ(twice.collectives[0][0].seconds[1], 2e-5);
  EXPECT_DOUBLE_EQ(twice.collectives[0][0].seconds[2], 1e-5 + (4e-3 - 1e-5) / 2);
  EXPECT_EQ(twice.collectives[0][0].basis, hardware::Basis::scaled);
}

// What is in the JSON is all that is needed: no catalogue, the same numbers.
TEST(WithoutFiles, SameNumbers) {
  WhatIf files = what_if_of(kDeepSeek);
  job::Job whole = files.base();
  whole.model_origin = {}, whole.cluster_origin = {};
  Result<WhatIf> made = WhatIf::make(job::to_json(whole), "page", files.profile());
  ASSERT_TRUE(made) << made.error().to_string();
  for (const char* set : {"ep=32", "micro_batch_size=2", "scaleout_bytes_per_s=100Gbps"}) {
    Result<job::Job> a = files.read({set}), b = made->read({set});
    ASSERT_TRUE(a && b) << set;
    Point pa, pb;
    ASSERT_TRUE(files.evaluate(*a, pa) && made->evaluate(*b, pb));
    EXPECT_DOUBLE_EQ(pa.estimate.step_time_s, pb.estimate.step_time_s) << set;
    EXPECT_EQ(pa.estimate.memory.peak, pb.estimate.memory.peak) << set;
  }
}

// Bisection agrees with trying every value.
TEST(Until, FindsTheFirstCrossing) {
  WhatIf w = what_if_of(kQwen);
  const Range range = *parse_range("sequence_length=4096..65536");
  const Target target = *parse_target("headroom=20GiB");
  EXPECT_DOUBLE_EQ(target.value, 20.0 * 1024 * 1024 * 1024);
  Result<Crossing> c = find_crossing(w, range, target);
  ASSERT_TRUE(c) << c.error().to_string();
  ASSERT_TRUE(c->found);
  EXPECT_GE(*metric("headroom", c->before.estimate), target.value);
  EXPECT_LT(*metric("headroom", c->beyond.estimate), target.value);
  EXPECT_LT(std::stoll(c->before.values[0]), std::stoll(c->beyond.values[0]));
  // No legal length lies between the two.
  for (long long s = std::stoll(c->before.values[0]) + 1; s < std::stoll(c->beyond.values[0]);
       ++s) {
    Point p;
    Result<job::Job> job = w.read({"sequence_length=" + std::to_string(s)});
    ASSERT_TRUE(job && w.evaluate(*job, p));
    EXPECT_FALSE(p.evaluated()) << s;
  }
}

TEST(Until, RealsToRelativePrecision) {
  WhatIf w = what_if_of(kQwen);
  const double base =
      w.sweep(axes_of({"scaleout_bytes_per_s=50GB/s"}))->front().estimate.step_time_s;
  const Range range = *parse_range("scaleout_bytes_per_s=5GB/s..100GB/s");
  const Target target{"step_time", base};
  Result<Crossing> c = find_crossing(w, range, target);
  ASSERT_TRUE(c) << c.error().to_string();
  ASSERT_TRUE(c->found);
  EXPECT_NEAR(c->value, 50, 50 * 2e-4);  // in the unit that was written
  EXPECT_LE(c->evaluations, 17 + 24);    // log2(6 / 0.005) halvings of a sixteenth
  Result<Crossing> never = find_crossing(w, range, {"step_time", base * 1000});
  ASSERT_TRUE(never);
  EXPECT_FALSE(never->found);
}

TEST(Until, Mistakes) {
  const Result<Target> misspelt = parse_target("headrom=10GiB");
  ASSERT_FALSE(misspelt);
  EXPECT_NE(misspelt.error().hint.find("headroom"), std::string::npos);
  EXPECT_FALSE(parse_target("headroom"));
  EXPECT_FALSE(parse_target("ep_share=5GiB"));
  EXPECT_DOUBLE_EQ(parse_target("ep_share=5%")->value, 0.05);
  EXPECT_FALSE(parse_range("ep=8"));
  EXPECT_FALSE(parse_range("ep=64..8"));
  EXPECT_FALSE(parse_range("dispatcher=alltoall..deepep"));
}

TEST(Replan, NoWorseThanThePointAsItIs) {
  WhatIf w = what_if_of(R"({"schema": "trifold.job/1", "model": "olmoe-1b-7b",
    "cluster": "dgx-h100", "gpus": 8,
    "training": {"sequence_length": 4096, "global_batch_size": 64},
    "layout": {"ep": 8}, "techniques": {"overlap": ["grad_reduce", "param_gather"],
    "fusions": ["cross_entropy", "router", "permute"]}})");
  const std::vector<Axis> axes = axes_of({"ep=4,8"});
  const auto as_is = w.sweep(axes), planned = w.replan(axes);
  ASSERT_TRUE(as_is && planned) << planned.error().to_string();
  for (std::size_t i = 0; i < axes[0].values.size(); ++i) {
    ASSERT_TRUE((*planned)[i].evaluated());
    EXPECT_EQ((*planned)[i].job.layout.ep, std::stoi(axes[0].values[i]));
    // Within 1 % the planner lists the plainest plan, not the fastest.
    EXPECT_LE((*planned)[i].estimate.step_time_s, (*as_is)[i].estimate.step_time_s * 1.011);
  }
  EXPECT_FALSE(w.replan(axes_of({"techniques.overlap=none"})));  // the search chooses it
}

// 20 layouts and micro-batches x 50 NIC rates on DeepSeek-V3 in under a second of one core.
TEST(Speed, ThousandPoints) {
#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "timed in optimised builds alone";
#endif
  WhatIf w = what_if_of(kDeepSeek);
  const std::clock_t begin = std::clock();
  const auto points = w.sweep(axes_of({"ep=8,16,32,64", "micro_batch_size=1,2,4,8,16",
                                       "scaleout_bytes_per_s=100Gbps..800Gbps:50"}));
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(points);
  EXPECT_EQ(points->size(), 1000u);
  EXPECT_LT(seconds, 1.0);
  std::printf("1,000 points: %.3f s of CPU\n", seconds);
}

// Elasticity of a rate that does nothing is zero; step time never grows with a rate. Bars of the
// switched techniques equal evaluating the switched Job.
TEST(Sensitivity, SignsAndSwitches) {
  WhatIf w = what_if_of(kQwen);
  const Sensitivity s = sensitivity(w.base(), w.profile());
  double sum = 0;
  for (const RateBar& bar : s.rates) {
    EXPECT_LE(bar.elasticity, 1e-12) << bar.name;
    sum += bar.elasticity;
    if (bar.key == "cluster_overrides.hbm_bytes") {
      EXPECT_EQ(bar.elasticity, 0);
      // 10 % of the 85,520,809,984-byte order of an H100's HBM each way.
      const double hbm = static_cast<double>(w.base().cluster.gpu.hbm.value());
      EXPECT_NEAR(static_cast<double>((bar.headroom_high - bar.headroom_low).value()), 0.2 * hbm,
                  4);
    }
  }
  EXPECT_GT(sum, -1.2);  // of all rates together: nothing is faster than proportional
  EXPECT_LT(sum, -0.5);
  bool found = false;
  for (const TechniqueBar& bar : s.techniques) {
    if (bar.name != "without gradient and parameter overlap") continue;
    found = true;
    const double expected = step_time(kQwen, {"techniques.overlap=pipeline_p2p"});
    EXPECT_DOUBLE_EQ(bar.step_time_s, expected);
    EXPECT_GT(bar.change, 0);
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace trifold::planner

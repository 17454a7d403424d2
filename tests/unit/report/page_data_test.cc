// SPDX-License-Identifier: Apache-2.0
#include "report/page_data.h"

#include <gtest/gtest.h>

#include <set>

#include "estimate/estimate.h"
#include "planner/whatif.h"
#include "report/ladder_text.h"
#include "report/whatif_text.h"

namespace trifold::report {
namespace {

const char* const kJob = R"({"schema": "trifold.job/1", "model": "qwen3-30b-a3b",
  "cluster": "dgx-h100", "gpus": 64,
  "training": {"sequence_length": 4096, "global_batch_size": 128, "micro_batch_size": 1,
               "precision": "bf16"},
  "layout": {"tp": 2, "pp": 4, "vpp": 2, "ep": 8},
  "techniques": {"overlap": ["grad_reduce", "param_gather", "pipeline_p2p"],
                 "dispatcher": "alltoall", "routing": {"balance": "forced"}}})";

struct Made {
  PageInput input;
  hardware::Profile profile;
  Json page;
};

const Made& made() {
  static const Made* const kMade = [] {
    auto* m = new Made;
    m->input.job = *job::read_job(*parse_json(kJob, "test"), "test", {TRIFOLD_SOURCE_DIR, true});
    m->input.data_dir = TRIFOLD_SOURCE_DIR;
    m->input.command = "trifold report <job> & \"more\"";
    m->input.most_slices = 3000;
    m->profile = *hardware::profile_of(m->input.job.cluster, TRIFOLD_SOURCE_DIR);
    Result<Json> page = page_data(m->input, m->profile);
    if (!page) ADD_FAILURE() << page.error().to_string();
    m->page = *page;
    return m;
  }();
  return *kMade;
}

TEST(PageData, HasEveryPartOfItsSchema) {
  const Json& page = made().page;
  EXPECT_EQ(page["schema"], "trifold.page/1");
  for (const char* key :
       {"title", "provenance", "inputs", "estimate", "candidates", "timeline", "memory", "sweeps",
        "heatmap", "icicle", "ranks", "ladder", "sensitivity", "controls", "confidence"})
    EXPECT_FALSE(page[key].is_null()) << key;
  EXPECT_TRUE(page.contains("whatif"));
  EXPECT_EQ(page["provenance"]["command"], made().input.command);  // data, not markup
}

TEST(PageData, ShowsTheEstimateOfTheCommandLine) {
  const Json& page = made().page;
  Result<estimate::Estimate> e = estimate::estimate_job(made().input.job, TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(e);
  EXPECT_EQ(page["estimate"], estimate::to_json(*e, made().input.job));
  const Json& shown = page["candidates"][0];
  EXPECT_DOUBLE_EQ(shown["step_time_s"]["value"].get<double>(), e->step_time_s);
  double walls = 0;  // the bar is the whole step
  for (const auto& wall : shown["walls_s"]) walls += wall.get<double>();
  EXPECT_NEAR(walls, e->step_time_s, 1e-9 * e->step_time_s);
}

// The worker reads the Job back without a catalogue and gets the same step.
TEST(PageData, InputsStandAlone) {
  const Json& inputs = made().page["inputs"];
  Result<hardware::Profile> profile = hardware::read_profile(inputs["profile"], "page");
  ASSERT_TRUE(profile) << profile.error().to_string();
  Result<planner::WhatIf> w = planner::WhatIf::make(inputs["job"], "page", *profile);
  ASSERT_TRUE(w) << w.error().to_string();
  planner::Point point;
  ASSERT_TRUE(w->evaluate(w->base(), point));
  const double shown = made().page["estimate"]["step_time_s"]["value"].get<double>();
  EXPECT_NEAR(point.estimate.step_time_s, shown, 1e-9 * shown);
}

TEST(PageData, SlicesAreColumnsInOrderWithoutOverlap) {
  const Json& t = made().page["timeline"];
  const auto column = [&](const char* name) {
    return t["slices"][name].get<std::vector<std::int64_t>>();
  };
  const auto stage = column("stage"), stream = column("stream"), start = column("start_ns"),
             duration = column("duration_ns"), name = column("name"), category = column("category");
  ASSERT_FALSE(stage.empty());
  EXPECT_LE(stage.size(), 3000u);
  EXPECT_GE(t["total_slices"].get<std::size_t>(), stage.size());
  EXPECT_TRUE(t["merged"].get<bool>());
  std::set<std::int64_t> stages(stage.begin(), stage.end());
  EXPECT_EQ(stages.size(), 4u);
  for (std::size_t i = 0; i < stage.size(); ++i) {
    EXPECT_LT(name[i], static_cast<std::int64_t>(t["names"].size()));
    EXPECT_LT(category[i], static_cast<std::int64_t>(t["categories"].size()));
    EXPECT_LE(start[i] + duration[i], t["step_time_s"].get<double>() * 1e9 + 1);
    if (i == 0 || stage[i] != stage[i - 1] || stream[i] != stream[i - 1]) continue;
    EXPECT_GE(start[i], start[i - 1] + duration[i - 1]);
  }
}

TEST(PageData, HeatmapIsAFullGridAndHoldsTheBase) {
  const Json& h = made().page["heatmap"];
  ASSERT_EQ(h["cells"].size(), h["x"].size() * h["y"].size());
  const double shown = made().page["estimate"]["step_time_s"]["value"].get<double>();
  bool found = false;
  for (const Json& cell : h["cells"]) {
    if (cell["status"] == "illegal") {
      EXPECT_TRUE(cell["step_time_s"].is_null());
      EXPECT_FALSE(cell["reason"].get<std::string>().empty());
    }
    if (cell["x"] != 8 || cell["y"] != 4) continue;
    found = true;
    EXPECT_DOUBLE_EQ(cell["step_time_s"].get<double>(), shown);
  }
  EXPECT_TRUE(found);
}

std::int64_t check_sums(const Json& node, const char* key) {
  const std::int64_t own = node[key].get<std::int64_t>();
  if (!node.contains("children") || node["children"].empty()) return own;
  std::int64_t sum = 0;
  for (const Json& child : node["children"]) sum += check_sums(child, key);
  EXPECT_EQ(sum, own) << node["name"];
  return own;
}

TEST(PageData, IcicleAddsUp) {
  const Json& roots = made().page["icicle"]["children"];
  // Qwen3-30B-A3B: 30.53 B parameters by its name and published config.
  const auto parameters = static_cast<double>(check_sums(roots[0], "parameters"));
  EXPECT_NEAR(parameters, 30.5e9, 0.1e9);
  const std::int64_t bytes = check_sums(roots[1], "bytes");
  EXPECT_EQ(bytes, made().page["estimate"]["memory"]["peak_bytes"].get<std::int64_t>());
}

// tp 2, cp 1, ep 8, pp 4 on 64 GPUs of 8 a node: rank 9 is tp 1, dp 4, pp 0, node 1, ep 1.
TEST(PageData, RanksByNode) {
  const Json& c = made().page["ranks"]["columns"];
  EXPECT_EQ(made().page["ranks"]["shown"], 64);
  EXPECT_EQ(c["node"][9], 1);
  EXPECT_EQ(c["tp"][9], 1);
  EXPECT_EQ(c["dp"][9], 4);
  EXPECT_EQ(c["pp"][9], 0);
  EXPECT_EQ(c["pp"][63], 3);
  EXPECT_EQ(c["ep"][9], 1);
}

TEST(PageData, WhatIfPointsBecomeCandidates) {
  Result<planner::WhatIf> w =
      planner::WhatIf::make(*parse_json(kJob, "test"), "test", TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(w);
  WhatIfAnswer answer;
  answer.base = w->base();
  ASSERT_TRUE(w->evaluate(w->base(), answer.base_point));
  answer.axes = {*planner::parse_axis("ep=4,12,16")};
  answer.points = *w->sweep(answer.axes);
  PageInput input = made().input;
  input.whatif = whatif_json(answer);
  ASSERT_EQ(input.whatif["points"].size(), 3u);
  EXPECT_EQ(input.whatif["points"][0]["vary"]["layout.ep"], "4");
  EXPECT_TRUE(input.whatif["points"][1]["estimate"].is_null());
  EXPECT_EQ(input.whatif["points"][1]["verdict"]["status"], "illegal");
  EXPECT_FALSE(input.whatif["points"][1]["verdict"]["rule"].is_null());
  Result<Json> page = page_data(input, made().profile);
  ASSERT_TRUE(page) << page.error().to_string();
  int seen = 0;
  for (const Json& c : (*page)["candidates"])
    if (c["group"] == "what-if") {
      ++seen;
      EXPECT_EQ(c["step_time_s"].is_null(), c["status"] == "illegal");
    }
  EXPECT_EQ(seen, 3);
}

TEST(PageData, IllegalJobsExplain) {
  PageInput input = made().input;
  input.job.layout.ep = 12;
  const Result<Json> page = page_data(input, made().profile);
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code, ErrorCode::infeasible);
}

TEST(PageData, SameBytes) {
  Result<Json> again = page_data(made().input, made().profile);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->dump(), made().page.dump());
  std::printf("page data: %zu bytes, timeline %zu\n", made().page.dump().size(),
              made().page["timeline"].dump().size());
}

}  // namespace
}  // namespace trifold::report

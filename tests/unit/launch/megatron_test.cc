// SPDX-License-Identifier: Apache-2.0
// Megatron-LM itself judges what emit() writes: its parser, validators, configuration classes and
// process groups, run by ../shared/tools/megatron_check.py over stand-ins for torch.
//
// TRIFOLD_MEGATRON_DIR names a folder with checkouts `0.16` .. `0.19` and `main` (any of them), or
// one checkout, taken as main.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "launch/emit.h"
#include "layout/rank_grid.h"
#include "model/size.h"
#include "tests/unit/launch/jobs.h"

namespace trifold::launch {
namespace {

namespace fs = std::filesystem;
using layout::Axis;

const std::string kChecker = std::string(TRIFOLD_SOURCE_DIR) + "/../shared/tools/megatron_check.py";

struct Checkout {
  MegatronVersion version;
  std::string directory;
};

std::vector<Checkout> checkouts() {
  std::vector<Checkout> found;
  const char* named = std::getenv("TRIFOLD_MEGATRON_DIR");
  if (named == nullptr || !fs::exists(kChecker)) return found;
  const std::string base = named;
  if (fs::exists(base + "/megatron")) return {{MegatronVersion::main, base}};
  for (const Token<MegatronVersion>& version : kMegatronVersions)
    if (fs::exists(base + "/" + std::string(version.name) + "/megatron"))
      found.push_back({version.value, base + "/" + std::string(version.name)});
  return found;
}

const char* gpu_name(const job::Job& job) {
  switch (job.cluster.gpu.arch) {
    case hardware::GpuArch::ampere:
      return "a100";
    case hardware::GpuArch::hopper:
      return "h100";
    case hardware::GpuArch::blackwell:
      return "b200";
  }
  return "";
}

Result<Json> judge(const job::Job& job, const LaunchPlan& plan, const Checkout& checkout) {
  Json json;
  json["world_size"] = job.gpus;
  json["gpu"] = gpu_name(job);
  json["env"] = plan.environment;
  json["args"] = plan.arguments.words();
  const std::string file = (fs::temp_directory_path() / "trifold_megatron_plan.json").string();
  TRIFOLD_TRY(write_text(file, json.dump()));
  const std::string command = "/usr/bin/python3 " + kChecker + " --megatron " + checkout.directory +
                              " --plan " + file + " --json --groups all";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return input_error("cannot run " + command);
  std::string text;
  std::array<char, 65536> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  pclose(pipe);
  return parse_json(text, command);
}

using Groups = std::set<std::vector<int>>;

Groups ours(const layout::RankGrid& grid, const std::vector<Axis>& axes) {
  Groups out;
  for (const std::vector<RankId>& group : grid.groups(axes)) {
    std::vector<int> ranks;
    for (RankId rank : group) ranks.push_back(static_cast<int>(rank.value()));
    std::sort(ranks.begin(), ranks.end());
    out.insert(ranks);
  }
  return out;
}

Groups theirs(const Json& list) {
  Groups out;
  for (const Json& group : list) {
    std::vector<int> ranks = group.get<std::vector<int>>();
    std::sort(ranks.begin(), ranks.end());
    out.insert(ranks);
  }
  return out;
}

void expect_groups(const job::Job& job, const Json& report, const std::string& what) {
  const layout::RankGrid grid(job.layout, job.gpus);
  struct Row {
    const char* name;
    std::vector<Axis> axes;
  };
  const Row rows[] = {{"TENSOR_MODEL_PARALLEL_GROUP", {Axis::tp}},
                      {"CONTEXT_PARALLEL_GROUP", {Axis::cp}},
                      {"DATA_PARALLEL_GROUP", {Axis::dp}},
                      {"DATA_PARALLEL_GROUP_WITH_CP", {Axis::cp, Axis::dp}},
                      {"PIPELINE_MODEL_PARALLEL_GROUP", {Axis::pp}},
                      {"EXPERT_MODEL_PARALLEL_GROUP", {Axis::ep}},
                      {"EXPERT_DATA_PARALLEL_GROUP", {Axis::edp}},
                      {"EXPERT_TENSOR_PARALLEL_GROUP", {Axis::etp}}};
  for (const Row& row : rows) {
    ASSERT_TRUE(report.at("groups").contains(row.name)) << what << row.name;
    EXPECT_EQ(ours(grid, row.axes), theirs(report.at("groups").at(row.name))) << what << row.name;
  }
}

void expect_layers(const job::Job& job, const Json& report, const std::string& what) {
  const Result<layout::Pipeline> pipeline = layout::build_pipeline(job.model, job.layout);
  ASSERT_TRUE(pipeline) << what;
  const Json& stages = report.at("layers_by_pp_and_chunk");
  for (int r = 0; r < job.layout.pp; ++r)
    for (int k = 0; k < job.layout.vpp; ++k)
      EXPECT_EQ(stages.at(static_cast<std::size_t>(r)).at(static_cast<std::size_t>(k)).at("layers"),
                pipeline->at(r, k).layers)
          << what << "stage " << r << " chunk " << k;
}

void expect_flops(const job::Job& job, const Json& report, const std::string& what) {
  const double tokens = static_cast<double>(job.training.global_batch_size) *
                        static_cast<double>(job.training.sequence_length);
  const double megatron =
      report.at("megatron_numbers").at("flops_per_global_batch").get<double>() / tokens;
  // A windowed layer sees fewer keys; Megatron's count takes the whole sequence.
  model::Model whole = job.model;
  for (model::LayerKind& layer : whole.layers) layer.windowed = false;
  // Megatron counts a third matrix for --swiglu alone, though --quick-geglu has one too.
  if (whole.activation == model::Activation::quick_geglu)
    whole.activation = model::Activation::gelu;
  const double mine =
      model::train_flops_per_token(whole, job.training.sequence_length, job.layout.tp);
  EXPECT_NEAR(mine / megatron, 1.0, 1e-9) << what;
}

TEST(Megatron, AcceptsEveryPlanAndSeesTheSameGroupsLayersAndFlops) {
  const std::vector<Checkout> all = checkouts();
  if (all.empty())
    GTEST_SKIP() << "TRIFOLD_MEGATRON_DIR names no checkout, or " << kChecker << " is absent";
  const char* only = std::getenv("TRIFOLD_MEGATRON_MODEL");
  for (const JobRow& row : kJobRows) {
    if (only != nullptr && std::string(only) != row.model) continue;
    const Result<job::Job> job = make_job(row);
    ASSERT_TRUE(job) << job.error().to_string();
    for (const Checkout& checkout : all) {
      const std::string what = std::string(row.model) + " on " + std::to_string(row.gpus) +
                               ", Megatron " +
                               std::string(token_name(kMegatronVersions, checkout.version)) + ": ";
      const Result<LaunchPlan> plan = emit(*job, {checkout.version, 50});
      ASSERT_TRUE(plan) << what << plan.error().to_string();
      const Result<Json> report = judge(*job, *plan, checkout);
      ASSERT_TRUE(report) << what << report.error().to_string();
      if (report->at("verdict") != "ACCEPT") {
        ADD_FAILURE() << what << report->at("stages").back().dump();
        continue;
      }
      expect_groups(*job, *report, what);
      expect_layers(*job, *report, what);
      if (checkout.version == MegatronVersion::main) expect_flops(*job, *report, what);
    }
  }
}

}  // namespace
}  // namespace trifold::launch

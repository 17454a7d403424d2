// SPDX-License-Identifier: Apache-2.0
// Megatron-LM itself judges what emit() writes, for plans of the planner and for some written by
// hand: its parser, validators, configuration classes and process groups, run by
// ../shared/tools/megatron_check.py over stand-ins for torch. Then its groups are compared with our
// rank map, its layers per stage with our cut, its FLOPs per token with our count.
//
// TRIFOLD_MEGATRON_DIR names a folder with checkouts `0.16` .. `0.19` and `main` (any of them), or
// one checkout, taken as main.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/json.h"
#include "job/legality.h"
#include "launch/check.h"
#include "launch/emit.h"
#include "layout/rank_grid.h"
#include "model/size.h"
#include "planner/search.h"
#include "tests/unit/launch/random_jobs.h"

namespace trifold::launch {
namespace {

namespace fs = std::filesystem;
using layout::Axis;

const std::string kChecker = std::string(TRIFOLD_SOURCE_DIR) + "/../shared/tools/megatron_check.py";
const std::string kBatch = std::string(TRIFOLD_SOURCE_DIR) + "/tests/unit/launch/megatron_batch.py";

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

Result<std::string> output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return input_error("cannot run " + command);
  std::string text;
  std::array<char, 65536> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  if (pclose(pipe) != 0) return input_error("failed: " + command);
  return text;
}

// One report a plan, in order. All plans are for the same kind of GPU.
Result<std::vector<Json>> judge(const std::vector<const job::Job*>& jobs,
                                const std::vector<LaunchPlan>& plans, const Checkout& checkout) {
  std::string lines;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    Json json;
    json["world_size"] = jobs[i]->gpus;
    json["env"] = plans[i].environment;
    json["args"] = plans[i].arguments.words();
    lines += json.dump() + "\n";
  }
  char directory[] = "/tmp/trifold_megatron_XXXXXX";
  if (mkdtemp(directory) == nullptr) return input_error("no directory under /tmp");
  const std::string file = std::string(directory) + "/plans.jsonl";
  TRIFOLD_TRY(write_text(file, lines));
  const Result<std::string> text =
      output_of("/usr/bin/python3 " + kBatch + " " + kChecker + " " + checkout.directory + " " +
                gpu_name(*jobs[0]) + " < " + file);
  fs::remove_all(directory);
  if (!text) return text.error();
  std::vector<Json> reports;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    TRIFOLD_ASSIGN(report, parse_json(text->substr(at, end - at), "megatron_batch.py"));
    reports.push_back(std::move(report));
    at = end + 1;
  }
  if (reports.size() != plans.size())
    return input_error("reports are missing", "megatron_batch.py");
  return reports;
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

std::string version_name(const Checkout& checkout) {
  return std::string(token_name(kMegatronVersions, checkout.version));
}

struct Verdicts {
  int accepted = 0, refused = 0;       // refused: by emit(), with a reason
  std::map<std::string, int> reasons;  // of those
};

// Every Job through emit() and Megatron, and what Megatron makes of it against what we do. The
// first counts as `best`.
void expect_accepted(const std::vector<job::Job>& jobs, const std::string& name,
                     const Checkout& checkout, Verdicts& best, Verdicts& others) {
  std::vector<const job::Job*> sent;
  std::vector<LaunchPlan> plans;
  for (const job::Job& job : jobs) {
    Result<LaunchPlan> plan = emit(job, {checkout.version, 50});
    if (plan) {
      sent.push_back(&job);
      plans.push_back(*std::move(plan));
      continue;
    }
    Verdicts& verdicts = &job == &jobs.front() ? best : others;
    ++verdicts.refused;
    ++verdicts.reasons[plan.error().where + ": " + plan.error().message];
  }
  if (sent.empty()) return;
  const Result<std::vector<Json>> reports = judge(sent, plans, checkout);
  ASSERT_TRUE(reports) << name << reports.error().to_string();
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const Json& report = (*reports)[i];
    const std::string what =
        name + ", plan " + job::job_id(*sent[i]) + ", Megatron " + version_name(checkout) + ": ";
    if (report.at("verdict") != "ACCEPT") {
      for (const Json& stage : report.at("stages"))
        if (stage.at("status") != "ok") ADD_FAILURE() << what << stage.dump();
      std::printf("%s\n", job::to_json(*sent[i]).dump().c_str());
      continue;
    }
    ++(sent[i] == &jobs.front() ? best : others).accepted;
    expect_groups(*sent[i], report, what);
    expect_layers(*sent[i], report, what);
    expect_flops(*sent[i], report, what);
    // And our own rules say the same as Megatron.
    CheckOptions options;
    options.version = checkout.version;
    options.gpus = sent[i]->gpus;
    options.arch = sent[i]->cluster.gpu.arch;
    for (const Finding& f : check_arguments(plans[i].arguments, plans[i].environment, options))
      EXPECT_NE(f.severity, Severity::reject) << what << explain(f);
  }
}

bool chosen(const char* model) {
  const char* only = std::getenv("TRIFOLD_MEGATRON_MODEL");
  return only == nullptr || std::string(only) == model;
}

void print(const std::map<std::string, Verdicts>& by_version) {
  for (const auto& [version, v] : by_version) {
    std::printf("Megatron %-4s: %d accepted, %d refused by emit\n", version.c_str(), v.accepted,
                v.refused);
    for (const auto& [reason, count] : v.reasons) std::printf("  %4d %s\n", count, reason.c_str());
  }
}

TEST(Megatron, AcceptsPlansWrittenByHand) {
  const std::vector<Checkout> all = checkouts();
  if (all.empty())
    GTEST_SKIP() << "TRIFOLD_MEGATRON_DIR names no checkout, or " << kChecker << " is absent";
  std::map<std::string, std::vector<job::Job>> jobs;  // by kind of GPU: one run of Megatron each
  for (const JobRow& row : kJobRows) {
    if (!chosen(row.model)) continue;
    Result<job::Job> job = make_job(row);
    ASSERT_TRUE(job) << job.error().to_string();
    jobs[gpu_name(*job)].push_back(*std::move(job));
  }
  std::map<std::string, Verdicts> verdicts;
  for (const auto& [gpu, list] : jobs)
    for (const Checkout& checkout : all) {
      Verdicts& v = verdicts[version_name(checkout)];
      expect_accepted(list, gpu, checkout, v, v);
    }
  print(verdicts);
  for (const auto& [version, v] : verdicts) EXPECT_EQ(v.refused, 0) << version;
}

// What legality promises, at random: Megatron takes what we call legal, and what emit() refuses for
// an old version is the only loss.
TEST(Megatron, AcceptsRandomLegalJobs) {
  const std::vector<Checkout> all = checkouts();
  if (all.empty())
    GTEST_SKIP() << "TRIFOLD_MEGATRON_DIR names no checkout, or " << kChecker << " is absent";
  const char* many = std::getenv("TRIFOLD_MEGATRON_JOBS");
  const int count = many != nullptr ? std::atoi(many) : 60;
  std::map<std::string, std::vector<job::Job>> jobs;
  for (int i = 0; i < count; ++i) {
    job::Job job = random_legal_job(static_cast<std::uint64_t>(i));
    jobs[gpu_name(job)].push_back(std::move(job));
  }
  std::map<std::string, Verdicts> verdicts;
  for (const auto& [gpu, list] : jobs)
    for (const Checkout& checkout : all) {
      Verdicts& v = verdicts[version_name(checkout)];
      expect_accepted(list, "random on " + gpu, checkout, v, v);
    }
  print(verdicts);
  EXPECT_EQ(verdicts["main"].refused, 0);
}

struct PlanRow {
  const char* model;
  const char* cluster;
  int gpus;
  std::int64_t batch;
  const char* precision;
};
constexpr PlanRow kPlanRows[] = {
    {"deepseek-v3", "dgx-h100", 512, 4096, "fp8_block"},
    {"deepseek-v3", "dgx-h100", 1024, 8192, "fp8_block"},
    {"deepseek-v3", "hgx-h800", 2048, 15360, "fp8_block"},
    {"deepseek-v3", "gb200-nvl72", 256, 2048, "mxfp8"},
    {"deepseek-v3", "dgx-b200", 256, 2048, "mxfp8"},
    {"qwen3-235b-a22b", "dgx-h100", 128, 1024, "bf16"},
    {"qwen3-235b-a22b", "dgx-h100", 256, 2048, "bf16"},
    {"qwen3-235b-a22b", "dgx-h200", 512, 4096, "fp8_block"},
    {"qwen3-235b-a22b", "gb200-nvl72", 64, 1024, "mxfp8"},
    {"qwen3-30b-a3b", "dgx-h100", 16, 512, "bf16"},
    {"qwen3-30b-a3b", "dgx-h100", 64, 512, "bf16"},
    {"qwen3-30b-a3b", "dgx-h200", 32, 512, "fp8_tensor"},
    {"qwen3-30b-a3b", "gb200-nvl72", 16, 512, "nvfp4"},
    {"mixtral-8x7b", "dgx-a100", 64, 512, "bf16"},
    {"mixtral-8x7b", "dgx-h100", 64, 256, "bf16"},
    {"mixtral-8x7b", "dgx-h100", 128, 1024, "fp8_delayed"},
    {"mixtral-8x7b", "dgx-b200", 32, 256, "mxfp8"},
    {"mixtral-8x22b", "dgx-h100", 64, 256, "bf16"},
    {"mixtral-8x22b", "dgx-h100", 128, 256, "bf16"},
    {"mixtral-8x22b", "dgx-h100", 256, 1024, "fp8_tensor"},
    {"mixtral-8x22b", "dgx-b200", 64, 256, "mxfp8"},
    {"gpt-oss-120b", "dgx-h100", 64, 512, "bf16"},
    {"gpt-oss-120b", "dgx-h200", 128, 1024, "bf16"},
    {"gpt-oss-120b", "gb200-nvl72", 64, 1024, "mxfp8"},
    {"gpt-oss-120b", "gb300-nvl72", 72, 1152, "bf16"},
    {"kimi-k2", "dgx-h100", 1024, 8192, "fp8_block"},
    {"kimi-k2", "gb200-nvl72", 256, 2048, "mxfp8"},
    {"kimi-k2", "gb300-nvl72", 512, 4096, "mxfp8"},
    {"kimi-k2", "dgx-b300", 256, 2048, "bf16"},
    {"glm-4.5", "dgx-h100", 256, 2048, "bf16"},
    {"glm-4.5", "dgx-h100", 512, 4096, "fp8_block"},
    {"glm-4.5", "gb200-nvl72", 128, 1024, "mxfp8"},
    {"glm-4.5", "dgx-b200", 64, 512, "bf16"},
    {"llama3.1-405b", "dgx-h100", 512, 512, "bf16"},
    {"llama3.1-405b", "dgx-h100", 1024, 1024, "fp8_tensor"},
    {"llama3.1-405b", "dgx-h200", 256, 256, "bf16"},
    {"llama3.1-405b", "gb200-nvl72", 256, 512, "mxfp8"},
};

// Best first: the listed plans, then the best of each geometry that Megatron can run.
Result<std::vector<job::Job>> planned(const PlanRow& row) {
  const std::string data_dir = TRIFOLD_SOURCE_DIR;
  planner::Query query;
  TRIFOLD_ASSIGN(model, model::load_model(row.model, data_dir));
  TRIFOLD_ASSIGN(cluster, hardware::load_cluster(row.cluster, data_dir));
  TRIFOLD_ASSIGN(precision, parse_token(job::kPrecisions, row.precision, "precision", "row"));
  TRIFOLD_ASSIGN(profile, hardware::load_profile(cluster.profile, data_dir));
  query.model = std::move(model);
  query.cluster = std::move(cluster);
  query.gpus = row.gpus;
  query.training.global_batch_size = row.batch;
  query.training.precision = precision;
  query.training.optimizer.fp8_param_gather = job::is_low_precision(precision);  // as trifold plan
  TRIFOLD_ASSIGN(result, planner::plan(query, profile));
  std::vector<job::Job> jobs;
  std::set<std::string> seen;
  for (const planner::Candidate& plan : result.plans)
    if (seen.insert(job::job_id(plan.job)).second) jobs.push_back(plan.job);
  for (const auto& [kind, plan] : result.geometries)
    if (plan.launchable && seen.insert(job::job_id(plan.job)).second) jobs.push_back(plan.job);
  return jobs;
}

TEST(Megatron, AcceptsThePlannersPlans) {
  const std::vector<Checkout> all = checkouts();
  if (all.empty())
    GTEST_SKIP() << "TRIFOLD_MEGATRON_DIR names no checkout, or " << kChecker << " is absent";
  std::map<std::string, Verdicts> best, others;
  for (const PlanRow& row : kPlanRows) {
    if (!chosen(row.model)) continue;
    const std::string name = std::string(row.model) + " on " + std::to_string(row.gpus) + " x " +
                             row.cluster + " in " + row.precision;
    const Result<std::vector<job::Job>> jobs = planned(row);
    ASSERT_TRUE(jobs) << name << ": " << jobs.error().to_string();
    ASSERT_FALSE(jobs->empty()) << name;
    for (const Checkout& checkout : all) {
      const std::string version = version_name(checkout);
      // Every version for the best plan; the oldest and the youngest for the others.
      const bool edge = &checkout == &all.front() || &checkout == &all.back();
      if (!edge && std::getenv("TRIFOLD_MEGATRON_ALL") == nullptr)
        expect_accepted({jobs->front()}, name, checkout, best[version], others[version]);
      else
        expect_accepted(*jobs, name, checkout, best[version], others[version]);
    }
    std::printf("%s: %zu plans\n", name.c_str(), jobs->size());
    std::fflush(stdout);
  }
  std::printf("The best plan of each row\n");
  print(best);
  std::printf("The next ones, and the best of each launchable geometry\n");
  print(others);
  // What `trifold plan` calls launchable, emit() writes for the version that it writes for.
  EXPECT_EQ(best["main"].refused + others["main"].refused, 0);
}

}  // namespace
}  // namespace trifold::launch

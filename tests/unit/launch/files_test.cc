// SPDX-License-Identifier: Apache-2.0
// The files that start a run: shells accept them, and a stand-in for torchrun gets what was meant.

#include "launch/files.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "base/json.h"
#include "tests/unit/launch/jobs.h"

namespace trifold::launch {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int status = 0;
  std::string output;
};

Ran run(const std::string& command) {
  Ran ran;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    ran.output.append(buffer.data(), n);
  ran.status = pclose(pipe);
  return ran;
}

bool there(const char* program) { return run(std::string("command -v ") + program).status == 0; }

class LaunchFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = (fs::temp_directory_path() / ("trifold_launch_" + name)).string();
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  job::Job write(const JobRow& row) {
    job::Job job = *make_job(row);
    plan_ = *emit(job);
    ScriptOptions options;
    options.plan_id = "0123456789abcdef";
    options.step_time_s = 12.5, options.low_s = 11, options.high_s = 14;
    const Result<void> written =
        write_launch_directory(directory_, launch_files(job, plan_, options));
    EXPECT_TRUE(written) << (written ? "" : written.error().to_string());
    return job;
  }
  std::string text(const char* name) { return *read_text(directory_ + "/" + name); }

  std::string directory_;
  LaunchPlan plan_;
};

TEST_F(LaunchFiles, ShellsAndShellcheckAcceptTheScripts) {
  for (const JobRow& row : kJobRows) {
    write(row);
    for (const char* name : {"launch.sh", "submit.sbatch"}) {
      const std::string file = directory_ + "/" + name;
      EXPECT_EQ(run("bash -n " + file).status, 0) << file;
      if (!there("shellcheck")) continue;
      const Ran checked = run("shellcheck --shell=bash " + file);
      EXPECT_EQ(checked.status, 0) << row.model << "\n" << checked.output;
    }
  }
}

TEST_F(LaunchFiles, TorchrunGetsTheArgumentsAndTheVariables) {
  write(kJobRows[0]);
  const std::string bin = directory_ + "/bin";
  fs::create_directories(bin);
  ASSERT_TRUE(write_text(bin + "/torchrun",
                         "#!/bin/bash\nprintf '%s\\n' \"$@\"\necho "
                         "CONNECTIONS=$CUDA_DEVICE_MAX_CONNECTIONS\n"));
  fs::permissions(bin + "/torchrun", fs::perms::owner_all);
  const Ran ran =
      run("cd / && PATH=" + bin + ":$PATH NODE_RANK=3 MASTER_ADDR=head " +
          "EXTRA_ARGS='--train-iters 5 --moe-layer-recompute' bash " + directory_ + "/launch.sh");
  ASSERT_EQ(ran.status, 0) << ran.output;
  std::string expected =
      "--nnodes\n128\n--nproc-per-node\n8\n--node-rank\n3\n--master-addr\nhead\n--master-"
      "port\n29500"
      "\n/opt/megatron-lm/pretrain_gpt.py\n";
  EXPECT_EQ(ran.output.substr(0, expected.size()), expected);
  for (const Argument& argument : plan_.arguments.items) {
    std::string lines = argument.flag + "\n";
    for (const std::string& value : argument.values) lines += value + "\n";
    EXPECT_NE(ran.output.find("\n" + lines), std::string::npos) << lines;
  }
  EXPECT_NE(ran.output.find("\n--train-iters\n5\n--moe-layer-recompute\n"), std::string::npos);
  EXPECT_NE(ran.output.find("CONNECTIONS=32\n"), std::string::npos);  // EP overlap
  EXPECT_NE(text("launch.sh").find("# predicted step time 12.500 s"), std::string::npos);
  EXPECT_NE(text("launch.sh").find("# trifold plan 0123456789abcdef"), std::string::npos);
}

TEST_F(LaunchFiles, SlurmKeepsAnNvlinkDomainTogether) {
  write(kJobRows[2]);  // 256 GB200: 64 nodes of 4, 64 of 72 GPUs used: 16 nodes a domain
  const std::string script = text("submit.sbatch");
  EXPECT_NE(script.find("#SBATCH --nodes=64\n"), std::string::npos);
  EXPECT_NE(script.find("#SBATCH --segment=16\n"), std::string::npos);
  write(kJobRows[0]);
  EXPECT_EQ(text("submit.sbatch").find("--segment"), std::string::npos);
}

TEST_F(LaunchFiles, TheManifestHasTheFieldsOfAPyTorchJob) {
  if (run("python3 -c 'import yaml'").status != 0) GTEST_SKIP() << "python3-yaml is absent";
  write(kJobRows[0]);
  const Ran ran = run("python3 -c 'import json, yaml; print(json.dumps(yaml.safe_load(open(\"" +
                      directory_ + "/pytorchjob.yaml\"))))'");
  const Result<Json> json = parse_json(ran.output, "pytorchjob.yaml");
  ASSERT_TRUE(json) << ran.output;
  EXPECT_EQ(json->at("apiVersion"), "kubeflow.org/v1");
  EXPECT_EQ(json->at("kind"), "PyTorchJob");
  const Json& spec = json->at("spec");
  EXPECT_EQ(spec.at("nprocPerNode"), "8");
  const Json& replicas = spec.at("pytorchReplicaSpecs");
  EXPECT_EQ(replicas.at("Master").at("replicas"), 1);
  EXPECT_EQ(replicas.at("Worker").at("replicas"), 127);
  const Json& container = replicas.at("Worker").at("template").at("spec").at("containers").at(0);
  EXPECT_EQ(container.at("name"), "pytorch");  // the operator looks for this name
  EXPECT_EQ(container.at("resources").at("limits").at("nvidia.com/gpu"), 8);
  EXPECT_TRUE(container.at("args").at(0).is_string());
}

// World 64, tp 2, cp 2, pp 2, ep 8 (megatron.md section 3): rank 41 is on host 5, slot 1;
// 41 % 2 = 1, 41 / 2 % 2 = 0, 41 / 4 % 8 = 2, 41 / 32 = 1; ep 41 % 8 = 1, edp 41 / 8 % 4 = 1.
TEST_F(LaunchFiles, RanksHaveMegatronsCoordinates) {
  write({"qwen3-30b-a3b", "dgx-h100", 64, 2, 2, 2, 1, 8, "", "alltoall"});
  const Result<Json> ranks = parse_json(text("ranks.json"), "ranks.json");
  ASSERT_TRUE(ranks);
  EXPECT_EQ(ranks->at("schema"), "trifold.ranks/1");
  ASSERT_EQ(ranks->at("ranks").size(), 64u);
  EXPECT_EQ(ranks->at("ranks").at(41), Json({41, 5, 1, 1, 0, 2, 1, 0, 1, 1}));
}

TEST_F(LaunchFiles, BridgeOverridesUseItsOwnNames) {
  write(kJobRows[0]);
  const std::string overrides = text("bridge_overrides.txt");
  for (const char* line :
       {"model.tensor_model_parallel_size=2\n", "model.num_moe_experts=256\n",
        "'model.pipeline_model_parallel_layout=Et|(tt|)*30mL'\n", "train.micro_batch_size=1\n",
        "mixed_precision.fp8_recipe=blockwise\n", "model.add_bias_linear=false\n",
        "'model.recompute_modules=[moe_act,mla_up_proj]'\n"})
    EXPECT_NE(overrides.find(line), std::string::npos) << line;
}

TEST_F(LaunchFiles, WritingAgainKeepsWhatIsNotOurs) {
  write(kJobRows[0]);
  ASSERT_TRUE(write_text(directory_ + "/notes.txt", "mine"));
  write(kJobRows[2]);
  EXPECT_EQ(text("notes.txt"), "mine");
  EXPECT_NE(text("launch.sh").find("gb200"), std::string::npos);
  EXPECT_FALSE(fs::exists(directory_ + "/.launch.sh.new"));
  EXPECT_FALSE(write_launch_directory("/proc/trifold", {{"a", "b"}}));
}

}  // namespace
}  // namespace trifold::launch

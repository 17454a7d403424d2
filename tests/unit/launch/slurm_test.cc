// SPDX-License-Identifier: Apache-2.0
// submit.sbatch under a real Slurm of one node (slurm_test.sh starts and stops it), with a stand-in
// for torchrun.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "launch/files.h"
#include "tests/unit/launch/jobs.h"

namespace trifold::launch {
namespace {

TEST(Slurm, TheJobStartsTorchrunOnItsNode) {
  for (const char* program : {"slurmctld", "slurmd", "munged", "sbatch"})
    if (std::system(
            (std::string("PATH=$PATH:/usr/sbin command -v ") + program + " > /dev/null").c_str()) !=
        0)
      GTEST_SKIP() << program << " is absent: install slurm-wlm and munge";
  if (geteuid() != 0) GTEST_SKIP() << "the test's Slurm runs as root";
  job::Job job = *make_job({"qwen3-30b-a3b", "dgx-h100", 2, 1, 1, 1, 1, 2, "", "alltoall"});
  const LaunchPlan plan = *emit(job);
  const std::string directory =
      (std::filesystem::temp_directory_path() / "trifold_slurm_job").string();
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(write_launch_directory(directory, launch_files(job, plan, {})));
  const std::string command = "PATH=$PATH:/usr/sbin bash " + std::string(TRIFOLD_SOURCE_DIR) +
                              "/tests/unit/launch/slurm_test.sh " + directory + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    output.append(buffer.data(), n);
  ASSERT_EQ(pclose(pipe), 0) << output;
  const std::string expected =
      "NODE_RANK=0 NNODES=1 MASTER_ADDR=localhost SLURM_PROCID=0\n--nnodes\n1\n--nproc-per-node\n2"
      "\n--node-rank\n0\n--master-addr\nlocalhost\n--master-port\n29500\n"
      "/opt/megatron-lm/pretrain_gpt.py\n--num-layers\n48\n";
  EXPECT_EQ(output.substr(0, expected.size()), expected);
  EXPECT_NE(output.find("\n--expert-model-parallel-size\n2\n"), std::string::npos);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace trifold::launch

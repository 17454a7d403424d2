// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/bootstrap.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <map>
#include <thread>

namespace trifold::calibrate {
namespace {

std::map<std::string, std::string> environment;
const char* fake(const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}
Result<Launch> launch_of(std::map<std::string, std::string> variables) {
  environment = std::move(variables);
  return read_launch(fake);
}

TEST(ReadLaunch, APlainProcessIsAWorldOfOne) {
  const Result<Launch> launch = launch_of({});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->world, 1);
  EXPECT_TRUE(launch->launcher.empty());
}

TEST(ReadLaunch, Torchrun) {
  const Result<Launch> launch = launch_of({{"RANK", "9"},
                                           {"WORLD_SIZE", "16"},
                                           {"LOCAL_RANK", "1"},
                                           {"MASTER_ADDR", "node0"},
                                           {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "torchrun");
  EXPECT_EQ(launch->rank, 9);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->address, "node0");
  EXPECT_EQ(launch->port, 29501);  // torchrun's own store holds 29500
}

TEST(ReadLaunch, SrunFindsTheFirstHostOfTheJob) {
  const Result<Launch> launch = launch_of({{"SLURM_PROCID", "3"},
                                           {"SLURM_NTASKS", "8"},
                                           {"SLURM_LOCALID", "3"},
                                           {"SLURM_JOB_ID", "4711"},
                                           {"SLURM_JOB_NODELIST", "gpu[07-10,12]"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "srun");
  EXPECT_EQ(launch->address, "gpu07");
  EXPECT_GE(launch->port, 20000);
  EXPECT_LT(launch->port, 32000);
}

TEST(ReadLaunch, MpirunOnOneHostNeedsNoAddress) {
  const Result<Launch> one = launch_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                        {"OMPI_COMM_WORLD_SIZE", "4"},
                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->address, "127.0.0.1");
  const Result<Launch> two = launch_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                        {"OMPI_COMM_WORLD_SIZE", "8"},
                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().where, "MASTER_ADDR");
}

TEST(ReadLaunch, ContradictionsNameTheVariable) {
  const Result<Launch> outside = launch_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().where, "RANK");
  EXPECT_EQ(outside.error().code, ErrorCode::environment);
  const Result<Launch> word = launch_of({{"RANK", "first"}, {"WORLD_SIZE", "4"}});
  ASSERT_FALSE(word);
  EXPECT_NE(word.error().message.find("first"), std::string::npos);
  const Result<Launch> port = launch_of(
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"TRIFOLD_PORT", "99999"}});
  ASSERT_FALSE(port);
  EXPECT_EQ(port.error().where, "TRIFOLD_PORT");
}

TEST(FirstHost, ReadsSlurmLists) {
  EXPECT_EQ(first_host("node7"), "node7");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[03-06,9],gpu1"), "node03");
  EXPECT_EQ(first_host("rack[2,4]-gpu,other"), "rack2-gpu");
}

TEST(ThreadControl, AgreesAndAborts) {
  ThreadGroup group(3);
  std::vector<double> top(3);
  std::vector<int> sum(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      Control control(&group, r);
      for (int round = 0; round < 200; ++round) {
        const int mine = r * 1000 + round;
        const auto all = control.all_gather(&mine, sizeof(mine));
        if (!all) return;
        for (const auto& part : *all) {
          int value = 0;
          std::memcpy(&value, part.data(), sizeof(value));
          sum[static_cast<std::size_t>(r)] += value - round;
        }
      }
      top[static_cast<std::size_t>(r)] = *control.max(r * 1.5);
    });
  for (std::thread& t : threads) t.join();
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(sum[static_cast<std::size_t>(r)], 200 * 3000);  // 0 + 1000 + 2000 each round
    EXPECT_EQ(top[static_cast<std::size_t>(r)], 3.0);
  }
  std::thread waits([&] { EXPECT_FALSE(Control(&group, 0).barrier()); });
  group.abort();
  waits.join();
}

TEST(TcpControl, BroadcastsOverThreadsThatActAsProcesses) {
  Launch launch;
  launch.world = 3;
  launch.port = 23000 + static_cast<int>(::getpid()) % 4000;
  std::vector<std::vector<std::uint8_t>> got(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      Launch mine = launch;
      mine.rank = r;
      Result<Control> control = Control::connect(mine, 20);
      ASSERT_TRUE(control) << control.error().to_string();
      std::vector<std::uint8_t> data;
      if (r == 0) data.assign(1000, 42);
      ASSERT_TRUE(control->broadcast(data));
      got[static_cast<std::size_t>(r)] = data;
      EXPECT_FALSE(*control->all(r != 1));
    });
  for (std::thread& t : threads) t.join();
  for (const auto& data : got) EXPECT_EQ(data, std::vector<std::uint8_t>(1000, 42));
}

TEST(TcpControl, AMissingRankIsAnErrorNotAHang) {
  Launch launch;
  launch.world = 2;
  launch.port = 27000 + static_cast<int>(::getpid()) % 4000;
  const Result<Control> control = Control::connect(launch, 1);
  ASSERT_FALSE(control);
  EXPECT_NE(control.error().message.find("1 of 2 ranks"), std::string::npos);
}

}  // namespace
}  // namespace trifold::calibrate

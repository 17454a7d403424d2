// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/nccl_tests.h"

#include <gtest/gtest.h>

namespace trifold::fit {
namespace {

using hardware::Collective;

constexpr const char* kText = R"(# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_gather_perf
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   1001 on     host0 device  0 [0000:1b:00] NVIDIA H200
#  Rank  1 Group  0 Pid   1001 on     host0 device  1 [0000:43:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           128     float    none      -1     9.95    0.10    0.05       0     9.40    0.11    0.05       0
        2048           256     float    none      -1    10.10    0.20    0.10       3     9.70    0.21    0.11     N/A
        4096           512     float    none      -1    12.50    0.33    0.16     N/A     9.90    0.41    0.21     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.1
)";

TEST(NcclTests, ReadsTheTextLog) {
  const Result<PointsFile> file = import_nccl_tests(kText, "log");
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->points.size(), 3u);
  EXPECT_EQ(file->provenance.gpu, "NVIDIA H200");
  EXPECT_EQ(file->points[0].op, "all_gather");
  EXPECT_EQ(file->points[0].shape[0], 2);
  EXPECT_EQ(file->points[2].shape[1], 4096);
  EXPECT_DOUBLE_EQ(file->points[2].us, 12.5);  // out of place, the first of the two
  EXPECT_FALSE(file->points[0].flags.contains(PointFlag::bad));
  EXPECT_TRUE(file->points[1].flags.contains(PointFlag::bad));  // 3 wrong
  EXPECT_FALSE(file->points[2].flags.contains(PointFlag::bad));
}

TEST(NcclTests, SaysOnHowManyHostsTheRanksSat) {
  const Result<PointsFile> one = import_nccl_tests(kText, "log");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->points[0].variant, "stream");
  std::string text = kText;
  const std::string second = "on     host0 device  1";
  text.replace(text.find(second), second.size(), "on     host1 device  0");
  const Result<PointsFile> two = import_nccl_tests(text, "log");
  ASSERT_TRUE(two);
  EXPECT_EQ(two->points[0].variant, "stream_hosts2");
}

TEST(NcclTests, OldLogsNeedTheNameOfTheOperation) {
  std::string text = kText;
  const std::string line = "# Collective test starting: all_gather_perf\n";
  text.erase(text.find(line), line.size());
  EXPECT_FALSE(import_nccl_tests(text, "log"));
  NcclTestsHint hint;
  hint.op = Collective::reduce_scatter;
  const Result<PointsFile> file = import_nccl_tests(text, "log", hint);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->points[0].op, "reduce_scatter");
}

TEST(NcclTests, ReadsTheJsonLog) {
  const char* text = R"({"version":3,"args":["./build/alltoall_perf","-b","1M"],
    "nccl_version":"2.28.9","devices":[{"rank":0},{"rank":1},{"rank":2},{"rank":3}],
    "results":[{"size":1048576,"count":65536,"type":"float",
      "out_of_place":{"time":18.5,"alg_bw":56.7,"bus_bw":42.5,"nwrong":0},
      "in_place":{"time":17.0}},
      {"size":2097152,"out_of_place":{"time":21.25,"nwrong":1}}]})";
  const Result<PointsFile> file = import_nccl_tests(text, "log.json");
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->points.size(), 2u);
  EXPECT_EQ(file->points[0].op, "all_to_all");
  EXPECT_EQ(file->points[0].shape[0], 4);
  EXPECT_DOUBLE_EQ(file->points[0].us, 18.5);
  EXPECT_TRUE(file->points[1].flags.contains(PointFlag::bad));
  EXPECT_EQ(file->provenance.nccl, "2.28.9");
}

TEST(NcclTests, SaysWhatIsMissing) {
  EXPECT_FALSE(import_nccl_tests("", "log"));
  EXPECT_FALSE(import_nccl_tests("{\"version\":3}", "log"));
  EXPECT_FALSE(import_nccl_tests("hello world\n", "log"));
}

}  // namespace
}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/journal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace trifold::calibrate {
namespace {

using fit::Point;
using fit::PointFlag;

struct File {
  std::string path;
  File() {
    char name[] = "/tmp/trifold_journal_XXXXXX";
    const int descriptor = ::mkstemp(name);
    if (descriptor >= 0) ::close(descriptor);
    path = name;
  }
  ~File() { std::remove(path.c_str()); }
  std::string text() const {
    std::ifstream in(path);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
};

fit::PointsFile header() {
  fit::PointsFile h;
  h.provenance.gpu = "NVIDIA H200";
  h.provenance.driver = "580.1";
  h.provenance.cuda = "13.0";
  h.provenance.nccl = "2.28.3";
  h.gpus = 2;
  return h;
}

Point gemm(double m) {
  Point p;
  p.op = "forward";
  p.shape = {m, 4096, 7168, 0};
  p.us = m / 10;
  return p;
}

TEST(Journal, ResumesWhatItHolds) {
  File file;
  {
    Result<Journal> journal = Journal::open(file.path, header(), false);
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append(gemm(128)));
    ASSERT_TRUE(journal->append(gemm(256)));
    EXPECT_TRUE(journal->holds(gemm(128)));
    EXPECT_FALSE(journal->holds(gemm(512)));
  }
  Result<Journal> again = Journal::open(file.path, header(), false);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->resumed(), 2);
  EXPECT_TRUE(again->holds(gemm(256)));
  Point measured = gemm(256);
  measured.us = 1;
  measured.samples = 31;
  EXPECT_TRUE(again->holds(measured)) << "a result is not part of the question";
  ASSERT_TRUE(again->append(gemm(512)));
  Result<fit::PointsFile> read = fit::read_points(file.path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->points.size(), 3u);
}

TEST(Journal, CutsATornLineAndGoesOn) {
  File file;
  {
    Result<Journal> journal = Journal::open(file.path, header(), false);
    ASSERT_TRUE(journal && journal->append(gemm(128)));
  }
  std::ofstream(file.path, std::ios::app) << R"({"family":"gemm","op":"forw)";
  Result<Journal> again = Journal::open(file.path, header(), false);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->resumed(), 1);
  ASSERT_TRUE(again->append(gemm(256)));
  Result<fit::PointsFile> read = fit::read_points(file.path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_FALSE(read->torn);
  ASSERT_EQ(read->points.size(), 2u);
  EXPECT_EQ(read->points[1].shape[0], 256);
}

TEST(Journal, AKilledRunLeavesAValidFile) {
  File file;
  std::remove(file.path.c_str());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<Journal> journal = Journal::open(file.path, header(), false);
    if (!journal) ::_exit(1);
    for (int m = 1;; ++m)
      if (!journal->append(gemm(m))) ::_exit(1);
  }
  ::usleep(200000);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  Result<Journal> again = Journal::open(file.path, header(), false);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_GT(again->resumed(), 0);
  ASSERT_TRUE(again->append(gemm(1e6)));
  Result<fit::PointsFile> read = fit::read_points(file.path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->points.back().shape[0], 1e6);
  EXPECT_EQ(static_cast<int>(read->points.size()), again->resumed() + 1);
}

TEST(Journal, RefusesAnotherMachine) {
  File file;
  { ASSERT_TRUE(Journal::open(file.path, header(), false)); }
  fit::PointsFile other = header();
  other.provenance.driver = "999";
  Result<Journal> refused = Journal::open(file.path, other, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::input);
  EXPECT_NE(refused.error().message.find("999"), std::string::npos);
  EXPECT_NE(refused.error().hint.find("--restart"), std::string::npos);
  EXPECT_TRUE(Journal::open(file.path, other, true)) << "--restart starts over";
  EXPECT_NE(file.text().find("999"), std::string::npos);
}

TEST(Journal, RefusesAFileThatHoldsSomethingElse) {
  File file;
  const std::string before = "{\"schema\":\"trifold.plan/1\"}\n";
  std::ofstream(file.path) << before;
  Result<Journal> refused = Journal::open(file.path, header(), false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(file.text(), before) << "left as it was";
  EXPECT_FALSE(Journal::open("/nonexistent/points", header(), false));
}

TEST(Journal, AnchorsAndThrottledPointsAreMeasuredAgain) {
  File file;
  {
    Result<Journal> journal = Journal::open(file.path, header(), false);
    ASSERT_TRUE(journal);
    Point anchor = gemm(128), slow = gemm(256);
    anchor.flags.insert(PointFlag::anchor);
    slow.flags.insert(PointFlag::throttled);
    ASSERT_TRUE(journal->append(anchor) && journal->append(slow));
  }
  Result<Journal> again = Journal::open(file.path, header(), false);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->holds(gemm(128)));
  EXPECT_FALSE(again->holds(gemm(256)));
}

TEST(PointKey, LeavesOutResults) {
  Point a = gemm(64), b = gemm(64);
  b.us = 5, b.clock_mhz = 1980, b.flags.insert(PointFlag::unstable);
  EXPECT_EQ(point_key(a), point_key(b));
  b.variant = "sms100";
  EXPECT_NE(point_key(a), point_key(b));
  Point x, y;
  x.family = y.family = fit::PointFamily::overlap;
  x.shape = {1024, 8, 0, 0};
  y.shape = {1024, 8, 0, 77.5};  // alone_us is measured
  EXPECT_EQ(point_key(x), point_key(y));
}

}  // namespace
}  // namespace trifold::calibrate

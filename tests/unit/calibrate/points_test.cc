// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/points.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "calibrate/fit/csv.h"

namespace trifold::fit {
namespace {

Point gemm_point() {
  Point p;
  p.op = "wgrad";
  p.variant = "f32";
  p.dtype = hardware::Dtype::fp8_block;
  p.shape = {4096, 7168, 2048, 0};
  p.us = 184.5;
  p.us_p10 = 183;
  p.us_p90 = 190.25;
  p.samples = 11;
  p.clock_mhz = 1755;
  p.flags = {PointFlag::burst, PointFlag::throttled};
  return p;
}

PointsFile header() {
  PointsFile file;
  file.provenance.gpu = "NVIDIA H200";
  file.provenance.nccl = "2.28.9";
  file.gpus = 2;
  file.topology = "NV18";
  return file;
}

TEST(Points, ALineReadsBackAsItWasWritten) {
  const std::string text = header_line(header()) + "\n" + point_line(gemm_point()) + "\n";
  const Result<PointsFile> file = parse_points(text, "p");
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->provenance.gpu, "NVIDIA H200");
  EXPECT_EQ(file->gpus, 2);
  EXPECT_FALSE(file->torn);
  ASSERT_EQ(file->points.size(), 1u);
  EXPECT_EQ(point_line(file->points[0]), point_line(gemm_point()));
  EXPECT_TRUE(file->points[0].flags == gemm_point().flags);
  EXPECT_EQ(file->points[0].shape, gemm_point().shape);
}

TEST(Points, ATornLastLineIsDroppedAndSaid) {
  const std::string line = point_line(gemm_point());
  const std::string text = header_line(header()) + "\n" + line + "\n" + line.substr(0, 40);
  const Result<PointsFile> file = parse_points(text, "p");
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_TRUE(file->torn);
  EXPECT_EQ(file->points.size(), 1u);
}

TEST(Points, ATornLineInTheMiddleIsAnErrorWithItsNumber) {
  const std::string line = point_line(gemm_point());
  const std::string text = header_line(header()) + "\n" + line.substr(0, 40) + "\n" + line + "\n";
  const Result<PointsFile> file = parse_points(text, "p");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().where.find("p:2"), std::string::npos) << file.error().to_string();
}

TEST(Points, UnknownWordsAreRefused) {
  const std::string text = header_line(header()) +
                           "\n{\"family\":\"gem\",\"op\":\"forward\",\"shape\":{\"m\":1,\"n\":1,"
                           "\"k\":1},\"us\":1}\n";
  const Result<PointsFile> file = parse_points(text, "p");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().to_string().find("gemm"), std::string::npos) << "names the nearest word";
  EXPECT_FALSE(parse_points("{\"schema\":\"trifold.points/9\"}\n", "p"));
  EXPECT_FALSE(parse_points("", "p"));
}

TEST(Points, AppendingRepairsATornTail) {
  const std::string path = testing::TempDir() + "/trifold_points_test.jsonl";
  std::remove(path.c_str());
  ASSERT_TRUE(append_points(path, header(), {gemm_point()}));
  std::FILE* f = std::fopen(path.c_str(), "ab");
  ASSERT_NE(f, nullptr);
  std::fputs("{\"family\":\"ge", f);
  std::fclose(f);
  ASSERT_TRUE(append_points(path, header(), {gemm_point(), gemm_point()}));
  const Result<PointsFile> file = read_points(path);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->points.size(), 3u);
  EXPECT_FALSE(file->torn);
  std::remove(path.c_str());
}

TEST(Csv, SkipsBannersAndRepeatedHeaders) {
  const Result<Csv> csv = Csv::parse("# device\na,b\n1,x\nnoise\na,b\n2.5,y\r\n", "t");
  ASSERT_TRUE(csv);
  ASSERT_EQ(csv->rows(), 2u);
  EXPECT_EQ(csv->number(1, "a"), 2.5);
  EXPECT_EQ(csv->text(1, "b"), "y");
  EXPECT_NE(csv->number(0, "b"), csv->number(0, "b"));  // not a number
}

}  // namespace
}  // namespace trifold::fit

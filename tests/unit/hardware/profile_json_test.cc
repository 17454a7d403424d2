// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "hardware/profile.h"

namespace trifold::hardware {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json sample() {
  Result<Json> json = parse_json(R"({
    "schema": "trifold.profile/1",
    "name": "h100",
    "provenance": {"gpu": "NVIDIA H100 80GB HBM3", "nccl": "2.29.2", "source": "a \"quoted\" [table]"},
    "gemm": {"bf16": {"forward": {"m": [128, 4096], "n": [512, 7168], "k": [2048],
        "utilisation": [0.12, 0.25, 0.61, 0.72], "support": [0, 1, 1, 1],
        "error": 0.07, "basis": "interpolated"}}},
    "grouped_gemm": {"fp8_block": {"wgrad": {"tokens_per_expert": [256], "n": [4096], "k": [7168],
        "utilisation": [0.4], "error": 0.1, "basis": "scaled"}}},
    "grouped_launch": {"cutlass": {"bf16": {"efficiency": 0.5, "weight_rate": 0.9, "row_rate": 0.4,
        "launch_s": 1e-05, "tile_rows": 128, "error": 0.1, "basis": "scaled"}}},
    "attention": {"forward": {"sequence": [512, 4096], "head_dim": [128], "heads_batch": [64],
        "utilisation": [0.11, 0.58], "error": 0.05, "basis": "measured"}},
    "collectives": {"all_gather": [
        {"ranks": 2, "bytes": [1024, 1048576], "seconds": [5.2e-06, 1.13e-05], "error": 0.1,
         "basis": "measured", "source": "nccl-tests"},
        {"ranks": 8, "bytes": [1024, 1048576], "seconds": [1.04e-05, 1.71e-05], "error": 0.1,
         "basis": "measured"}]},
    "dispatchers": {"deepep": {"scaleup_efficiency": 0.77, "scaleout_efficiency": 0.9,
        "bytes_per_s_per_sm": 1.5e10, "sm_s_per_row": 1e-7, "latency_s": 2e-05, "latency_scaleout_s": 1e-4,
        "default_sms": 20, "basis": "measured", "error": 0.15}},
    "constants": {"kernel_gap_s": {"value": 3e-06, "basis": "scaled", "source": "fit",
        "fitted": true}}
  })",
                                 "sample");
  EXPECT_TRUE(json) << json.error().to_string();
  return *json;
}

Profile read(const Json& json) {
  Result<Profile> profile = read_profile(json, "p.json");
  EXPECT_TRUE(profile) << profile.error().to_string();
  return *profile;
}

// The error of a sample with one value replaced (by JSON pointer), or "accepted".
std::string error_with(const char* pointer, const Json& value) {
  Json json = sample();
  json[Json::json_pointer(pointer)] = value;
  Result<Profile> profile = read_profile(json, "p.json");
  return profile ? "accepted" : profile.error().to_string();
}

TEST(ProfileJson, ReadsEveryField) {
  const Profile p = read(sample());
  EXPECT_EQ(p.name, "h100");
  EXPECT_EQ(p.provenance.nccl, "2.29.2");
  const Known u = p.gemm_utilisation(Dtype::bf16, GemmPass::forward, 4096, 7168, 2048);
  EXPECT_NEAR(u.value, 0.72, 1e-12);
  EXPECT_EQ(u.error, 0.07);
  EXPECT_EQ(p.gemm_utilisation(Dtype::bf16, GemmPass::forward, 128, 512, 2048).basis,
            Basis::scaled);  // support 0
  EXPECT_NEAR(p.grouped_utilisation(Dtype::fp8_block, GemmPass::wgrad, 256, 4096, 7168).value, 0.4,
              1e-12);
  const GroupedLaunch& launch = p.grouped_launch[static_cast<std::size_t>(GroupedKernel::cutlass)]
                                                [static_cast<std::size_t>(Dtype::bf16)];
  EXPECT_EQ(launch.efficiency, 0.5);
  EXPECT_EQ(launch.tile_rows, 128);
  EXPECT_EQ(launch.row_rate, 0.4);
  EXPECT_EQ(p.attention_utilisation(false, 4096, 128, 64).basis, Basis::measured);
  EXPECT_DOUBLE_EQ(p.collective_seconds(Collective::all_gather, 8, 1048576).value, 1.71e-5);
  EXPECT_EQ(p.dispatchers.at("deepep").default_sms, 20);
  EXPECT_EQ(p.constant("kernel_gap_s"), 3e-6);
  EXPECT_TRUE(p.constants.at("kernel_gap_s").fitted);
}

TEST(ProfileJson, OmittedConstantsAreAssumedDefaults) {
  const Profile p = read(sample());
  for (const ConstantSpec& spec : constant_specs()) {
    if (std::string(spec.key) == "kernel_gap_s") continue;
    EXPECT_EQ(p.constant(spec.key), spec.value);
    EXPECT_EQ(p.constants.at(spec.key).basis, Basis::assumed);
    EXPECT_EQ(p.constants.at(spec.key).low, spec.low);
  }
}

TEST(ProfileJson, WritingAndReadingAgainGivesTheSameFile) {
  const std::string once = dump_profile(read(sample()));
  Result<Json> json = parse_json(once, "once");
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ(json->begin().key(), "schema");
  EXPECT_EQ(dump_profile(read(*json)), once);
  // What went in comes out: every key of the sample is in the file with its value.
  const Json flat_out = json->flatten(), flat_in = sample().flatten();
  for (const auto& item : flat_in.items()) {
    ASSERT_TRUE(flat_out.contains(item.key())) << item.key();
    if (item.value().is_number())
      EXPECT_NEAR(flat_out[item.key()].get<double>(), item.value().get<double>(),
                  1e-5 * std::abs(item.value().get<double>()))
          << item.key();
    else
      EXPECT_EQ(flat_out[item.key()], item.value());
  }
}

TEST(ProfileJson, ListsOfNumbersTakeOneLine) {
  const std::string text = dump_profile(read(sample()));
  EXPECT_THAT(text, HasSubstr("\"m\": [128, 4096],\n"));
  EXPECT_THAT(text, HasSubstr("\"utilisation\": [0.12, 0.25, 0.61, 0.72],\n"));
  EXPECT_THAT(text, HasSubstr("a \\\"quoted\\\" [table]"));
}

TEST(ProfileJson, ConstantsOutsideTheirRangeAreErrors) {
  EXPECT_THAT(error_with("/constants/kernel_gap_s/value", 1e-3), HasSubstr("outside 1e-06..6e-06"));
  EXPECT_THAT(error_with("/constants/kernel_gap_s/value", nullptr), HasSubstr("missing key"));
}

TEST(ProfileJson, UnknownKeysNameTheNearest) {
  EXPECT_THAT(error_with("/constants/kernel_gaps_s", Json{{"value", 1}}),
              HasSubstr("did you mean 'kernel_gap_s'"));
  EXPECT_THAT(error_with("/gemm/bf61", Json::object()), HasSubstr("did you mean 'bf16'"));
  EXPECT_THAT(error_with("/gemm/bf16/foward", Json::object()), HasSubstr("forward"));
  EXPECT_THAT(error_with("/collectives/allgather", Json::array()), HasSubstr("all_gather"));
  EXPECT_THAT(error_with("/dispatchers/deep_ep", Json::object()), HasSubstr("deepep"));
  EXPECT_THAT(error_with("/colour", "red"), HasSubstr("p.json#/colour"));
}

TEST(ProfileJson, BadCurvesAreErrors) {
  const Json falling = {2e-5, 1e-5};
  EXPECT_THAT(error_with("/collectives/all_gather/1/seconds", falling),
              HasSubstr("p.json#/collectives/all_gather"));
  EXPECT_NE(error_with("/collectives/all_gather/1/seconds", Json{1e-5}), "accepted");
  EXPECT_NE(error_with("/collectives/all_gather/1/bytes", Json{1048576, 1024}), "accepted");
  EXPECT_NE(error_with("/collectives/all_gather/1/seconds", Json{0, 1e-5}), "accepted");
  EXPECT_NE(error_with("/collectives/all_gather/1/ranks", 2), "accepted");
  EXPECT_NE(error_with("/collectives/all_gather/1/ranks", 1), "accepted");
  EXPECT_THAT(error_with("/collectives", Json::object()), HasSubstr("no curve"));
}

TEST(ProfileJson, BadGridsAreErrors) {
  const std::string grid = "/gemm/bf16/forward";
  EXPECT_THAT(error_with((grid + "/utilisation").c_str(), Json{0.1, 0.2, 0.3}),
              HasSubstr("expected 4 numbers"));
  EXPECT_NE(error_with((grid + "/utilisation").c_str(), Json{0.1, 0.2, 0.3, 0}), "accepted");
  EXPECT_NE(error_with((grid + "/utilisation").c_str(), Json{0.1, 0.2, 0.3, 61}), "accepted");
  EXPECT_NE(error_with((grid + "/m").c_str(), Json{4096, 128}), "accepted");
  EXPECT_NE(error_with((grid + "/m").c_str(), Json{0, 128}), "accepted");
  EXPECT_NE(error_with((grid + "/m").c_str(), Json::array()), "accepted");
  EXPECT_NE(error_with((grid + "/support").c_str(), Json{1, 1, 2, 1}), "accepted");
  EXPECT_NE(error_with((grid + "/support").c_str(), Json{1}), "accepted");
  EXPECT_NE(error_with((grid + "/basis").c_str(), "guessed"), "accepted");
  EXPECT_NE(error_with((grid + "/error").c_str(), -0.1), "accepted");
  EXPECT_EQ(error_with((grid + "/error").c_str(), 0.2), "accepted");
}

TEST(ProfileJson, GpuAndSchemaAreRequired) {
  EXPECT_NE(error_with("/provenance/gpu", ""), "accepted");
  EXPECT_NE(error_with("/provenance/gpu", nullptr), "accepted");
  EXPECT_THAT(error_with("/schema", "trifold.cluster/1"), HasSubstr("trifold.profile/1"));
  EXPECT_THAT(error_with("/schema", "trifold.profile/2"), HasSubstr("#/schema"));
}

TEST(ProfileJson, TornFilesAreErrors) {
  const std::string whole = dump_profile(read(sample()));
  const std::string path = ::testing::TempDir() + "trifold_torn.profile.json";
  ASSERT_TRUE(write_text(path, whole));
  EXPECT_TRUE(load_profile(path, TRIFOLD_SOURCE_DIR));
  for (std::size_t size = 0; size + 2 < whole.size(); size += 97) {
    ASSERT_TRUE(write_text(path, whole.substr(0, size)));
    EXPECT_FALSE(load_profile(path, TRIFOLD_SOURCE_DIR)) << size;
  }
  std::remove(path.c_str());
}

TEST(ProfileJson, UnknownCatalogueNameIsAnError) {
  Result<Profile> profile = load_profile("no-such-gpu", TRIFOLD_SOURCE_DIR);
  ASSERT_FALSE(profile);
  EXPECT_THAT(profile.error().message, HasSubstr("unknown profile 'no-such-gpu'"));
}

TEST(ProfileJson, EveryCatalogueProfileReadsAndRewritesToItself) {
  const std::vector<std::string> names = list_profiles(TRIFOLD_SOURCE_DIR);
  if (names.empty()) GTEST_SKIP() << "hardware/profiles is empty";
  for (const std::string& name : names) {
    Result<Profile> profile = load_profile(name, TRIFOLD_SOURCE_DIR);
    ASSERT_TRUE(profile) << profile.error().to_string();
    EXPECT_EQ(profile->name, name);
    const std::string once = dump_profile(*profile);
    Result<Json> json = parse_json(once, name);
    ASSERT_TRUE(json);
    EXPECT_EQ(dump_profile(read(*json)), once) << name;
  }
}

TEST(ProfileJson, AssumedProfileIsAValidFile) {
  Result<Cluster> cluster = load_cluster("dgx-b300", TRIFOLD_SOURCE_DIR);
  ASSERT_TRUE(cluster);
  const Profile assumed = assumed_profile(*cluster);
  const Profile again = read(to_json(assumed));
  EXPECT_EQ(dump_profile(again), dump_profile(assumed));
  EXPECT_TRUE(made_for(again, cluster->gpu));
}

}  // namespace
}  // namespace trifold::hardware

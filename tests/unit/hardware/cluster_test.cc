// SPDX-License-Identifier: Apache-2.0
#include "hardware/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "hardware/profile.h"

namespace trifold::hardware {
namespace {

using ::testing::HasSubstr;

const std::string kDataDir = TRIFOLD_SOURCE_DIR;
const std::vector<std::string> kCatalogue = {"dgx-a100", "dgx-b200",    "dgx-b300",    "dgx-h100",
                                             "dgx-h200", "gb200-nvl72", "gb300-nvl72", "hgx-h800"};

Cluster catalogue(const std::string& name) {
  Result<Cluster> cluster = load_cluster(name, kDataDir);
  EXPECT_TRUE(cluster) << cluster.error().to_string();
  return *cluster;
}

Json valid_json() {
  Json json = to_json(catalogue("dgx-h100"));
  return json;
}

TEST(Cluster, CatalogueIsCompleteAndNamesMatchFiles) {
  EXPECT_EQ(list_clusters(kDataDir), kCatalogue);
  for (const std::string& name : kCatalogue) EXPECT_EQ(catalogue(name).name, name);
}

TEST(Cluster, EveryCatalogueFileSaysWhereItsNumbersComeFrom) {
  for (const std::string& name : kCatalogue) {
    Result<Json> json = read_json(kDataDir + "/hardware/clusters/" + name + ".json");
    ASSERT_TRUE(json);
    for (const char* group : {"gpu", "hbm", "reserved_hbm", "scaleup", "scaleout", "leaf", "host"})
      EXPECT_TRUE((*json)["source"].contains(group)) << name << " " << group;
  }
}

TEST(Cluster, AgreesWithTheSharedHardwareTable) {
  Result<Json> table = read_json(kDataDir + "/../shared/data/hardware.json");
  if (!table) GTEST_SKIP() << "no ../shared/data/hardware.json";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"dgx-a100", "A100-80GB SXM"},
      {"dgx-h100", "H100 SXM5"},
      {"hgx-h800", "H800 SXM5"},
      {"dgx-h200", "H200 SXM5"},
      {"dgx-b200", "B200 SXM"},
      {"dgx-b300", "B300 SXM (Blackwell Ultra)"},
      {"gb200-nvl72", "GB200 NVL72 (per GPU)"},
      {"gb300-nvl72", "GB300 NVL72 (per GPU)"}};
  for (const auto& [name, row_name] : rows) {
    const Cluster c = catalogue(name);
    const Json* row = nullptr;
    for (const Json& r : *table)
      if (r["name"] == row_name) row = &r;
    ASSERT_NE(row, nullptr) << row_name;
    const auto rate = [&](const char* a, const char* b) {
      return (*row)[a][b].get<double>() * 1e9;
    };
    EXPECT_NEAR(c.gpu.bf16.value(), 1e3 * rate("peak_dense_tflops", "bf16"), 1e6) << name;
    EXPECT_NEAR(c.gpu.hbm_bandwidth.value(), (*row)["hbm_bw_gbs"].get<double>() * 1e9, 1) << name;
    EXPECT_NEAR(c.scaleup_bandwidth.value(), rate("scaleup", "gbs_per_dir_per_gpu"), 1) << name;
    EXPECT_NEAR(c.scaleout_bandwidth.value(), rate("node", "nic_gbs_per_dir_per_gpu"), 1) << name;
    EXPECT_NEAR(c.host_bandwidth.value(), rate("host_link", "gbs_per_dir_per_gpu"), 1) << name;
    EXPECT_EQ(c.domain_gpus, (*row)["scaleup"]["domain_gpus"].get<int>()) << name;
    EXPECT_EQ(c.gpu.sms, (*row)["sm_count"].get<int>()) << name;
  }
}

TEST(Cluster, DriverVisibleMemoryAndCapacity) {
  // nvidia-smi shows 81559 MiB on an H100: 81559 / 1024 = 79.65 GiB.
  const Cluster h100 = catalogue("dgx-h100");
  EXPECT_EQ(h100.gpu.hbm.value(), std::int64_t{81559} << 20);
  EXPECT_EQ(h100.capacity(), h100.gpu.hbm - h100.reserved_hbm);
  // 2x H200, driver 580: cudaMemGetInfo's total is 150.1 GB (shared/data/h200x2); a process cannot
  // allocate more than that, and context and NCCL take a little but never 4 GiB of it.
  const double h200 = static_cast<double>(catalogue("dgx-h200").capacity().value());
  EXPECT_LT(h200, 150.1e9);
  EXPECT_GT(h200, 150.1e9 - 4.3e9);
}

TEST(Cluster, ArithmeticIntensitySitsBetweenNvlinkAndNic) {
  // One token through one DeepSeek-V3 expert: 3 GEMMs of 2 H I FLOPs forward; it crosses the link
  // twice, 2 bytes an element of H: 6 H I / (4 H) = 1.5 I = 3072 FLOP/byte for I = 2048. So NVLink
  // can hide under the experts' GEMMs, the NIC cannot.
  const double intensity = 6.0 * 7168 * 2048 / (2 * 7168 * 2);
  EXPECT_DOUBLE_EQ(intensity, 3072);
  const Cluster c = catalogue("dgx-h100");
  EXPECT_GT(intensity, c.gpu.bf16.value() / c.scaleup_bandwidth.value());       // 2199
  EXPECT_LT(4 * intensity, c.gpu.bf16.value() / c.scaleout_bandwidth.value());  // 19788
}

TEST(Cluster, PeaksByDtype) {
  const Gpu a100 = catalogue("dgx-a100").gpu, h100 = catalogue("dgx-h100").gpu,
            b200 = catalogue("dgx-b200").gpu;
  EXPECT_EQ(a100.peak(Dtype::fp8_block).value(), 0);
  EXPECT_EQ(h100.peak(Dtype::mxfp8).value(), 0);
  EXPECT_EQ(h100.peak(Dtype::nvfp4).value(), 0);
  EXPECT_EQ(h100.peak(Dtype::fp8_tensor).value(), 1978.9e12);
  EXPECT_EQ(b200.peak(Dtype::mxfp8).value(), 4500e12);
  EXPECT_EQ(b200.peak(Dtype::nvfp4).value(), 9000e12);
  // Datasheets: 19.5 and 67 TFLOP/s of FP32.
  EXPECT_NEAR(a100.peak(Dtype::fp32).value(), 19.5e12, 0.1e12);
  EXPECT_NEAR(h100.peak(Dtype::fp32).value(), 67e12, 0.5e12);
}

TEST(Cluster, RoundTripsThroughJson) {
  for (const std::string& name : kCatalogue) {
    const Json json = to_json(catalogue(name));
    EXPECT_EQ(json.begin().key(), "schema");
    Result<Cluster> again = read_cluster(json, "memory");
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(to_json(*again), json);
  }
}

TEST(Cluster, UnknownNameSuggestsTheNearest) {
  Result<Cluster> cluster = load_cluster("dgx-h1000", kDataDir);
  ASSERT_FALSE(cluster);
  EXPECT_THAT(cluster.error().message, HasSubstr("unknown cluster 'dgx-h1000'"));
  EXPECT_THAT(cluster.error().hint, HasSubstr("dgx-h100"));
}

TEST(Cluster, OverridesByKey) {
  Cluster c = catalogue("gb200-nvl72");
  EXPECT_EQ(c.gpus_used_per_domain, 64);
  ASSERT_TRUE(apply_overrides(c, Json{{"scaleout_bytes_per_s", 1e11}, {"gpus_used_per_domain", 72}},
                              "job.json#/cluster"));
  EXPECT_EQ(c.scaleout_bandwidth.value(), 1e11);
  EXPECT_EQ(c.gpus_used_per_domain, 72);
}

TEST(Cluster, BadOverrideLeavesTheClusterAlone) {
  Cluster c = catalogue("dgx-h100");
  const Json before = to_json(c);
  Result<void> result = apply_overrides(c, Json{{"scaleout_byte_per_s", 1e11}}, "job.json");
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().where, HasSubstr("job.json#/scaleout_byte_per_s"));
  EXPECT_THAT(result.error().hint, HasSubstr("scaleout_bytes_per_s"));
  EXPECT_FALSE(apply_overrides(c, Json{{"hbm_bytes_per_s", 1e12}, {"sms", 0}}, "job.json"));
  EXPECT_EQ(to_json(c), before);
}

TEST(Cluster, AbsurdValuesAreErrors) {
  const std::vector<std::pair<const char*, Json>> absurd = {
      {"scaleup_bytes_per_s", 0},
      {"scaleup_bytes_per_s", 3.6e13},  // above HBM: bits, or a whole domain
      {"scaleout_bytes_per_s", -5e10},
      {"scaleout_bytes_per_s", 400},  // Gb/s without a unit
      {"hbm_bytes", 80},
      {"hbm_bytes_per_s", std::nan("")},
      {"bf16_flops_per_s", 989.4},
      {"gpus_used_per_domain", 9},
      {"gpus_used_per_domain", 0},
      {"gpus_per_node", 3},
      {"leaf_oversubscription", 0.5},
      {"reserved_hbm_bytes", std::int64_t{60} << 31},
      {"sms", 1.5},
      {"arch", "hoper"},
      {"host_cpu", 7}};
  for (const auto& [key, value] : absurd) {
    Json json = valid_json();
    json[key] = value;
    EXPECT_FALSE(read_cluster(json, "c.json")) << key << " = " << value.dump();
  }
  EXPECT_TRUE(read_cluster(valid_json(), "c.json"));
}

TEST(Cluster, MissingKeysAndSchemaAreErrors) {
  Json json = valid_json();
  json.erase("scaleup_bytes_per_s");
  Result<Cluster> cluster = read_cluster(json, "c.json");
  ASSERT_FALSE(cluster);
  EXPECT_THAT(cluster.error().message, HasSubstr("scaleup_bytes_per_s"));
  json = valid_json();
  json["schema"] = "trifold.profile/1";
  cluster = read_cluster(json, "c.json");
  ASSERT_FALSE(cluster);
  EXPECT_THAT(cluster.error().where, HasSubstr("#/schema"));
}

TEST(Cluster, APersonsFileStartsFromABase) {
  const std::string path = ::testing::TempDir() + "trifold_my_cluster.json";
  ASSERT_TRUE(write_text(path, R"({"schema": "trifold.cluster/1", "base": "dgx-h100",
      "name": "ours", "scaleout_bytes_per_s": 25e9, "source": "our 200G fabric"})"));
  Result<Cluster> cluster = load_cluster(path, kDataDir);
  std::remove(path.c_str());
  ASSERT_TRUE(cluster) << cluster.error().to_string();
  EXPECT_EQ(cluster->name, "ours");
  EXPECT_EQ(cluster->scaleout_bandwidth.value(), 25e9);
  EXPECT_EQ(cluster->gpu.name, catalogue("dgx-h100").gpu.name);
  Result<Cluster> unknown = read_cluster(Json{{"schema", "trifold.cluster/1"}, {"base", "dgx-h10"}},
                                         "mine.json", kDataDir);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().hint, HasSubstr("dgx-h100"));
}

TEST(Cluster, CatalogueProfilesWereMadeForTheirGpu) {
  const std::vector<std::string> profiles = list_profiles(kDataDir);
  if (profiles.empty()) GTEST_SKIP() << "hardware/profiles is empty";
  for (const std::string& name : kCatalogue) {
    const Cluster c = catalogue(name);
    Result<Profile> profile = profile_of(c, kDataDir);
    ASSERT_TRUE(profile) << name << ": " << profile.error().to_string();
    EXPECT_TRUE(made_for(*profile, c.gpu)) << name << ": " << profile->provenance.gpu;
  }
}

}  // namespace
}  // namespace trifold::hardware

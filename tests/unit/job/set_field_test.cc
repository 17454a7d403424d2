// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobs.h"

namespace trifold::job {
namespace {

Json with(const std::string& assignment) {
  Json json = to_json(moe_job());
  Result<void> set = set_field(json, assignment);
  EXPECT_TRUE(set) << assignment << ": " << (set ? "" : set.error().to_string());
  return json;
}

std::string refused(const std::string& assignment) {
  Json json = Json::object();
  Result<void> set = set_field(json, assignment);
  return set ? "" : set.error().to_string();
}

TEST(SetField, FullKeysAndUniqueSuffixes) {
  EXPECT_EQ(with("layout.ep=16")["layout"]["ep"], 16);
  EXPECT_EQ(with("ep=16")["layout"]["ep"], 16);
  EXPECT_EQ(with("global_batch_size=4096")["training"]["global_batch_size"], 4096);
  EXPECT_EQ(with("dispatcher=deepep")["techniques"]["dispatcher"], "deepep");
  EXPECT_EQ(with("fsdp=true")["layout"]["fsdp"], true);
  EXPECT_EQ(with("schedule.kind=1f1b")["schedule"]["kind"], "1f1b");
  EXPECT_EQ(with("num_layers=16")["model_overrides"]["num_layers"], 16);
  EXPECT_EQ(with("model.top_k=4")["model_overrides"]["top_k"], 4);
  EXPECT_EQ(with("capacity_factor=1.25")["techniques"]["routing"]["capacity_factor"], 1.25);
}

TEST(SetField, ShortNames) {
  EXPECT_EQ(with("seq=8192")["training"]["sequence_length"], 8192);
  EXPECT_EQ(with("gbs=512")["training"]["global_batch_size"], 512);
  EXPECT_EQ(with("mbs=2")["training"]["micro_batch_size"], 2);
}

TEST(SetField, Lists) {
  EXPECT_EQ(with("recompute=moe_act,layernorm")["techniques"]["recompute"],
            (Json{"moe_act", "layernorm"}));
  EXPECT_EQ(with("recompute=none")["techniques"]["recompute"], Json::array());
  EXPECT_EQ(with("cuda_graph=[\"attn\"]")["techniques"]["cuda_graph"], (Json{"attn"}));
  EXPECT_EQ(with("routing.parameters=0.5")["techniques"]["routing"]["parameters"], (Json{0.5}));
}

TEST(SetField, Units) {
  // 400 Gbps / 8 bits = 50e9 bytes/s
  EXPECT_EQ(with("scaleout_bytes_per_s=400Gbps")["cluster_overrides"]["scaleout_bytes_per_s"],
            50000000000);
  EXPECT_EQ(with("scaleout_bandwidth=25")["cluster_overrides"]["scaleout_bytes_per_s"],
            25000000000);
  EXPECT_EQ(with("cluster.scaleup_bandwidth=1.8TB/s")["cluster_overrides"]["scaleup_bytes_per_s"],
            1800000000000);
  EXPECT_EQ(with("cluster.hbm_bytes=10GiB")["cluster_overrides"]["hbm_bytes"], 10737418240);
  EXPECT_NE(refused("hbm_bytes=10Gbps").find("does not fit"), std::string::npos);
  EXPECT_NE(refused("hbm_bytes=10parsec").find("unknown unit"), std::string::npos);
}

TEST(SetField, MistakesNameTheNearestField) {
  EXPECT_NE(refused("layout.epp=1").find("layout.ep"), std::string::npos);
  EXPECT_NE(refused("global_batch_sise=1").find("training.global_batch_size"), std::string::npos);
  EXPECT_NE(refused("ep").find("expected key=value"), std::string::npos);
  EXPECT_NE(refused("=3").find("expected key=value"), std::string::npos);
}

// Every key that is offered resolves to itself.
TEST(SetField, EveryFieldIsReachable) {
  for (const std::string& key : settable_fields()) {
    Json json = Json::object();
    EXPECT_TRUE(set_field(json, key + "=null")) << key;
  }
}

TEST(SetField, WhatIsSetIsRead) {
  Json json = to_json(moe_job());
  ASSERT_TRUE(set_field(json, "scaleout_bandwidth=25"));
  ASSERT_TRUE(set_field(json, "mtp_layers=1"));
  const Job job = read_job(json, "test", from_repository()).value();
  EXPECT_DOUBLE_EQ(job.cluster.scaleout_bandwidth.value(), 25e9);
  EXPECT_EQ(job.model.mtp_layers, 1);
  // Both stay overrides of the named things.
  const Json again = to_json(job);
  EXPECT_EQ(again["model"], "qwen3-30b-a3b");
  EXPECT_EQ(again["model_overrides"]["mtp_layers"], 1);
  EXPECT_EQ(again["cluster"], "dgx-h100");
}

}  // namespace
}  // namespace trifold::job

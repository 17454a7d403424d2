// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobs.h"

namespace trifold::job {
namespace {

Json moe_json() { return to_json(moe_job()); }

std::string refused(const Json& json) {
  Result<Job> job = read_job(json, "job.json", from_repository());
  return job ? "" : job.error().to_string();
}

TEST(ReadJob, Defaults) {
  const Job job = read_text_job(R"({"model": "qwen3-30b-a3b", "cluster": "dgx-h100", "gpus": 8,
    "training": {"global_batch_size": 8}, "layout": {"tp": null, "vpp": null, "pp": 4, "ep": 2}})");
  EXPECT_EQ(job.layout.tp, 1);
  EXPECT_EQ(job.layout.vpp, 1);
  EXPECT_EQ(job.training.micro_batch_size, 1);
  EXPECT_EQ(job.schedule.kind, layout::ScheduleKind::one_f_one_b);
  EXPECT_TRUE(job.training.optimizer.distributed);
  EXPECT_EQ(job.training.optimizer.moments, StateType::fp32);
  EXPECT_FALSE(job.techniques.sequence_parallel);
  EXPECT_EQ(job.dp(), 2);
  EXPECT_EQ(job.edp(), 1);
  EXPECT_EQ(job.microbatches(), 4);
}

TEST(ReadJob, VppFollowsTheString) {
  const Job job = deepseek_job();
  EXPECT_EQ(job.layout.vpp, 4);  // 32 stages over 8
  EXPECT_EQ(job.schedule.kind, layout::ScheduleKind::interleaved);
  EXPECT_TRUE(job.techniques.sequence_parallel);  // tp 2
  const layout::ScheduleShape shape = job.schedule_shape();
  // dp = 1024 / (2 * 8) = 64, so 8192 / 64 = 128 micro-batches; first warm-up 2*7 + 3*8 + 1
  EXPECT_EQ(shape.microbatches, 128);
  EXPECT_EQ(layout::warmup_units(shape, 0), 39);
}

TEST(ReadJob, BridgeRecordsGetBridgeDefaults) {
  Json json = moe_json();
  json.erase("schema");
  json["source"] = "NVIDIA Megatron-Bridge docs";
  json["id"] = "a";
  const auto optimizer = [&] {
    return read_job(json, "r", from_repository()).value().training.optimizer;
  };
  EXPECT_EQ(optimizer().moments, StateType::fp32);
  EXPECT_EQ(optimizer().gradient_buffer(), StateType::bf16);
  EXPECT_FALSE(optimizer().fp8_param_gather);
  json["training"]["precision"] = "fp8_tensor";
  EXPECT_TRUE(optimizer().fp8_param_gather);
  json["training"]["precision"] = "mxfp8";
  json["techniques"]["overlap"] = {"param_gather", "param_gather_with_optimizer"};  // PR-05
  EXPECT_FALSE(optimizer().fp8_param_gather);
  json["model"] = "deepseek-v3";
  EXPECT_EQ(optimizer().moments, StateType::bf16);
}

TEST(ReadJob, Errors) {
  Json json = moe_json();
  json["layout"]["epp"] = 3;
  EXPECT_NE(refused(json).find("job.json#/layout/epp: unknown key 'epp' (did you mean 'ep'?)"),
            std::string::npos)
      << refused(json);
  json = moe_json();
  json["gpus"] = 0;
  EXPECT_NE(refused(json).find("outside 1.."), std::string::npos);
  json["gpus"] = 1e300;
  EXPECT_NE(refused(json), "");
  json = moe_json();
  json.erase("gpus");
  EXPECT_NE(refused(json).find("missing key 'gpus'"), std::string::npos);
  json = moe_json();
  json["schema"] = "trifold.plan/1";
  EXPECT_NE(refused(json).find("trifold.job/1"), std::string::npos);
  json = moe_json();
  json["techniques"]["dispatcher"] = "deepp";
  EXPECT_NE(refused(json).find("did you mean 'deepep'"), std::string::npos);
  json = moe_json();
  for (const char* key : {"tp", "cp", "pp"}) json["layout"][key] = 65536;
  EXPECT_NE(refused(json).find("absurdly large"), std::string::npos);
  EXPECT_NE(refused(Json::array()), "");
  json = moe_json();
  json["model"] = "qwen3-30b-a3";
  EXPECT_NE(refused(json), "");
}

TEST(ReadJob, ObservationKeysOnlyWhereAllowed) {
  Json json = moe_json();
  json["measured"] = {{"step_time_s", 1.0}};
  EXPECT_EQ(refused(json), "");
  ReadOptions strict = from_repository();
  strict.allow_observation = false;
  EXPECT_FALSE(read_job(json, "job.json", strict));
}

TEST(WriteJob, NamesWhatIsUnchangedAndInlinesTheRest) {
  Job job = deepseek_job();
  Json json = to_json(job);
  EXPECT_EQ(json.begin().key(), "schema");
  EXPECT_EQ(json["model"], "deepseek-v3");
  EXPECT_EQ(json["model_overrides"]["mtp_layers"], 1);
  job.model.moe.top_k = 4;
  job.cluster.scaleout_bandwidth = BytesPerSecond(1e11);
  json = to_json(job);
  EXPECT_TRUE(json["model"].is_object());
  EXPECT_TRUE(json["cluster"].is_object());
  const Job again = read_job(json, "again", from_repository()).value();
  EXPECT_EQ(again.model.moe.top_k, 4);
  EXPECT_DOUBLE_EQ(again.cluster.scaleout_bandwidth.value(), 1e11);
  EXPECT_EQ(job_id(again), job_id(job));
}

TEST(WriteJob, IdIsOfTheContent) {
  const Job job = moe_job();
  EXPECT_EQ(job_id(job).size(), 16u);
  EXPECT_EQ(job_id(job), job_id(moe_job()));
  Job other = job;
  other.layout.ep = 4;
  EXPECT_NE(job_id(job), job_id(other));
  other = job;
  other.cluster.gpu.sms -= 1;
  EXPECT_NE(job_id(job), job_id(other));
}

}  // namespace
}  // namespace trifold::job

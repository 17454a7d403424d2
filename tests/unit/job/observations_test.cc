// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "job/legality.h"
#include "jobs.h"

// Every published record reads as a Job. Somebody ran it, so Megatron accepted it: a record with
// nothing unknown must be legal, or its reason stands below.

namespace trifold::job {
namespace {

const std::string kShared = std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/";

Json records(const std::string& name) {
  Result<Json> json = read_json(kShared + name);
  EXPECT_TRUE(json) << name;
  return json ? *json : Json::array();
}

// Models that are no transformers with plain attention (Mamba, DeepSeek sparse attention).
bool cannot_be_priced(const std::string& model) {
  return model.rfind("nemotron", 0) == 0 || model == "deepseek-v4-flash";
}

struct Count {
  int read = 0, skipped = 0, legal = 0, unknown = 0;
};

// Record ids that break a rule, and why they could run all the same.
const char* const kBridge =
    "DDP-01/02: Megatron-Bridge does not run validate_args, which alone refuses this pair";
const char* const kDropped =
    "TRI-STATIC: token-dropping recipes pad to capacity; the record states the factor alone";
const char* const kDev = "TRI-PARKED: run on the dev branch, which alone has the flag";
const std::map<std::string, std::string> kExplained = {
    {"mcorepaper-dsv3-gb200-256-mxfp8", kDev},
    {"mb-25-09-deepseek-v3-h100-1024-fp8-cs-gbs8192-dropless", kBridge},
    {"mb-25-09-deepseek-v3-h100-1024-fp8-sc-gbs8192-dropless", kBridge},
    {"card-deepseek-v3-perf-h100-1024-bf16", kBridge},
    {"mb-25-11-deepseek-v3-gb300-256-mxfp8-gbs4096-w-o-mtp", kBridge},
    {"mb-25-11-llama31-405b-b200-128-mxfp8-gbs64", kBridge},
    {"mb-25-11-deepseek-v3-gb200-256-bf16-gbs4096-w-o-mtp",
     "LAY-05: the row says without MTP, its layout string holds an m"},
    {"mb-25-09-qwen3-30b-a3b-gb200-8-fp8-cs-gbs512-tokendrop", kDropped},
    {"mb-25-09-qwen3-30b-a3b-gb200-8-mxfp8-gbs512-tokendrop", kDropped},
    {"mb-25-09-qwen3-235b-a22b-gb200-64-fp8-cs-gbs1024-tokendrop", kDropped},
    {"mb-25-09-qwen3-235b-a22b-gb200-64-mxfp8-gbs1024-tokendrop", kDropped},
    {"mb-25-09-qwen3-30b-a3b-b200-8-fp8-cs-gbs512-tokendrop", kDropped}};

void check_record(const Json& record, Count& count) {
  const std::string id = record["id"].get<std::string>();
  Result<Job> job = read_job(record, "record", from_repository());
  const bool named = record["model"].is_string();
  if (named && cannot_be_priced(record["model"].get<std::string>())) {
    EXPECT_FALSE(job) << id;
    ++count.skipped;
    return;
  }
  ASSERT_TRUE(job) << id << ": " << job.error().to_string();
  ++count.read;
  if (record.contains("unknown") && !record["unknown"].empty()) {
    ++count.unknown;
    return;
  }
  std::string broken;
  for (const Verdict& v : check_all(*job)) broken += explain(v) + "\n";
  const bool explained = kExplained.count(id) != 0;
  const std::string rule = explained ? kExplained.at(id).substr(0, 3) : "";
  EXPECT_EQ(broken.substr(0, 3), rule) << id << "\n" << broken;
  count.legal += broken.empty() ? 1 : 0;
}

TEST(Observations, EveryRecordReadsAndIsLegal) {
  if (!std::filesystem::exists(kShared)) GTEST_SKIP() << "no " << kShared;
  Count count;
  for (const char* name : {"observations/training_runs.json", "observations/single_node_runs.json",
                           "megatron_h200x2/memory_runs.json"})
    for (const Json& record : records(name)) check_record(record, count);
  EXPECT_EQ(count.read + count.skipped, 348 + 11);
  RecordProperty("skipped", count.skipped);
  RecordProperty("unknown", count.unknown);
  RecordProperty("legal", count.legal);
  std::printf("read %d, cannot be priced %d, incomplete %d, legal %d\n", count.read, count.skipped,
              count.unknown, count.legal);
}

}  // namespace
}  // namespace trifold::job

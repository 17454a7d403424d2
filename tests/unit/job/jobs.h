// SPDX-License-Identifier: Apache-2.0
#pragma once

// Legal Jobs for tests to break.

#include <gtest/gtest.h>

#include "job/job.h"

namespace trifold::job {

inline ReadOptions from_repository() { return ReadOptions{TRIFOLD_SOURCE_DIR, true}; }

inline Job read_text_job(const std::string& text) {
  Result<Json> json = parse_json(text, "test");
  if (!json) ADD_FAILURE() << json.error().to_string();
  Result<Job> job = read_job(*json, "test", from_repository());
  if (!job) ADD_FAILURE() << job.error().to_string();
  return job ? *job : Job{};
}

// Qwen3-30B-A3B (48 layers, 32 heads, 4 KV heads, 128 experts of width 768) on 64 H100: tp 2, pp 4,
// vpp 2, ep 8: dp = 64/8 = 8, 64 micro-batches.
inline Job moe_job() {
  return read_text_job(
      R"({"schema": "trifold.job/1", "model": "qwen3-30b-a3b", "cluster": "dgx-h100",
    "gpus": 64,
    "training": {"sequence_length": 4096, "global_batch_size": 512, "micro_batch_size": 1,
                 "precision": "bf16"},
    "layout": {"tp": 2, "pp": 4, "vpp": 2, "ep": 8},
    "techniques": {"overlap": ["grad_reduce", "param_gather", "pipeline_p2p"],
                   "dispatcher": "alltoall", "routing": {"balance": "forced"}}})");
}

// DeepSeek-V3 (3 dense + 58 MoE layers, MLA, shared expert) on 1024 H100 as published: 32 stages.
inline Job deepseek_job() {
  return read_text_job(R"({"schema": "trifold.job/1", "model": "deepseek-v3", "cluster": "dgx-h100",
    "model_overrides": {"mtp_layers": 1}, "gpus": 1024,
    "training": {"sequence_length": 4096, "global_batch_size": 8192, "precision": "fp8_block"},
    "layout": {"tp": 2, "pp": 8, "ep": 64, "pipeline_layout": "Et|(tt|)*30mL"},
    "techniques": {"overlap": ["grad_reduce", "param_gather", "pipeline_p2p", "ep_a2a", "delay_wgrad"],
                   "dispatcher": "deepep", "recompute": ["mla_up_proj", "mlp"]}})");
}

// Llama-3 70B (80 layers, 64 heads, 8 KV heads) on 64 H100.
inline Job dense_job() {
  return read_text_job(R"({"schema": "trifold.job/1", "model": "llama3-70b", "cluster": "dgx-h100",
    "gpus": 64, "training": {"sequence_length": 8192, "global_batch_size": 128},
    "layout": {"tp": 4, "pp": 4, "vpp": 5}, "techniques": {"overlap": ["pipeline_p2p"]}})");
}

}  // namespace trifold::job

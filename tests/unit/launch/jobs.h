// SPDX-License-Identifier: Apache-2.0
#pragma once

// Legal Jobs written by hand: models that people train, on three sizes each.

#include <string>
#include <vector>

#include "job/job.h"
#include "model/catalogue.h"

namespace trifold::launch {

struct JobRow {
  const char* model;
  const char* cluster;
  int gpus;
  int tp, cp, pp, vpp, ep;
  const char* cut;  // a layout string, or "account" to count embedding and loss, or ""
  const char* how;  // see apply_techniques
};

inline constexpr JobRow kJobRows[] = {
    {"deepseek-v3", "dgx-h100", 1024, 2, 1, 8, 4, 64, "Et|(tt|)*30mL", "fp8 deepep overlap"},
    {"deepseek-v3", "dgx-h100", 512, 1, 1, 8, 4, 64, "Et|(tt|)*30mL", "deepep overlap"},
    {"deepseek-v3", "gb200-nvl72", 256, 1, 1, 4, 4, 64, "Et*4|(tttt|)*14tmL",
     "mxfp8 hybridep graph"},
    {"kimi-k2", "dgx-h100", 1024, 1, 1, 16, 1, 64, "Ettt|(tttt|)*14ttL", "fp8 deepep"},
    {"kimi-k2", "gb200-nvl72", 256, 1, 1, 4, 4, 64, "Ettt|(tttt|)*14ttL", "mxfp8 hybridep graph"},
    {"kimi-k2", "gb300-nvl72", 512, 1, 1, 8, 2, 64, "Ettt|(tttt|)*14ttL", "mxfp8 hybridep"},
    {"qwen3-235b-a22b", "dgx-h100", 256, 2, 1, 8, 4, 32, "account", "deepep shared"},
    {"qwen3-235b-a22b", "dgx-h100", 128, 2, 1, 8, 4, 16, "account", "alltoall overlap"},
    {"qwen3-235b-a22b", "gb200-nvl72", 512, 1, 1, 8, 4, 64, "account", "mxfp8 hybridep graph"},
    {"qwen3-30b-a3b", "dgx-h100", 8, 1, 1, 1, 1, 8, "", "deepep overlap"},
    {"qwen3-30b-a3b", "dgx-h200", 16, 1, 2, 1, 1, 8, "", "alltoall"},
    {"qwen3-30b-a3b", "dgx-h100", 64, 1, 1, 2, 4, 8, "", "deepep offload"},
    {"mixtral-8x7b", "dgx-h100", 8, 1, 1, 1, 1, 8, "", "alltoall"},
    {"mixtral-8x7b", "dgx-h100", 64, 2, 1, 4, 8, 8, "", "deepep"},
    {"mixtral-8x7b", "dgx-b200", 128, 1, 1, 1, 1, 8, "", "fsdp"},
    {"mixtral-8x22b", "dgx-h100", 64, 2, 1, 4, 14, 8, "", "alltoall"},
    {"mixtral-8x22b", "dgx-h100", 128, 2, 1, 4, 14, 8, "", "deepep overlap"},
    {"mixtral-8x22b", "dgx-h100", 256, 4, 1, 8, 7, 8, "", "deepep"},
    {"gpt-oss-120b", "dgx-h100", 64, 1, 1, 4, 3, 16, "", "deepep"},
    {"gpt-oss-120b", "dgx-h100", 32, 1, 1, 1, 1, 32, "", "alltoall"},
    {"gpt-oss-120b", "gb200-nvl72", 128, 1, 1, 1, 1, 64, "", "hybridep"},
    {"glm-4.5", "dgx-h100", 256, 2, 1, 8, 1, 32, "Et*12|(t*12|)*6t*8mL", "deepep"},
    {"glm-4.5", "dgx-h100", 512, 1, 1, 16, 1, 32, "Et*6|(t*6|)*14ttmL", "alltoall"},
    {"glm-4.5", "gb200-nvl72", 128, 1, 1, 4, 1, 32, "Et*24|(t*24|)*2t*20mL", "hybridep"},
    {"llama3.1-405b", "dgx-h100", 512, 8, 1, 8, 8, 1, "account", "dense"},
    {"llama3.1-405b", "dgx-h100", 1024, 8, 2, 16, 4, 1, "account", "dense"},
    {"llama3.1-405b", "dgx-h200", 256, 8, 1, 8, 4, 1, "account", "full"},
};

inline bool said(const JobRow& row, const char* word) {
  return std::string(row.how).find(word) != std::string::npos;
}

inline void apply_techniques(const JobRow& row, job::Job& job) {
  using namespace job;
  Techniques& t = job.techniques;
  Training& r = job.training;
  const bool moe = job.model.is_moe();
  t.sequence_parallel = job.layout.tp > 1;
  t.overlap = {Overlap::grad_reduce, Overlap::param_gather};
  if (job.layout.vpp > 1) t.overlap.insert(Overlap::pipeline_p2p);
  t.fusions = {Fusion::cross_entropy};
  if (moe) {
    t.fusions.insert(Fusion::router);
    t.fusions.insert(Fusion::permute);
    t.recompute = {Recompute::moe_act};
    t.routing.balance = Balance::forced;
    if (job.model.attention.kind == model::AttentionKind::mla)
      t.recompute.insert(Recompute::mla_up_proj);
  }
  if (said(row, "deepep")) t.dispatcher = Dispatcher::deepep, t.dispatcher_sms = 24;
  if (said(row, "hybridep")) t.dispatcher = Dispatcher::hybridep;
  if (said(row, "overlap"))
    t.overlap.insert(Overlap::ep_a2a), t.overlap.insert(Overlap::delay_wgrad);
  if (said(row, "graph"))
    t.cuda_graph = {GraphScope::attn, GraphScope::moe_router, GraphScope::moe_preprocess};
  if (said(row, "offload")) {
    t.offload.activation_modules = {OffloadModule::expert_fc1};
    t.offload.optimizer = OptimizerOffload::cpu_adam;
  }
  if (said(row, "full")) t.recompute = {Recompute::full};
  if (said(row, "fsdp")) job.layout.fsdp = true, t.overlap.insert(Overlap::fsdp);
  if (said(row, "mxfp8")) {
    r.precision = Precision::mxfp8;
    r.optimizer.fp8_param_gather = true;
  } else if (said(row, "fp8")) {
    r.precision = Precision::fp8_block;
    r.optimizer.moments = StateType::bf16;
  }
}

inline Result<job::Job> make_job(const JobRow& row) {
  const std::string data_dir = TRIFOLD_SOURCE_DIR;
  job::Job job;
  TRIFOLD_ASSIGN(model, model::load_model(row.model, data_dir));
  TRIFOLD_ASSIGN(cluster, hardware::load_cluster(row.cluster, data_dir));
  job.model = std::move(model);
  job.cluster = std::move(cluster);
  job.gpus = row.gpus;
  layout::Layout& l = job.layout;
  l.tp = row.tp, l.cp = row.cp, l.pp = row.pp, l.vpp = row.vpp, l.ep = row.ep;
  if (std::string(row.cut) == "account")
    l.account_for_embedding = l.account_for_loss = true;
  else
    l.pipeline_layout = row.cut;
  job.schedule.kind =
      row.vpp > 1 ? layout::ScheduleKind::interleaved : layout::ScheduleKind::one_f_one_b;
  job.training.sequence_length = 4096;
  job.training.global_batch_size = static_cast<std::int64_t>(job.dp()) * row.pp * 4;
  if (!job.model.is_moe()) job.layout.ep = 1;
  apply_techniques(row, job);
  return job;
}

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job/job.h"
#include "memory/memory.h"
#include "model/catalogue.h"

namespace trifold::memory_bench {

inline job::Job deepseek_v3() {
  job::Job j;
  j.model = model::load_model("deepseek-v3", TRIFOLD_SOURCE_DIR).value();
  j.gpus = 2048;
  j.layout.pp = 16, j.layout.vpp = 4, j.layout.ep = 64;
  j.layout.pipeline_layout = "E|(t|)*61m|L";
  j.schedule.kind = layout::ScheduleKind::interleaved;
  j.training.global_batch_size = 8192;
  j.techniques.routing.balance = job::Balance::forced;
  return j;
}

}  // namespace trifold::memory_bench

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a stage's step waits for of its data parallelism.

#include "cost/step.h"
#include "estimate/stage_time.h"
#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::estimate {

// The part of the transfers that the step waits for, beside `forward` and `backward` seconds of one
// micro-batch.
double data_parallel_exposed(const job::Job& job, const cost::DataParallelTerms& terms,
                             double forward, double backward, const cost::Constants& constants);

struct DataParallel {
  double total_s = 0;    // all transfers, as if nothing overlapped
  double exposed_s = 0;  // what the step waits for
  double optimizer_s = 0;
  double host_s = 0;  // optimizer states or gradients to and from host memory
};

// `forward` and `backward`: the stage's work for one micro-batch, the cover of overlapped
// transfers.
DataParallel data_parallel(const job::Job& job, const layout::Pipeline& pipeline, int stage,
                           const Duration& forward, const Duration& backward,
                           const cost::Pricer& pricer);

}  // namespace trifold::estimate

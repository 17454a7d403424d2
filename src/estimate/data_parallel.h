// SPDX-License-Identifier: Apache-2.0
#pragma once

// Data parallelism: reduction of gradients, gather of parameters, and the optimizer step of one
// stage.

#include "cost/price.h"
#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::estimate {

struct StageParameters {  // elements on one rank
  double dense = 0;
  double experts = 0;
};
StageParameters stage_parameters(const job::Job& job, const layout::Pipeline& pipeline, int stage);

struct DataParallel {
  double total_s = 0;    // all transfers, as if nothing overlapped
  double exposed_s = 0;  // what the step waits for
  double optimizer_s = 0;
  double host_s = 0;  // optimizer states or gradients to and from host memory
};

// `forward` and `backward`: seconds of the stage's work for one micro-batch, the cover of
// overlapped transfers.
DataParallel data_parallel(const job::Job& job, const layout::Pipeline& pipeline, int stage,
                           double forward, double backward, const cost::Pricer& pricer);

}  // namespace trifold::estimate

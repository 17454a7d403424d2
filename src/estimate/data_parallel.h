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

// What does not depend on the micro-batch's own times: seconds of the transfers, alone, of the
// update and of what moves to or from the host.
struct DataParallelTerms {
  double reduce_s = 0, gather_s = 0;
  double optimizer_s = 0, host_s = 0;
};
DataParallelTerms data_parallel_terms(const job::Job& job, const StageParameters& parameters,
                                      const cost::Pricer& pricer);
// The part of the transfers that the step waits for, beside `forward` and `backward` seconds of one
// micro-batch.
double data_parallel_exposed(const job::Job& job, const DataParallelTerms& terms, double forward,
                             double backward, const cost::Constants& constants);

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

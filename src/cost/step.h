// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a step pays beside its blocks: reduction of gradients, gather of parameters, the optimizer,
// and sends between pipeline stages. Alone; what of it shows is the business of estimate/ and
// timeline/.

#include "cost/price.h"
#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::cost {

struct StageParameters {  // elements on one rank
  double dense = 0;
  double experts = 0;
};
StageParameters stage_parameters(const job::Job& job, const layout::Pipeline& pipeline, int stage);
StageParameters chunk_parameters(const job::Job& job, const layout::Chunk& chunk);

// Seconds of the transfers, of the update, and of what moves to or from the host.
struct DataParallelTerms {
  double reduce_s = 0, gather_s = 0;
  double optimizer_s = 0, host_s = 0;
};
DataParallelTerms data_parallel_terms(const job::Job& job, const StageParameters& parameters,
                                      const Pricer& pricer);

// One micro-batch's activations (or their gradients) from a stage to its neighbour.
struct PipelineSend {
  bool crosses_domains = false;
  double seconds = 0;
};
PipelineSend pipeline_send(const job::Job& job, const Pricer& pricer);

}  // namespace trifold::cost

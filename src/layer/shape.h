// SPDX-License-Identifier: Apache-2.0
#pragma once

// Token counts and widths that every operator of a block is built from. Tokens are per rank and
// micro-batch.

#include "job/job.h"
#include "layer/expert_load.h"

namespace trifold::layer {

struct Shape {
  double tokens = 0;        // n: of the micro-batch on one sequence rank (mbs * s / (cp * ulysses))
  double local_tokens = 0;  // nl: n / tp under sequence parallelism, else n
  double tp = 1;
  double sequence_ranks = 1;
  hardware::Dtype linear = hardware::Dtype::bf16;  // format of the block's linears
  double element = 2;                              // bytes of an activation in the pipeline's dtype
  int tp_domains = 1, cp_domains = 1, ep_domains = 1;
};

Shape shape_of(const job::Job& job);

// What a dispatch (or the combine that mirrors it) sends, in tokens per rank; multiply by the row's
// bytes. Source: techniques.md (b) and check C5; megatron.md 4.6.
struct Exchange {
  double scaleup_tokens = 0;   // sent or received over NVLink by the slowest rank
  double scaleout_tokens = 0;  // to other domains over the NIC
  double arriving_tokens = 0;  // rows in the receive buffer before any local permute
  int ranks = 1;
  int domains = 1;
};
Exchange exchange_of(const job::Job& job, const ExpertLoad& load);

// Expected distinct targets of one token among `parts` equal parts of the experts, under
// group-limited routing.
double distinct_targets(const model::Moe& moe, double parts);

}  // namespace trifold::layer

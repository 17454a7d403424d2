// SPDX-License-Identifier: Apache-2.0
#pragma once

// Expert load is a distribution. The slowest rank sets grouped-GEMM time, dispatch time and peak
// memory; the mean sets throughput of a perfectly balanced run. Natural routing without a stated
// distribution uses the profile-independent prior documented in expert_load.cc.

#include <vector>

#include "job/job.h"

namespace trifold::layer {

struct ExpertLoad {
  double tokens_per_rank =
      0;  // routed token copies arriving at the mean rank of an EP group, per micro-batch
  double max_tokens_per_rank = 0;  // at the slowest rank (after capacity)
  double padded_tokens_per_rank =
      0;                     // slowest rank, each expert padded to the precision's alignment
  double imbalance = 1;      // max / mean
  double dropped_share = 0;  // of routed copies, by capacity
  int experts_per_rank = 1;
};

// Token copies are per rank of the expert grid (ep x etp); n = tokens of the micro-batch on one
// dense rank.
ExpertLoad expert_load(const job::Job& job);

// Clones of the hottest experts fill the spare slots of the least loaded ranks (ECHO): each clone
// moves half of the difference between the hottest and the coldest rank, as long as that helps.
void balance_with_clones(std::vector<double>& ranks, int spare_per_rank);

// Rows each expert's block is padded to by the GEMM format: 1 (bf16), 16 (fp8), 32 (mxfp8), 128
// (nvfp4).
int token_alignment(job::Precision precision);

}  // namespace trifold::layer

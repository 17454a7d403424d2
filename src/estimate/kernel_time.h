// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kind of work the kernels of a stage do, and for how long: seconds of all its micro-batches,
// as if nothing overlapped and nothing waited for the host.

#include "estimate/stage_time.h"

namespace trifold::estimate {

enum class Work : std::uint8_t {
  gemm,       // dense and grouped
  attention,  // core attention
  memory_bound,
  quantize,
  routing,       // memory-bound too: scores, and the passes that order rows by expert
  communication  // of the stage's blocks: tensor, context and expert parallel
};
inline constexpr int kWorks = 6;
inline constexpr const char* kWorkNames[kWorks] = {"gemm",     "attention", "memory_bound",
                                                   "quantize", "routing",   "communication"};

struct KernelTime {
  std::array<double, kWorks> forward{}, backward{};  // backward: with recomputation
  double of(Work work) const {
    return forward[static_cast<std::size_t>(work)] + backward[static_cast<std::size_t>(work)];
  }
};

// `content`: the stage's, `blocks` reset to the Job.
KernelTime kernel_time(const job::Job& job, const StageContent& content, BlockTimes& blocks);

}  // namespace trifold::estimate

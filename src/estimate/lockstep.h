// SPDX-License-Identifier: Apache-2.0
#pragma once

// What chunks of unequal length cost an interleaved pipeline.

#include <vector>

#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::estimate {

struct ChunkTimes {  // seconds of one unit, by stage x chunk
  std::vector<double> forward, backward;
  std::vector<double> merging;  // what a mean layer of it saves in both directions when merged
};

// Buffers are reused.
struct Lockstep {
  // Seconds that a step takes longer than its busiest stage because stages run chunks of unequal
  // length at the same time. Within a few per cent of itself for merged 1F1B; an upper estimate
  // where lengths vary at random without merging.
  double seconds = 0;
  // By stage: of what merging could save, the share that layers with a partner do. Layers pair by
  // count and the surplus runs alone (megatron.md 4.4).
  std::vector<double> paired;
  std::vector<double> ticks;  // scratch
};

// Interleaved schedules with vpp > 1; nothing else has unequal chunks in hand at once.
void lockstep(const job::Job& job, const layout::Pipeline& pipeline, const ChunkTimes& times,
              Lockstep& out);

}  // namespace trifold::estimate

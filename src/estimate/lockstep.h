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
  // What a neighbour waits beyond the end of a tick for what was sent in it: 0 where sends are
  // exposed anyhow (they are counted elsewhere).
  double forward_hop_s = 0, backward_hop_s = 0;
};

// Buffers are reused.
struct Lockstep {
  // Seconds that a step takes longer than its busiest stage because stages run chunks of unequal
  // length at the same time.
  double seconds = 0;
  // By stage: of what merging could save, the share that layers with a partner do. Layers pair by
  // count and the surplus runs alone (megatron.md 4.4).
  std::vector<double> paired;

  struct Stage {  // scratch: what it has in hand, and when its last units ended
    double forward_s = 0, backward_s = 0, forward_end = 0, backward_end = 0, next_forward = 0,
           next_backward = 0;
    int forward_chunk = 0, backward_chunk = 0, forward_left = 0, backward_left = 0;
  };
  std::vector<Stage> stages;
};

// Interleaved schedules with vpp > 1; nothing else has unequal chunks in hand at once.
void lockstep(const job::Job& job, const layout::Pipeline& pipeline, const ChunkTimes& times,
              Lockstep& out);

}  // namespace trifold::estimate

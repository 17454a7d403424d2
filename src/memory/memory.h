// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory of every pipeline stage at its peak. Bytes are exact for weights, gradients and optimizer
// (by sharding group and dtype), tensor by tensor for activations, counted or calibrated for
// buffers. Sources: megatron.md section 5, techniques.md (b).

#include <string>
#include <vector>

#include "base/units.h"
#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::memory {

struct StageMemory {
  Bytes weights, gradients, optimizer, activations, buffers;
  Bytes peak;      // allocator's allocated peak: the sum of the five
  Bytes reserved;  // what the allocator holds
};

struct Memory {
  Bytes capacity;  // what a process may allocate
  Bytes peak;      // of the worst stage
  Bytes reserved;  // of the stage that holds most
  Bytes headroom;  // capacity - reserved; negative: does not fit
  int worst_stage = 0;
  std::vector<StageMemory> stages;  // pp entries
  bool fits() const { return headroom.value() >= 0; }
};

// Fills `out`, reusing its storage: no allocation after the first call with as many stages.
void evaluate(const job::Job& job, const layout::Pipeline& pipeline, Memory& out);
// Peak, reserved, headroom and worst stage of `out` from its stages.
void summarize(const job::Job& job, Memory& out);

// One line of the proof: what, the formula with numbers in, its divisor and why, bytes.
struct Term {
  enum class Part : std::uint8_t { weights, gradients, optimizer, activations, buffers } part;
  std::string name;
  std::string formula;  // "16 layers x 3 x 7168 x 2048 x 256 experts x 2 B / 64"
  std::string divisor;  // "ep 64: experts are sharded over the expert-parallel group"
  Bytes bytes;
};
// The terms of one stage; they sum to its parts exactly. Negative terms are what has been freed or
// moved to the host.
std::vector<Term> explain(const job::Job& job, const layout::Pipeline& pipeline, int stage);

// Which stage a global rank belongs to. A Job with `measured_rank` >= 0 makes evaluate() answer for
// that rank's stage instead of the worst one.
int stage_of_rank(const job::Job& job, int rank);

// The peak as a distribution: routing is drawn anew for every layer and sample (techniques.routing;
// Dirichlet, Zipf or histogram shares dealt to experts at random, or expert_load's prior where
// nothing is stated), and the rank that is worst over the layers of its stage sets the peak.
struct OutOfMemoryRisk {
  Bytes p50, p90, p99, max;  // allocated peak of the worst rank
  Bytes balanced;            // the same with every expert equally loaded
  double probability = 0;    // reserved > capacity
  int samples = 0;
  int worst_stage = 0;  // where the median peak lies
};
OutOfMemoryRisk out_of_memory_risk(const job::Job& job, const layout::Pipeline& pipeline,
                                   int samples);

// One change to the Job and what it does to the worst stage; legal changes alone, the most freeing
// first.
struct Lever {
  std::string change;  // "recompute moe_act", "pp 8 -> 16"
  Bytes freed;         // of the worst stage's peak
  Bytes peak;          // afterwards
  bool changes_layout = false;
};
std::vector<Lever> levers(const job::Job& job, const layout::Pipeline& pipeline);

}  // namespace trifold::memory

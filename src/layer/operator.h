// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operator: the unit of work of one micro-batch on one rank, with everything its price depends on.
// No seconds here.

#include <cstdint>

#include "hardware/profile.h"
#include "job/techniques.h"

namespace trifold::layer {

// The five segments of a block (DESIGN section 5). A dense block has A and X only.
enum class Segment : std::uint8_t {
  attention,  // A: norms, projections, core attention, residual, router, dispatch preprocessing
              // (permute before send)
  dispatch,   // D
  experts,    // X: also the dense feed-forward
  combine,    // C
  shared      // S
};
inline constexpr int kSegments = 5;

enum class Pass : std::uint8_t {
  forward,
  dgrad,
  wgrad,
  recompute
};  // recompute runs before dgrad of its segment
inline constexpr int kPasses = 4;

enum class Family : std::uint8_t {
  gemm,
  grouped_gemm,
  attention,
  memory_bound,
  quantize,  // compute stream
  tp_comm,
  cp_comm,
  ep_comm  // links
};
inline constexpr int kFamilies = 8;
inline constexpr const char* kFamilyNames[kFamilies] = {"gemm",         "grouped_gemm", "attention",
                                                        "memory_bound", "quantize",     "tp_comm",
                                                        "cp_comm",      "ep_comm"};
constexpr bool is_communication(Family f) { return f >= Family::tp_comm; }

struct Operator {
  const char* name = "";
  Segment segment = Segment::attention;
  Pass pass = Pass::forward;
  Family family = Family::memory_bound;
  hardware::Dtype dtype = hardware::Dtype::bf16;
  hardware::GemmPass gemm_pass = hardware::GemmPass::forward;

  double flops = 0;  // executed, not model FLOPs; causal attention counts half
  double bytes = 0;  // HBM traffic of memory-bound operators; payload per rank of collectives
                     // (nccl-tests size S)
  // gemm: m x n x k. grouped_gemm: m = tokens per local expert (slowest rank), groups = local
  // experts. attention: m = key sequence, n = qk head dim, k = heads x micro-batch.
  double m = 0, n = 0, k = 0;
  int groups = 1;
  hardware::GroupedKernel grouped_kernel = hardware::GroupedKernel::streams;  // grouped_gemm
  int repeat = 1;  // the same launch this many times (latency, kernels and time all scale)

  hardware::Collective collective = hardware::Collective::all_gather;  // *_comm, unless `dispatch`
  bool dispatch =
      false;  // ep_comm by the Job's dispatcher: token transfer, priced by layer/exchange.h volumes
  double scaleup_bytes = 0;   // dispatch: sent per rank inside the domain, the slowest rank
  double scaleup_rows = 0;    // dispatch: rows those bytes are
  double scaleout_bytes = 0;  // dispatch: sent per rank to other domains
  bool routes = false;        // dispatch: where rows will go, ahead of them, not the rows
  bool blocks = false;        // the host waits for it: nothing is launched beside it
  int group_ranks = 1;        // ranks of the collective's group
  int group_domains = 1;      // scale-up domains it touches

  std::uint16_t modules =
      0;                 // bit set of job::Recompute modules that would rerun this forward operator
  bool routing = false;  // a memory-bound pass that picks experts or moves rows for them
  float kernels = 0;     // kernels launched
  float host_ops = 0;    // host operations (framework calls, launches, syncs) without graphs
  std::uint8_t graph_scope =
      0xff;  // job::GraphScope that would capture it; 0xff: only layer / full_iteration
};

}  // namespace trifold::layer

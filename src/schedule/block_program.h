// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one block does, timed: its operators from layer/ at cost/'s prices, cut into the pieces that
// schedules move about. Built once for each kind of block and stamped out for every layer and
// micro-batch.

#include <array>
#include <vector>

#include "cost/price.h"
#include "job/job.h"
#include "layout/pipeline.h"
#include "schedule/contention.h"
#include "sim/engine.h"

namespace trifold::schedule {

// Streams of one GPU. Tensor- and context-parallel transfers share one, as Megatron's default
// stream order makes them; offload has one stream a direction, as Megatron's d2h and h2d.
enum class Stream : std::uint8_t {
  compute,
  dispatch,
  tensor,
  send_down,
  send_up,
  reduce,
  gather,
  to_host,
  from_host
};
inline constexpr int kStreams = 9;
inline constexpr const char* kStreamNames[kStreams] = {
    "compute",          "dispatch",          "tensor/context", "send down",     "send up",
    "reduce gradients", "gather parameters", "copy to host",   "copy from host"};

// What time is spent on; the names of estimate::Time and estimate::Comm.
enum class Category : std::uint8_t {
  compute,
  recompute,
  host,
  optimizer,
  ep,
  tp,
  cp,
  pp,
  dp,
  copy
};
inline constexpr int kCategories = 10;
inline constexpr const char* kCategoryNames[kCategories] = {
    "compute", "recompute", "host", "optimizer", "ep", "tp", "cp", "pp", "dp", "copy"};

struct TimedOp {
  const char* name = "";
  sim::Picoseconds work = 0;
  Stream stream = Stream::compute;
  Category category = Category::compute;
  layer::Family family = layer::Family::memory_bound;
  std::uint8_t load = 0;
  bool scales_with_load = false;  // routed tokens set its time
  bool regather = false;  // a saved input gathered again for the weight gradient: hides under dgrad
};

// A run of operators, each after the one before; [begin, end) of BlockProgram::ops.
struct Piece {
  int begin = 0, end = 0;
  bool empty() const { return begin == end; }
};

struct BlockProgram {
  std::vector<TimedOp> ops;
  // In order of execution, nothing overlapped: the whole forward, the whole backward, and the
  // backward cut in data gradient (with recompute) and weight gradient.
  Piece forward, backward, dgrad, wgrad;
  // By segment: forward, and backward data gradient (recompute first), weight gradient; transfers
  // of D and C stand alone, their kernels (permutes, residuals) beside them.
  std::array<Piece, layer::kSegments> f, b, w;
  Piece f_dispatch_comm, f_combine_comm, b_dispatch_comm, b_combine_comm;
  // f and b of combine on the dispatch stream, where a merged pair runs them.
  Piece f_combined, b_combining;
  Piece f_shared_first, f_shared_second;
  bool routed = false;            // has dispatch and combine
  bool waits_for_counts = false;  // the attention segment ends with an exchange that
                                  // the host waits for
  double host_forward_s = 0, host_backward_s = 0;  // of the host, alone
  double host_merge_s = 0;                         // of the host, when merged, on top of both
  double wait_forward_s = 0, wait_backward_s = 0;  // of the device for it, unmerged
};

struct LoweringOptions {
  bool contention = true;  // false: nothing slows anything
  bool fuse = false;       // neighbouring kernels of one family and segment become one task
  bool vary_load = false;  // expert load drawn for each layer and micro-batch
  std::uint64_t seed = 0;
  Contention model;
};

// All block programs of a Job and the loads they use.
struct Programs {
  BlockProgram layer[model::kLayerKinds], embedding, head, mtp_projection;
  // Beside the blocks; whoever adds the task says how long.
  TimedOp send_forward{"send forward", 0, Stream::send_down, Category::pp};
  TimedOp send_backward{"send backward", 0, Stream::send_up, Category::pp};
  TimedOp reduce{"reduce gradients", 0, Stream::reduce, Category::dp};
  TimedOp gather{"gather parameters", 0, Stream::gather, Category::dp};
  TimedOp offload{"offload", 0, Stream::to_host, Category::copy};
  TimedOp reload{"reload", 0, Stream::from_host, Category::copy};
  TimedOp optimizer{"optimizer", 0, Stream::compute, Category::optimizer};
  // The part of a tensor- or context-parallel transfer that hides: pieces moved by copy engines
  // (userbuffers); what they cost the GEMMs is in the profile's exposed share.
  TimedOp hidden_tp{"tensor parallel, hidden", 0, Stream::tensor, Category::tp};
  TimedOp hidden_cp{"context parallel, hidden", 0, Stream::tensor, Category::cp};
  sim::LoadTable loads;
};
void build_programs(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
                    const LoweringOptions& options, Programs& out);

}  // namespace trifold::schedule

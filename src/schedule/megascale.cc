// SPDX-License-Identifier: Apache-2.0
// Overlap inside one micro-batch.
//
// shared_expert  the shared expert's first linear beside dispatch, the rest beside combine.
// inter_op       MegaScale-MoE (2505.11432 section 4): independent operators of the macro layer run
//                beside its transfers. Forward: the shared expert alone, as above. Backward: the
//                weight gradient of the experts (whose inputs are gathered again under the data
//                gradient, which is what selective rematerialisation costs) runs beside the return
//                of dispatch, the shared expert beside that of combine.
// intra_op       the same paper's tile fusion (A2A+GEMM, AG+GroupedGEMM, GroupedGEMM+RS): a
//                transfer and its GEMM share one kernel; both take the longer of the two and a
//                tile's tail (kTileTail) at either end.
#include <algorithm>

#include "schedule/lowering.h"

namespace trifold::schedule {

using job::Overlap;
using layer::Segment;

namespace {

constexpr double kTileTail = 0.1;
constexpr std::size_t at(Segment s) { return static_cast<std::size_t>(s); }

}  // namespace

// Transfer in, experts, transfer out as one tile pipeline; `after` is the producer of the input.
sim::Index Lowering::fused_experts(const Unit& u, const BlockProgram& b, int layer, bool forward,
                                   sim::Index after) {
  const Work kind = forward ? Work::forward : Work::backward;
  const Piece in = forward ? b.f_dispatch_comm : b.b_combine_comm;
  const Piece out = forward ? b.f_combine_comm : b.b_dispatch_comm;
  const Piece experts = (forward ? b.f : b.b)[at(Segment::experts)];
  const sim::Index first = chain(u, b, in, layer, kind, after, kTileTail);
  const sim::Index rest = chain(u, b, in, layer, kind, first, 1 - kTileTail);
  const sim::Index computed = chain(u, b, experts, layer, kind, first);
  const sim::Index body = chain(u, b, out, layer, kind, rest, 1 - kTileTail);
  const sim::Index tail = chain(u, b, out, layer, kind, body, kTileTail);
  if (tail != computed) depend(computed, tail);
  return tail;
}

sim::Index Lowering::overlapped_forward(const Unit& u, const BlockProgram& b, int layer,
                                        sim::Index after) {
  const job::Techniques& t = job_.techniques;
  const auto run = [&](const Piece& p, sim::Index from, double part = 1) {
    return chain(u, b, p, layer, Work::forward, from, part);
  };
  const sim::Index attended = run(b.f[at(Segment::attention)], after);
  if (t.has(Overlap::intra_op)) {
    const sim::Index shared = run(b.f[at(Segment::shared)], attended);
    sim::Index last = fused_experts(u, b, layer, true, attended);
    last = run(b.f[at(Segment::combine)], last);
    if (last != shared) depend(shared, last);
    return last;
  }
  const Piece experts = b.f[at(Segment::experts)];
  const sim::Index dispatched = run(b.f_dispatch_comm, attended);
  run(b.f_shared_first, attended);
  const sim::Index combined = run(b.f_combine_comm, run(experts, dispatched));
  run(b.f_shared_second, attended);
  return run(b.f[at(Segment::combine)], combined);
}

sim::Index Lowering::overlapped_backward(const Unit& u, const BlockProgram& b, int layer,
                                         sim::Index after) {
  const job::Techniques& t = job_.techniques;
  const auto run = [&](const Piece& p, sim::Index from, double part = 1) {
    return chain(u, b, p, layer, Work::backward, from, part);
  };
  const sim::Index entered = run(b.b[at(Segment::combine)], after);
  sim::Index returned = kNone;
  if (t.has(Overlap::intra_op)) {
    run(b.b[at(Segment::shared)], entered);
    returned = fused_experts(u, b, layer, false, entered);
    run(b.w[at(Segment::experts)], entered);
    run(b.w[at(Segment::shared)], entered);
  } else if (t.has(Overlap::inter_op)) {
    const sim::Index combined = run(b.b_combine_comm, entered);
    run(b.b[at(Segment::shared)], entered);
    returned = run(b.b_dispatch_comm, run(b.b[at(Segment::experts)], combined));
    run(b.w[at(Segment::experts)], combined);
    run(b.w[at(Segment::shared)], entered);
  } else {
    const sim::Index combined = run(b.b_combine_comm, entered);
    run(b.b[at(Segment::shared)], entered);
    const sim::Index experts = run(b.b[at(Segment::experts)], combined);
    returned = run(b.b_dispatch_comm, run(b.w[at(Segment::experts)], experts));
    run(b.w[at(Segment::shared)], entered);
  }
  return run(b.w[at(Segment::attention)], run(b.b[at(Segment::attention)], returned));
}

}  // namespace trifold::schedule

// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many units (one micro-batch through one chunk) a stage keeps for its backward. One pure
// function that memory, estimate and schedule all call. Source: megatron.md 4.2 and 5.4.

#include "base/tokens.h"

namespace trifold::layout {

enum class ScheduleKind : std::uint8_t {
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  dualpipe,
  dualpipe_v
};
inline constexpr Token<ScheduleKind> kScheduleKinds[] = {{ScheduleKind::one_f_one_b, "1f1b"},
                                                         {ScheduleKind::interleaved, "interleaved"},
                                                         {ScheduleKind::zb_h1, "zb_h1"},
                                                         {ScheduleKind::zb_h2, "zb_h2"},
                                                         {ScheduleKind::zb_v, "zb_v"},
                                                         {ScheduleKind::dualpipe, "dualpipe"},
                                                         {ScheduleKind::dualpipe_v, "dualpipe_v"}};

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int pp = 1;
  int vpp = 1;
  int microbatches = 1;
  int group_size = 0;       // interleaved: micro-batches a group; 0: pp
  bool ep_overlap = false;  // merged forward-backward: one unit of warm-up more
  int group() const { return group_size > 0 ? group_size : pp; }
};

// Copies of a stage's parameters on one rank: DualPipe keeps stages r and pp-1-r on rank r.
constexpr int parameter_copies(ScheduleKind kind) { return kind == ScheduleKind::dualpipe ? 2 : 1; }
constexpr bool is_zero_bubble(ScheduleKind kind) {
  return kind == ScheduleKind::zb_h1 || kind == ScheduleKind::zb_h2 || kind == ScheduleKind::zb_v;
}
// Kinds whose two chunks are placed in a V (pipeline.h).
constexpr bool is_vee(ScheduleKind kind) {
  return kind == ScheduleKind::zb_v || kind == ScheduleKind::dualpipe_v;
}

// Forward units before the first backward on `stage`.
int warmup_units(const ScheduleShape& shape, int stage);

// Units of each chunk alive at the peak on `stage`, in units of micro-batches: out[chunk] (vpp
// entries). Their sum is min(warm-up + 1, microbatches * vpp) for 1F1B and interleaving, the
// warm-up alone when merged. Zero-bubble and DualPipe kinds by their papers.
void in_flight_units(const ScheduleShape& shape, int stage, int* out);

// The order in which interleaving visits (chunk, micro-batch): unit i of the forward order.
struct Unit {
  int chunk = 0;
  int microbatch = 0;
};
Unit forward_unit(const ScheduleShape& shape, int i);
Unit backward_unit(const ScheduleShape& shape, int i);

}  // namespace trifold::layout

// SPDX-License-Identifier: Apache-2.0
#include "layout/in_flight.h"

// Units of activations alive at the peak. p stages, v chunks a stage, M micro-batches, N
// micro-batches a group, stage r.
//
//   1F1B         warm-up p-r-1                           Megatron schedules.py (megatron.md 4.2)
//   interleaved  warm-up 2(p-r-1) + (v-1)N               same
//   merged       warm-up one more, and as much alive: a layer of the backward goes for each layer
//                of the forward that comes. Megatron's peak of 16 layers at p = 1 grew from 16,228
//                to 16,564 MiB, of which a second micro-batch would be 4,000
//                (tests/observations/megatron_runs)
//   ZB-H1        2401.10241: peak (p-i+1) M_B + (i-1) M_W on stage i = r+1
//   ZB-H2        2401.10241: peak (2p-2i+1) M_B + (2i-2) M_W
//   ZB-V         the same paper's V schedule: p full stages everywhere, as 1F1B's worst stage
//   DualPipe     DeepSeek-V3 report, Table 2: p+1 stages of activations, 2x parameters
//   DualPipeV    DualPipe's README: PP+1 with PP = 2p stages on p ranks
//
// A unit whose activation gradient is done but whose weight gradient waits (M_W) is counted as a
// whole unit, which is an upper bound: it makes ZB-H1 p and ZB-H2 2p-1 units on every stage. The
// peak is taken when the last warm-up unit and one more forward are in, before the first backward;
// later peaks have the same sum and, with interleaving, another mix of chunks.
//
// V schedules: micro-batch 0 reaches chunk 1 of stage r after 2p-1-r units of time, and its
// backward returns after 2p+r; stage r has run 2p forwards by then, 2p-1-r of chunk 0 and r+1 of
// chunk 1.

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace trifold::layout {

namespace {

// Before merging, and before there are too few micro-batches.
std::int64_t plain_warmup(const ScheduleShape& s, int stage) {
  const std::int64_t p = s.pp, below = s.pp - stage - 1;
  switch (s.kind) {
    case ScheduleKind::one_f_one_b:
      return below;
    case ScheduleKind::interleaved:
      return 2 * below + std::int64_t{s.vpp - 1} * s.group();
    case ScheduleKind::zb_h1:
      return below;
    case ScheduleKind::zb_h2:
      return 2 * below;
    case ScheduleKind::zb_v:
      return 2 * p - 1;
    case ScheduleKind::dualpipe:
      return p;
    case ScheduleKind::dualpipe_v:
      return 2 * p;
  }
  return 0;
}

// Units of `chunk` among the first `count` forward units.
int of_chunk(const ScheduleShape& s, std::int64_t count, int chunk) {
  const std::int64_t group = s.group(), span = group * s.vpp;
  const std::int64_t whole = std::min(count / span, std::int64_t{s.microbatches} / group);
  const std::int64_t rest = count - whole * span;
  const std::int64_t size = std::min(group, s.microbatches - whole * group);
  return static_cast<int>(whole * group + std::clamp(rest - chunk * size, std::int64_t{0}, size));
}

}  // namespace

int warmup_units(const ScheduleShape& shape, int stage) {
  TRIFOLD_CHECK(stage >= 0 && stage < shape.pp);
  const std::int64_t all = std::int64_t{shape.microbatches} * shape.vpp;
  const bool merges = shape.ep_overlap && (shape.kind == ScheduleKind::one_f_one_b ||
                                           shape.kind == ScheduleKind::interleaved);
  return static_cast<int>(std::min(plain_warmup(shape, stage) + (merges ? 1 : 0), all));
}

void in_flight_units(const ScheduleShape& shape, int stage, int* out) {
  TRIFOLD_CHECK(stage >= 0 && stage < shape.pp);
  const int m = shape.microbatches, p = shape.pp;
  switch (shape.kind) {
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved: {
      const std::int64_t peak =
          std::min<std::int64_t>(plain_warmup(shape, stage) + 1, std::int64_t{m} * shape.vpp);
      for (int k = 0; k < shape.vpp; ++k) out[k] = of_chunk(shape, peak, k);
      return;
    }
    case ScheduleKind::zb_v:
    case ScheduleKind::dualpipe_v: {
      const int extra = shape.kind == ScheduleKind::dualpipe_v ? 1 : 0;
      std::fill(out, out + shape.vpp, 0);
      out[0] = std::min(m, 2 * p - 1 - stage + extra);
      if (shape.vpp > 1) out[1] = std::min(m, stage + 1);
      return;
    }
    case ScheduleKind::zb_h1:
    case ScheduleKind::zb_h2:
    case ScheduleKind::dualpipe: {
      const int peak = shape.kind == ScheduleKind::zb_h1   ? p
                       : shape.kind == ScheduleKind::zb_h2 ? 2 * p - 1
                                                           : p + 1;
      std::fill(out, out + shape.vpp, std::min(m, peak));
      return;
    }
  }
}

Unit forward_unit(const ScheduleShape& shape, int i) {
  if (shape.vpp == 1) return Unit{0, i};
  const int group = shape.group(), span = group * shape.vpp;
  const int start = i / span * group;
  const int size = std::min(group, shape.microbatches - start);
  const int rest = i % span;
  return Unit{rest / size, start + rest % size};
}

Unit backward_unit(const ScheduleShape& shape, int i) {
  Unit unit = forward_unit(shape, i);
  unit.chunk = shape.vpp - 1 - unit.chunk;
  return unit;
}

}  // namespace trifold::layout

// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.h"

#include <algorithm>

#include "base/check.h"

namespace trifold::schedule {
namespace {

void place(const Program& p, int v, int direction, int& stage, int& chunk) {
  switch (p.placement) {
    case Placement::looped:
      stage = v % p.pp, chunk = v / p.pp;
      return;
    case Placement::vee:
      stage = v < p.pp ? v : 2 * p.pp - 1 - v, chunk = v < p.pp ? 0 : 1;
      return;
    case Placement::two_way:
      stage = direction == 0 ? v : p.pp - 1 - v, chunk = direction;
      return;
  }
}

}  // namespace

int Program::virtual_stage(int stage, int chunk) const {
  switch (placement) {
    case Placement::looped:
      return chunk * pp + stage;
    case Placement::vee:
      return chunk == 0 ? stage : 2 * pp - 1 - stage;
    case Placement::two_way:
      return chunk == 0 ? stage : pp - 1 - stage;
  }
  return 0;
}

bool Program::before(int stage, int chunk, int& other_stage, int& other_chunk) const {
  const int v = virtual_stage(stage, chunk);
  if (v == 0) return false;
  place(*this, v - 1, chunk, other_stage, other_chunk);
  return true;
}

bool Program::after(int stage, int chunk, int& other_stage, int& other_chunk) const {
  const int v = virtual_stage(stage, chunk);
  if (v + 1 == depth()) return false;
  place(*this, v + 1, chunk, other_stage, other_chunk);
  return true;
}

Program build_program(const layout::ScheduleShape& shape, const UnitTimes& times,
                      int in_flight_limit) {
  Program out;
  out.pp = shape.pp;
  out.chunks = shape.vpp;
  out.microbatches = shape.microbatches;
  out.stages.resize(static_cast<std::size_t>(shape.pp));
  switch (shape.kind) {
    case layout::ScheduleKind::one_f_one_b:
    case layout::ScheduleKind::interleaved:
      if (shape.ep_overlap)
        build_merged(shape, out);
      else if (shape.vpp > 1)
        build_interleaved(shape, out);
      else
        build_one_f_one_b(shape, out);
      break;
    case layout::ScheduleKind::zb_h1:
    case layout::ScheduleKind::zb_h2:
    case layout::ScheduleKind::zb_v:
      build_zero_bubble(shape, times, in_flight_limit, out);
      break;
    case layout::ScheduleKind::dualpipe:
    case layout::ScheduleKind::dualpipe_v:
      build_dualpipe(shape, out);
      break;
  }
  return out;
}

double peak_units(const Program& program, int stage, double wgrad_memory) {
  double alive = 0, peak = 0;
  for (const Slot& s : program.stages[static_cast<std::size_t>(stage)]) {
    // A merged unit frees a layer for every layer that it fills.
    if (s.work == Work::forward) peak = std::max(peak, ++alive);
    if (s.work == Work::backward) alive -= s.split ? 1 - wgrad_memory : 1;
    if (s.work == Work::wgrad) alive -= wgrad_memory;
  }
  return peak;
}

const char* check_program(const Program& program) {
  for (const std::vector<Slot>& slots : program.stages) {
    const std::size_t units = static_cast<std::size_t>(program.chunks * program.microbatches);
    std::vector<std::uint8_t> state(units, 0);  // 1 forward, 2 backward, 3 all done
    const auto at = [&](int chunk, int microbatch) -> std::uint8_t& {
      return state[static_cast<std::size_t>(chunk * program.microbatches + microbatch)];
    };
    for (const Slot& s : slots) {
      if (s.work == Work::forward || s.work == Work::merged)
        if (at(s.chunk, s.microbatch)++ != 0) return "a forward unit runs twice";
      if (s.work == Work::backward || s.work == Work::merged) {
        const bool merged = s.work == Work::merged;
        std::uint8_t& b =
            at(merged ? s.backward_chunk : s.chunk, merged ? s.backward_microbatch : s.microbatch);
        if (b != 1) return "a backward unit without its forward, or twice";
        b = s.split ? 2 : 3;
      }
      if (s.work == Work::wgrad) {
        if (at(s.chunk, s.microbatch) != 2) return "a weight gradient without its data gradient";
        at(s.chunk, s.microbatch) = 3;
      }
    }
    if (std::any_of(state.begin(), state.end(), [](std::uint8_t x) { return x != 3; }))
      return "a unit is missing";
  }
  return "";
}

}  // namespace trifold::schedule

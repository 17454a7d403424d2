// SPDX-License-Identifier: Apache-2.0
#pragma once

// Program: what every stage's compute stream does, in order, in units (one micro-batch through one
// chunk). A schedule is this order and where chunks sit; durations come later (unit_graph.h for
// unit times, lower.h for operators).

#include <cstdint>
#include <vector>

#include "layout/in_flight.h"

namespace trifold::schedule {

enum class Work : std::uint8_t {
  forward,
  backward,  // both gradients, or the data gradient alone where `split_wgrad`
  wgrad,
  merged  // a forward unit and a backward unit side by side
};

struct Slot {
  Work work = Work::forward;
  std::int16_t chunk = 0;
  std::int32_t microbatch = 0;
  std::int16_t backward_chunk = 0;  // merged: the backward unit
  std::int32_t backward_microbatch = 0;
  bool split = false;  // this backward leaves its weight gradient to a wgrad slot
  bool operator==(const Slot&) const = default;
};

// Where virtual stage v of a micro-batch sits. looped: (v % pp, v / pp). vee: down the ranks and
// back up. two_way: chunk 0 goes down and chunk 1 up, each with half of the micro-batches and its
// own copy of the parameters.
enum class Placement : std::uint8_t { looped, vee, two_way };

// Times of a unit, in any one unit of time; `transfer` is one hop between ranks.
struct UnitTimes {
  double forward = 1, backward = 1, wgrad = 1, transfer = 0;
  double merged = 0;  // 0: forward + backward + wgrad
  // Activations that a unit keeps between its data gradient and its weight gradient, as a share of
  // what it keeps before (M_W / M_B of 2401.10241). 1: nothing is freed by the data gradient.
  double wgrad_memory = 1;
};

struct Program {
  Placement placement = Placement::looped;
  int pp = 1;
  int chunks = 1;        // per stage
  int microbatches = 1;  // of each direction for two_way
  std::vector<std::vector<Slot>> stages;

  int depth() const { return placement == Placement::two_way ? pp : pp * chunks; }
  int virtual_stage(int stage, int chunk) const;
  // The rank and chunk before (after) this one on a micro-batch's way; false at the ends.
  bool before(int stage, int chunk, int& other_stage, int& other_chunk) const;
  bool after(int stage, int chunk, int& other_stage, int& other_chunk) const;
};

// The schedule of `shape.kind` (merged when shape.ep_overlap and the kind is 1F1B or interleaved).
// Zero-bubble kinds are built greedily for `times` under the kind's memory limit, or under
// `in_flight_limit` units where it is not 0 (controllable memory).
Program build_program(const layout::ScheduleShape& shape, const UnitTimes& times = {},
                      int in_flight_limit = 0);

// One file each.
void build_one_f_one_b(const layout::ScheduleShape& shape, Program& out);
void build_interleaved(const layout::ScheduleShape& shape, Program& out);
void build_merged(const layout::ScheduleShape& shape, Program& out);
void build_zero_bubble(const layout::ScheduleShape& shape, const UnitTimes& times,
                       int in_flight_limit, Program& out);
void build_dualpipe(const layout::ScheduleShape& shape, Program& out);

// Highest number of units whose forward ran and whose backward (weight gradient, where split) has
// not finished, by walking a stage's order; between the two gradients a unit counts `wgrad_memory`.
double peak_units(const Program& program, int stage, double wgrad_memory = 1);

// Every unit of every stage exactly once, forward before backward before wgrad: empty when sound.
const char* check_program(const Program& program);

}  // namespace trifold::schedule

// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.h"

#include <gtest/gtest.h>

#include "schedule/unit_graph.h"

namespace trifold::schedule {
namespace {

using layout::ScheduleKind;

layout::ScheduleShape shape(ScheduleKind kind, int pp, int vpp, int microbatches) {
  layout::ScheduleShape s;
  s.kind = kind;
  s.pp = pp;
  s.vpp = vpp;
  s.microbatches = microbatches;
  return s;
}

// Bubble over the ideal M (F + B + W), in the times' unit.
double bubble(const Program& p, const UnitTimes& t, bool span = false) {
  const double cost = span ? longest_stage_span(p, t) : run_units(p, t);
  const int units =
      p.placement == Placement::two_way ? 2 * p.microbatches : p.microbatches * p.chunks;
  return cost - units * (t.forward + t.backward + t.wgrad);
}

// (p-1)(F + B), B both gradients: 2104.04473 section 2.2.1.
TEST(OneFOneB, BubbleIsExact) {
  const UnitTimes t{1, 1.25, 0.75};
  for (int p : {1, 2, 4, 7})
    for (int m : {p, 3 * p})
      EXPECT_NEAR(bubble(build_program(shape(ScheduleKind::one_f_one_b, p, 1, m)), t),
                  (p - 1) * 3.0, 1e-9);
}

// p = 2, hop c: between two of stage 1's micro-batches, B (stage 1) -> c -> B, F (stage 0) -> c ->
// F (stage 1) takes T + 2c while stage 1 runs one unit of T; so two micro-batches take 2T + 2c.
TEST(OneFOneB, TransfersShowWhereStagesAlternate) {
  UnitTimes t{1, 0.5, 0.5, 0.1};
  const Program p = build_program(shape(ScheduleKind::one_f_one_b, 2, 1, 10));
  const double longer = run_units(build_program(shape(ScheduleKind::one_f_one_b, 2, 1, 20)), t);
  EXPECT_NEAR(longer - run_units(p, t), 10 * (2 + 0.1), 1e-9);
}

// (p-1) chunk forwards and backwards whatever v: fraction (p-1)/(vM).
TEST(Interleaved, BubbleShrinksWithChunks) {
  for (int v : {2, 4})
    for (int p : {2, 4, 8}) {
      const UnitTimes t{1.0 / v, 1.25 / v, 0.75 / v};
      EXPECT_NEAR(bubble(build_program(shape(ScheduleKind::interleaved, p, v, 2 * p)), t),
                  (p - 1) * 3.0 / v, 1e-9);
    }
}

// Megatron: the last group is empty or at least p micro-batches.
TEST(Interleaved, AnyGroupSizeIsSound) {
  for (int group : {4, 5, 8})
    for (int m : {2 * group, 3 * group, group < 8 ? 4 * group : 2 * group + 4}) {
      layout::ScheduleShape s = shape(ScheduleKind::interleaved, 4, 3, m);
      s.group_size = group;
      const Program p = build_program(s);
      EXPECT_STREQ(check_program(p), "");
      EXPECT_GT(run_units(p, {}), 0);  // completes: no cycle
      for (int r = 0; r < 4; ++r) {
        int in_flight[3];
        layout::in_flight_units(s, r, in_flight);
        EXPECT_DOUBLE_EQ(peak_units(p, r), in_flight[0] + in_flight[1] + in_flight[2]);
      }
    }
}

// megatron.md 4.2: p = 8, v = 4, M = 128 with EP overlap warms up 39, 37, ..., 25 units.
TEST(Merged, WarmUpsAreMegatrons) {
  layout::ScheduleShape s = shape(ScheduleKind::interleaved, 8, 4, 128);
  s.ep_overlap = true;
  const Program p = build_program(s);
  EXPECT_STREQ(check_program(p), "");
  for (int r = 0; r < 8; ++r) {
    int warmup = 0;
    while (p.stages[static_cast<std::size_t>(r)][static_cast<std::size_t>(warmup)].work ==
           Work::forward)
      ++warmup;
    EXPECT_EQ(warmup, 39 - 2 * r);
  }
  EXPECT_GT(run_units(p, {}), 0);
}

// p = 1: first forward and last backward alone, M - 1 pairs between.
TEST(Merged, OneStagePairsNeighbours) {
  layout::ScheduleShape s = shape(ScheduleKind::one_f_one_b, 1, 1, 5);
  s.ep_overlap = true;
  const std::vector<Slot> slots = build_program(s).stages[0];
  ASSERT_EQ(slots.size(), 6u);
  EXPECT_EQ(slots.front().work, Work::forward);
  EXPECT_EQ(slots.back().work, Work::backward);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(slots[i].work, Work::merged);
    EXPECT_EQ(slots[i].microbatch, static_cast<int>(i));
    EXPECT_EQ(slots[i].backward_microbatch, static_cast<int>(i) - 1);
  }
}

// 2401.10241 Table 1: H1 (p-1)(F + B - W), H2 (p-1)(F + B - 2W), for F = B = W.
TEST(ZeroBubble, HandcraftedBubblesAreExact) {
  for (int p : {2, 4, 8, 16}) {
    const Program h1 = build_program(shape(ScheduleKind::zb_h1, p, 1, 3 * p));
    const Program h2 = build_program(shape(ScheduleKind::zb_h2, p, 1, 3 * p));
    EXPECT_STREQ(check_program(h1), "");
    EXPECT_STREQ(check_program(h2), "");
    EXPECT_NEAR(bubble(h1, {}, true), p - 1, 1e-9);
    EXPECT_NEAR(bubble(h2, {}, true), 0, 1e-9);
    for (int r = 0; r < p; ++r) {
      EXPECT_LE(peak_units(h1, r), p);
      EXPECT_LE(peak_units(h2, r), 2 * p - 1);
    }
  }
}

// V: no more activations than 1F1B's worst stage (2p half-units) and, for F = B = W, a bubble of at
// most the time by which the last rank starts later, p - 1 half-units (p <= 8; 1.3 times at 16).
TEST(ZeroBubble, VHasOneFOneBsMemory) {
  for (int p : {2, 4, 8}) {
    const Program v = build_program(shape(ScheduleKind::zb_v, p, 2, 4 * p));
    EXPECT_STREQ(check_program(v), "");
    for (int r = 0; r < p; ++r) EXPECT_LE(peak_units(v, r), 2 * p);
    EXPECT_LE(bubble(v, {}), p - 1 + 1e-9);
  }
}

// Controllable memory: less room, never a shorter step, never more units than asked.
TEST(ZeroBubble, MemoryLimitIsKept) {
  const UnitTimes t{1, 1, 0.6, 0.02};
  double before = 0;
  for (int limit : {12, 8, 6}) {
    const Program p = build_program(shape(ScheduleKind::zb_h2, 6, 1, 18), t, limit);
    EXPECT_STREQ(check_program(p), "");
    for (int r = 0; r < 6; ++r) EXPECT_LE(peak_units(p, r), limit);
    const double cost = longest_stage_span(p, t);
    EXPECT_GE(cost, before - 1e-9);
    before = cost;
  }
}

// DeepSeek-V3 report Table 2: (p/2-1)(F&B + B - 3W) with B the full backward; F = 1, B = 2, W = 1,
// F&B = 3: 2 (p/2-1). On a V of p ranks the same with PP = 2p half-units. Activations p + 1.
TEST(DualPipe, BubbleAndMemoryAreThePapers) {
  for (int p : {2, 4, 8}) {
    const Program two = build_program(shape(ScheduleKind::dualpipe, p, 1, 4 * p));
    EXPECT_STREQ(check_program(two), "");
    EXPECT_NEAR(bubble(two, {}), 2.0 * (p / 2 - 1), 1e-9);
    const Program vee = build_program(shape(ScheduleKind::dualpipe_v, p, 2, 4 * p));
    EXPECT_STREQ(check_program(vee), "");
    EXPECT_NEAR(bubble(vee, {}), 2.0 * (p - 1), 1e-9);
    for (int r = 0; r < p; ++r) {
      EXPECT_LE(peak_units(two, r), p + 1);
      EXPECT_LE(peak_units(vee, r), 2 * p + 1);
    }
  }
}

TEST(Programs, PlacementsAreInverse) {
  for (ScheduleKind kind :
       {ScheduleKind::interleaved, ScheduleKind::zb_v, ScheduleKind::dualpipe}) {
    const Program p = build_program(shape(kind, 4, kind == ScheduleKind::dualpipe ? 1 : 2, 8));
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < p.chunks; ++c) {
        int s = 0, k = 0, back = 0, chunk = 0;
        if (!p.after(r, c, s, k)) continue;
        ASSERT_TRUE(p.before(s, k, back, chunk));
        EXPECT_EQ(back, r);
        EXPECT_EQ(chunk, c);
      }
  }
}

}  // namespace
}  // namespace trifold::schedule

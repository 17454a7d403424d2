// SPDX-License-Identifier: Apache-2.0
#include "layout/in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace trifold::layout {
namespace {

ScheduleShape shape(ScheduleKind kind, int pp, int vpp, int microbatches, bool overlap = false) {
  return ScheduleShape{kind, pp, vpp, microbatches, 0, overlap};
}

std::vector<int> units(const ScheduleShape& s, int stage) {
  std::vector<int> out(static_cast<std::size_t>(s.vpp), -1);
  in_flight_units(s, stage, out.data());
  return out;
}

int sum(const std::vector<int>& v) { return std::accumulate(v.begin(), v.end(), 0); }

// megatron.md 4.2: p=8 v=4 M=128 with EP overlap: (p-r-1)*2 + (v-1)*p + 1 = 14 + 24 + 1 = 39, minus
// two a stage.
TEST(InFlight, InterleavedWarmUpWithOverlap) {
  const ScheduleShape s = shape(ScheduleKind::interleaved, 8, 4, 128, true);
  for (int r = 0; r < 8; ++r) EXPECT_EQ(warmup_units(s, r), 39 - 2 * r);
}

// techniques.md: PP4 VPP4 holds 19/17/15/13 chunks.
TEST(InFlight, InterleavedPp4Vpp4) {
  const ScheduleShape s = shape(ScheduleKind::interleaved, 4, 4, 64);
  const int expected[] = {19, 17, 15, 13};
  for (int r = 0; r < 4; ++r) EXPECT_EQ(sum(units(s, r)), expected[r]);
  // 19 units in order: 4 of chunk 0, 4 of 1, 4 of 2, 4 of 3, then 3 of chunk 0's second group.
  EXPECT_EQ(units(s, 0), (std::vector<int>{7, 4, 4, 4}));
  EXPECT_EQ(units(s, 3), (std::vector<int>{4, 4, 4, 1}));
}

TEST(InFlight, OneFOneBHoldsPMinusR) {
  const ScheduleShape s = shape(ScheduleKind::one_f_one_b, 4, 1, 32);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(warmup_units(s, r), 3 - r);
    EXPECT_EQ(units(s, r)[0], 4 - r);
  }
  EXPECT_EQ(units(shape(ScheduleKind::one_f_one_b, 8, 1, 3), 0)[0], 3);  // only 3 micro-batches
}

// Merged units warm up by one more, and free a layer for each that they fill. Megatron's peak of 16
// layers without a pipeline grew by 335 MiB where a second micro-batch holds 4,000
// (tests/observations/megatron_runs).
TEST(InFlight, MergedHoldsAsMuchAsPlain) {
  for (int pp : {1, 2, 4}) {
    const ScheduleKind kind = pp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
    const ScheduleShape plain = shape(kind, pp, pp > 1 ? 3 : 1, 8);
    const ScheduleShape merged = shape(kind, pp, pp > 1 ? 3 : 1, 8, true);
    for (int r = 0; r < pp; ++r) {
      EXPECT_EQ(warmup_units(merged, r), warmup_units(plain, r) + 1);
      EXPECT_EQ(units(merged, r), units(plain, r));
    }
  }
}

TEST(InFlight, LargerGroupsRaiseIt) {
  ScheduleShape s = shape(ScheduleKind::interleaved, 4, 2, 32);
  s.group_size = 8;  // (v-1)N + 2(p-1) + 1 = 8 + 6 + 1
  EXPECT_EQ(sum(units(s, 0)), 15);
  EXPECT_EQ(units(s, 0), (std::vector<int>{8, 7}));
}

TEST(InFlight, CappedByTheStep) {
  const ScheduleShape s = shape(ScheduleKind::interleaved, 4, 4, 4);
  EXPECT_EQ(warmup_units(s, 0), 16);  // 18 > M v = 16
  EXPECT_EQ(units(s, 0), (std::vector<int>{4, 4, 4, 4}));
}

TEST(InFlight, ZeroBubbleByItsPapers) {
  for (int r = 0; r < 6; ++r) {
    EXPECT_EQ(units(shape(ScheduleKind::zb_h1, 6, 1, 48), r)[0], 6);   // p M_B
    EXPECT_EQ(units(shape(ScheduleKind::zb_h2, 6, 1, 48), r)[0], 11);  // (2p-1) M_B
    // p full stages are 2p half ones
    EXPECT_EQ(sum(units(shape(ScheduleKind::zb_v, 6, 2, 48), r)), 12);
  }
  EXPECT_EQ(warmup_units(shape(ScheduleKind::zb_h2, 6, 1, 48), 0), 10);
  // Stage 0 runs chunk 0 alone until micro-batch 0 has come down and back up the V.
  EXPECT_EQ(units(shape(ScheduleKind::zb_v, 6, 2, 48), 0), (std::vector<int>{11, 1}));
  EXPECT_EQ(units(shape(ScheduleKind::zb_v, 6, 2, 48), 5), (std::vector<int>{6, 6}));
}

TEST(InFlight, DualPipeByItsPaper) {
  for (int r = 0; r < 8; ++r) {
    EXPECT_EQ(units(shape(ScheduleKind::dualpipe, 8, 1, 64), r)[0], 9);              // PP + 1
    EXPECT_EQ(sum(units(shape(ScheduleKind::dualpipe_v, 8, 2, 64), r)), 2 * 8 + 1);  // PP = 2p
  }
  EXPECT_EQ(parameter_copies(ScheduleKind::dualpipe), 2);
  EXPECT_EQ(parameter_copies(ScheduleKind::dualpipe_v), 1);
}

TEST(Units, InterleavedOrder) {
  // p=2 v=2 M=4: group 0 is micro-batches 0,1 through chunk 0 then chunk 1; then group 1.
  const ScheduleShape s = shape(ScheduleKind::interleaved, 2, 2, 4);
  const int chunk[] = {0, 0, 1, 1, 0, 0, 1, 1}, microbatch[] = {0, 1, 0, 1, 2, 3, 2, 3};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(forward_unit(s, i).chunk, chunk[i]);
    EXPECT_EQ(forward_unit(s, i).microbatch, microbatch[i]);
    EXPECT_EQ(backward_unit(s, i).chunk, 1 - chunk[i]);
    EXPECT_EQ(backward_unit(s, i).microbatch, microbatch[i]);
  }
}

TEST(Units, LastGroupTakesWhatIsLeft) {
  ScheduleShape s = shape(ScheduleKind::interleaved, 2, 2, 5);
  s.group_size = 3;  // groups {0,1,2} and {3,4}
  const int chunk[] = {0, 0, 0, 1, 1, 1, 0, 0, 1, 1};
  const int microbatch[] = {0, 1, 2, 0, 1, 2, 3, 4, 3, 4};
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(forward_unit(s, i).chunk, chunk[i]);
    EXPECT_EQ(forward_unit(s, i).microbatch, microbatch[i]);
  }
}

// The peak counts are those of the warm-up of the order itself, which merged units keep up.
TEST(Units, InFlightCountsTheOrder) {
  for (int group : {3, 4, 6})
    for (int microbatches : {3, 7, 12, 25}) {
      ScheduleShape s = shape(ScheduleKind::interleaved, 3, 4, microbatches, true);
      s.group_size = group;
      for (int r = 0; r < 3; ++r) {
        std::vector<int> expected(4, 0);
        const int peak = std::min(warmup_units(s, r), microbatches * 4);
        for (int i = 0; i < peak; ++i)
          ++expected[static_cast<std::size_t>(forward_unit(s, i).chunk)];
        EXPECT_EQ(units(s, r), expected);
      }
    }
}

}  // namespace
}  // namespace trifold::layout

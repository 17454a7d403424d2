// SPDX-License-Identifier: Apache-2.0
#include "sim/load.h"

#include <gtest/gtest.h>

namespace trifold::sim {
namespace {

double as_share(Rate rate) { return static_cast<double>(rate) / kFull; }

TEST(LoadTable, ProgressiveFilling) {
  // Resource 0: both use it (1.0 and 0.5) -> they rise together to 1 / 1.5 = 2/3.
  LoadTable table;
  Load a, b;
  a.use[0] = 1;
  b.use[0] = 0.5;
  const std::uint8_t loads[] = {table.add(a), table.add(b)};
  Rate rates[2];
  table.rates(loads, 2, rates);
  EXPECT_NEAR(as_share(rates[0]), 2.0 / 3, 1e-5);
  EXPECT_NEAR(as_share(rates[1]), 2.0 / 3, 1e-5);
}

TEST(LoadTable, ATaskAtItsCapLeavesTheRestToOthers) {
  // a uses only resource 1 (0.4) and is capped at 1/(1+1) by b's use of resource 0; b then has
  // 1 - 0.5 x 0 = all of resource 0: full speed.
  LoadTable table;
  Load a, b;
  a.use[1] = 0.4;
  a.sensitivity[0] = 1;
  b.use[0] = 1;
  const std::uint8_t loads[] = {table.add(a), table.add(b)};
  Rate rates[2];
  table.rates(loads, 2, rates);
  EXPECT_NEAR(as_share(rates[0]), 0.5, 1e-5);
  EXPECT_NEAR(as_share(rates[1]), 1, 1e-5);
}

TEST(LoadTable, HoldsLeaveLessForOthers) {
  // 24 of 132 held: the other has 108/132 of its speed.
  LoadTable table;
  Load comm, gemm;
  comm.hold[0] = 24.0 / 132;
  gemm.use[0] = 1;
  const std::uint8_t loads[] = {table.add(comm), table.add(gemm)};
  Rate rates[2];
  table.rates(loads, 2, rates);
  EXPECT_NEAR(as_share(rates[0]), 1, 1e-5);
  EXPECT_NEAR(as_share(rates[1]), 108.0 / 132, 1e-5);
}

TEST(LoadTable, WholeRoundsStep) {
  // One round on all, two on 108/132: half speed. 128 tiles of 132 (0.97 rounds) on 128/132: 1.
  LoadTable table;
  Load comm, gemm, small;
  comm.hold[0] = 24.0 / 132;
  gemm.use[0] = 1;
  gemm.rounds = 1;
  small.hold[0] = 4.0 / 132;
  const std::uint8_t c = table.add(comm), g = table.add(gemm), s = table.add(small);
  gemm.rounds = 128.0 / 132;
  const std::uint8_t almost = table.add(gemm);
  Rate rates[2];
  const std::uint8_t stepped[] = {c, g};
  table.rates(stepped, 2, rates);
  EXPECT_NEAR(as_share(rates[1]), 0.5, 1e-5);
  const std::uint8_t fits[] = {s, almost};
  table.rates(fits, 2, rates);
  EXPECT_NEAR(as_share(rates[1]), 128.0 / 132, 1e-5);
}

TEST(LoadTable, EqualLoadsKeepTheirIndex) {
  LoadTable table;
  Load a;
  a.use[2] = 0.3;
  const std::uint8_t first = table.add(a);
  EXPECT_EQ(table.add(a), first);
  EXPECT_TRUE(table.contended());
  EXPECT_FALSE(LoadTable().contended());
}

}  // namespace
}  // namespace trifold::sim

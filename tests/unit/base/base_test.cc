// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/ids.h"
#include "base/math.h"
#include "base/random.h"
#include "base/result.h"
#include "base/table.h"
#include "base/tokens.h"
#include "base/units.h"

namespace trifold {
namespace {

TEST(Units, ArithmeticKeepsTheDimension) {
  EXPECT_EQ((2_GiB).value(), std::int64_t{2} << 30);
  EXPECT_EQ((3_MiB + 1_MiB).value(), std::int64_t{4} << 20);
  EXPECT_EQ((3_MiB - 1_MiB), 2_MiB);
  EXPECT_EQ(3 * Bytes(5), Bytes(15));
  EXPECT_DOUBLE_EQ(Bytes(3) / Bytes(2), 1.5);  // a ratio, not an integer division
  EXPECT_DOUBLE_EQ((Bytes(900'000'000'000) / 450_GBps).value(), 2);
  EXPECT_DOUBLE_EQ((Flops(1e15) / FlopsPerSecond(5e14)).value(), 2);
  EXPECT_DOUBLE_EQ(to_gib(512_MiB), 0.5);
  EXPECT_LT(Seconds(1), Seconds(2));
  Seconds total;
  total += Seconds(2);
  total *= 3;
  EXPECT_EQ(total, Seconds(6));
}

TEST(Ids, VectorsIndexedByTheirOwnKind) {
  IdVector<StageId, int> stages(2, 5);
  EXPECT_EQ(stages[StageId(1)], 5);
  EXPECT_EQ(stages.push_back(7), StageId(2));
  EXPECT_EQ(stages[StageId(2)], 7);
  EXPECT_LT(RankId(1), RankId(2));
  EXPECT_EQ(RankId().value(), -1);
}

Result<int> half(int value) {
  if (value % 2 != 0) return input_error("odd", "here", "use an even number");
  return value / 2;
}

Result<int> quarter(int value) {
  TRIFOLD_ASSIGN(h, half(value));
  TRIFOLD_ASSIGN(q, half(h));
  return q;
}

Result<void> check(int value) {
  TRIFOLD_TRY(half(value));
  return {};
}

TEST(Result, PassesValuesAndErrorsOn) {
  ASSERT_TRUE(quarter(12));
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6));
  EXPECT_EQ(quarter(6).error().to_string(), "here: odd (use an even number)");
  EXPECT_TRUE(check(2));
  EXPECT_FALSE(check(1));
  EXPECT_EQ(check(1).error().code, ErrorCode::input);
  EXPECT_EQ((Error{ErrorCode::usage, "bad", "", ""}).to_string(), "bad");
}

TEST(ResultDeathTest, ReadingTheWrongSideIsABrokenInvariant) {
  EXPECT_DEATH(static_cast<void>(quarter(6).value()), "broken invariant");
  EXPECT_DEATH(static_cast<void>(quarter(12).error()), "broken invariant");
}

enum class Color { red, green };
constexpr Token<Color> kColors[] = {{Color::red, "red"}, {Color::green, "green"}};

TEST(Tokens, ReadStrictlyAndPrinted) {
  EXPECT_EQ(token_name(kColors, Color::green), "green");
  EXPECT_EQ(*parse_token(kColors, "red", "color"), Color::red);
  const Result<Color> wrong = parse_token(kColors, "gren", "color", "f#/color");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().to_string(), "f#/color: unknown color 'gren' (did you mean 'green'?)");
  EXPECT_FALSE(parse_token(kColors, "", "color"));
  EXPECT_FALSE(parse_token(kColors, "RED", "color"));  // the nearest, not accepted
}

TEST(Tokens, EditDistance) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("NVLink", "nvlink"), 0);
}

TEST(Tokens, NearestOnlyWhenNear) {
  EXPECT_EQ(nearest("deepep", {"alltoall", "deep_ep"}), "deep_ep");
  EXPECT_EQ(nearest("zzzzzz", {"alltoall", "hybridep"}), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(suggest("zzzzzz", {"one", "two"}), "one of: one two");
}

TEST(Tokens, Sets) {
  EnumSet<Color> set{Color::red};
  EXPECT_TRUE(set.contains(Color::red));
  EXPECT_FALSE(set.contains(Color::green));
  set.insert(Color::green);
  set.erase(Color::red);
  EXPECT_EQ(set, EnumSet<Color>{Color::green});
  set.erase(Color::green);
  EXPECT_TRUE(set.empty());
}

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  Table table({"name", "n"});
  table.add({"a", "1"});
  table.rule();
  table.add({"béta", "22"});  // five bytes, four columns
  EXPECT_EQ(table.text(),
            "name   n\n"
            "----  --\n"
            "a      1\n"
            "----  --\n"
            "béta  22\n");
  EXPECT_EQ(table.text("> ").substr(0, 11), "> name   n\n");
  EXPECT_EQ(table.markdown(), "| name | n |\n| --- | ---: |\n| a | 1 |\n| béta | 22 |\n");
}

TEST(Table, ShortRowsArePadded) {
  Table table({"a", "b"});
  table.add({"x"});
  EXPECT_EQ(table.text(), "a  b\n-  -\nx\n");
}

TEST(Table, Numbers) {
  EXPECT_EQ(thousands(0), "0");
  EXPECT_EQ(thousands(999), "999");
  EXPECT_EQ(thousands(1234567), "1,234,567");
  EXPECT_EQ(thousands(-1000), "-1,000");
  EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(human_seconds(2), "2 s");
  EXPECT_EQ(human_seconds(4.5e-6), "4.5 us");
  EXPECT_EQ(human_gib(std::int64_t{3} << 29), "1.5 GiB");
}

TEST(Math, Integers) {
  EXPECT_EQ(ceil_div(7, 2), 4);
  EXPECT_EQ(ceil_div(8, 2), 4);
  EXPECT_EQ(round_up(129, 128), 256);
  EXPECT_TRUE(divides(3, 9));
  EXPECT_FALSE(divides(0, 9));
  EXPECT_TRUE(is_power_of_two(64));
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_EQ(divisors(12), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(divisors(16), (std::vector<std::int64_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(divisors(1), (std::vector<std::int64_t>{1}));
}

TEST(Math, DistinctGroups) {
  EXPECT_NEAR(std::exp(log_binomial(10, 3)), 120, 1e-9);
  EXPECT_EQ(log_binomial(3, 4), -INFINITY);
  EXPECT_DOUBLE_EQ(expected_distinct_groups(256, 1, 8), 1);
  // 4 items in 2 groups, 2 picks: of 6 pairs 2 lie in one group: (2*1 + 4*2)/6.
  EXPECT_NEAR(expected_distinct_groups(4, 2, 2), 10.0 / 6, 1e-12);
  // As many picks as items: every group.
  EXPECT_NEAR(expected_distinct_groups(8, 4, 8), 4, 1e-12);
}

TEST(Random, SameSeedSameSequence) {
  Random a(42), b(42), c(43);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t x = a.next();
    EXPECT_EQ(x, b.next());
    differs = differs || x != c.next();
  }
  EXPECT_TRUE(differs);
}

// The first outputs of splitmix64 from seed 0 are published with the algorithm; xoshiro256** gives
// rotl(state[1] * 5, 7) * 9 first.
TEST(Random, FollowsThePublishedAlgorithm) {
  const std::uint64_t second = 0x6e789e6aa1b965f4ull;  // splitmix64(0), second output
  const std::uint64_t times_five = second * 5;
  const std::uint64_t expected = ((times_five << 7) | (times_five >> 57)) * 9;
  EXPECT_EQ(Random(0).next(), expected);
}

TEST(Random, Moments) {
  Random random(1);
  const int n = 200000;
  double uniform = 0, normal = 0, square = 0, gamma = 0, small = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform += u;
    const double z = random.normal();
    normal += z;
    square += z * z;
    gamma += random.gamma(3);
    small += random.gamma(0.5);
    ASSERT_LT(random.below(7), 7u);
  }
  // Five standard errors: sigma/sqrt(n) is 0.00065, 0.0022, 0.0032, 0.0039 and 0.0016.
  EXPECT_NEAR(uniform / n, 0.5, 0.0033);
  EXPECT_NEAR(normal / n, 0, 0.012);
  EXPECT_NEAR(square / n, 1, 0.016);
  EXPECT_NEAR(gamma / n, 3, 0.02);
  EXPECT_NEAR(small / n, 0.5, 0.008);
}

TEST(Random, Shares) {
  const std::vector<double> zipf = zipf_shares(4, 1);
  EXPECT_NEAR(zipf[0], 12.0 / 25, 1e-12);  // 1 / (1 + 1/2 + 1/3 + 1/4)
  EXPECT_NEAR(zipf[3], 3.0 / 25, 1e-12);
  for (double share : zipf_shares(4, 0)) EXPECT_DOUBLE_EQ(share, 0.25);
  Random random(3);
  const std::vector<double> shares = dirichlet_shares(64, 0.3, random);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
  for (double share : shares) EXPECT_GE(share, 0);
}

// Published test vectors of 64-bit FNV-1a.
TEST(Random, Fnv1a) {
  EXPECT_EQ(fnv1a("", 0), 0xcbf29ce484222325ull);
  EXPECT_EQ(fnv1a("a", 1), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(fnv1a("foobar", 6), 0x85944171f73967e8ull);
}

}  // namespace
}  // namespace trifold

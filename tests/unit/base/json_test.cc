// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

namespace trifold {
namespace {

enum class Fruit { apple, pear };
constexpr Token<Fruit> kFruits[] = {{Fruit::apple, "apple"}, {Fruit::pear, "pear"}};

std::string parse_error(std::string_view text) {
  const Result<Json> json = parse_json(text, "f.json");
  EXPECT_FALSE(json) << text;
  return json ? std::string() : json.error().to_string();
}

template <class Read>
std::string read_error(const Json& json, Read read) {
  JsonReader reader(json, "f.json");
  read(reader);
  const Result<void> result = reader.finish();
  EXPECT_FALSE(result) << json;
  return result ? std::string() : result.error().to_string();
}

TEST(Json, TruncatedTextSaysSoWithItsLine) {
  const std::string error = parse_error("{\n  \"a\": 1,\n  \"b\": [1, 2");
  EXPECT_NE(error.find("f.json:3"), std::string::npos) << error;
  EXPECT_NE(error.find("truncated"), std::string::npos) << error;
  EXPECT_NE(parse_error("").find("truncated"), std::string::npos);
}

TEST(Json, BrokenTextNamesItsLine) {
  const std::string error = parse_error("{\n  \"a\": 1\n  \"b\": 2\n}\n");
  EXPECT_NE(error.find("f.json:3"), std::string::npos) << error;
  EXPECT_NE(error.find("not valid JSON"), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

// RFC 8259 leaves it open; the last value wins, and the key stays where it stood first.
TEST(Json, DuplicateKeysKeepTheLastValue) {
  const Result<Json> json = parse_json(R"({"a": 1, "b": 2, "a": 3})", "f.json");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->size(), 2u);
  EXPECT_EQ((*json)["a"], 3);
}

TEST(Json, CommentsAreAllowed) {
  const Result<Json> json = parse_json("{ // why\n \"a\": 1 /* because */ }", "f.json");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["a"], 1);
}

TEST(Json, ReadsEachKind) {
  const Json json = {{"s", "x"},    {"b", true},       {"d", 1.5},        {"i", 7},
                     {"w", 4.0},    {"l", {1, 2}},     {"n", {"a", "b"}}, {"r", {0.5, 1}},
                     {"t", "pear"}, {"null", nullptr}, {"e", {"apple"}}};
  JsonReader reader(json, "f.json");
  std::string s;
  bool b = false;
  double d = 0;
  int i = 0;
  std::int64_t w = 0, kept = 5;
  std::vector<std::int64_t> l;
  std::vector<std::string> n;
  std::vector<double> r;
  std::optional<double> present, absent;
  Fruit t = Fruit::apple;
  EnumSet<Fruit> e;
  reader.get("s", s);
  reader.get("b", b);
  reader.get("d", d);
  reader.get("d", present);
  reader.get("nothing", absent);
  reader.get("i", i);
  reader.get("w", w);  // 4.0 is the integer 4
  reader.get("l", l);
  reader.get("n", n);
  reader.get("r", r);
  reader.get("null", kept);
  reader.get_token("t", kFruits, t);
  reader.get_tokens("e", kFruits, e);
  ASSERT_TRUE(reader.finish());
  EXPECT_EQ(s, "x");
  EXPECT_TRUE(b);
  EXPECT_EQ(d, 1.5);
  EXPECT_EQ(present, 1.5);
  EXPECT_FALSE(absent.has_value());
  EXPECT_EQ(i, 7);
  EXPECT_EQ(w, 4);
  EXPECT_EQ(kept, 5);
  EXPECT_EQ(l, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(n, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(t, Fruit::pear);
  EXPECT_TRUE(e.contains(Fruit::apple));
  EXPECT_FALSE(e.contains(Fruit::pear));
}

TEST(Json, WrongTypeSaysWhereAndWhat) {
  std::int64_t i = 3;
  const std::string error =
      read_error({{"a", "seven"}}, [&](JsonReader& reader) { reader.get("a", i); });
  EXPECT_EQ(error, "f.json#/a: expected an integer, found \"seven\"");
  EXPECT_EQ(i, 3);
  bool b = false;
  EXPECT_NE(read_error({{"a", 1}}, [&](JsonReader& r) { r.get("a", b); }).find("true or false"),
            std::string::npos);
  std::vector<std::int64_t> l;
  EXPECT_NE(read_error({{"a", {1, "x"}}}, [&](JsonReader& r) { r.get("a", l); }).find("#/a"),
            std::string::npos);
  EXPECT_NE(read_error({{"a", 1.5}}, [&](JsonReader& r) { r.get("a", i); }).find("an integer"),
            std::string::npos);
}

TEST(Json, IntegersOutOfRange) {
  std::int64_t wide = 0;
  int narrow = 0;
  EXPECT_NE(read_error({{"a", std::numeric_limits<std::uint64_t>::max()}},
                       [&](JsonReader& r) { r.get("a", wide); })
                .find("too large"),
            std::string::npos);
  EXPECT_FALSE(read_error({{"a", 3000000000}}, [&](JsonReader& r) { r.get("a", narrow); }).empty());
  EXPECT_FALSE(
      read_error({{"a", -3000000000}}, [&](JsonReader& r) { r.get("a", narrow); }).empty());
  EXPECT_FALSE(read_error({{"a", 1e300}}, [&](JsonReader& r) { r.get("a", wide); }).empty());
  const std::string error =
      read_error({{"a", -1}}, [&](JsonReader& r) { r.get_in("a", wide, 0, 10); });
  EXPECT_EQ(error, "f.json#/a: -1 is outside 0..10");
  double d = 0.5;
  EXPECT_NE(read_error({{"a", 2}}, [&](JsonReader& r) { r.get_in("a", d, 0, 1); }).find("0..1"),
            std::string::npos);
  EXPECT_EQ(d, 0.5);
}

TEST(Json, UnknownKeyWithTheNearestMatch) {
  std::int64_t tp = 0;
  const std::string error = read_error({{"micro_batch_szie", 2}}, [&](JsonReader& reader) {
    reader.get("micro_batch_size", tp);
    reader.get("global_batch_size", tp);
  });
  EXPECT_EQ(error,
            "f.json#/micro_batch_szie: unknown key 'micro_batch_szie' "
            "(did you mean 'micro_batch_size'?)");
}

TEST(Json, UnknownTokenAndMissingKey) {
  Fruit t = Fruit::apple;
  const std::string error =
      read_error({{"t", "peer"}}, [&](JsonReader& r) { r.get_token("t", kFruits, t); });
  EXPECT_NE(error.find("unknown t 'peer'"), std::string::npos) << error;
  EXPECT_NE(error.find("'pear'"), std::string::npos) << error;
  EXPECT_EQ(read_error(Json::object(), [](JsonReader& r) { r.require("a"); }),
            "f.json: missing key 'a'");
}

TEST(Json, ChildrenCarryTheirPointerAndTheFirstErrorWins) {
  std::int64_t i = 0;
  const std::string error =
      read_error({{"a", {{"b", {{"c", "x"}}}}}, {"z", 1}}, [&](JsonReader& reader) {
        JsonReader a = reader.child("a");
        JsonReader b = a.child("b");
        b.get("c", i);
        a.join(b);
        reader.join(a);
      });
  EXPECT_NE(error.find("f.json#/a/b/c"), std::string::npos) << error;
  EXPECT_NE(read_error(Json::array(), [](JsonReader&) {}).find("expected an object"),
            std::string::npos);
  // An absent child reads as an empty object.
  const Json empty = Json::object();
  JsonReader reader(empty, "f.json");
  JsonReader child = reader.child("a");
  child.get("b", i);
  reader.join(child);
  EXPECT_TRUE(reader.finish());
}

TEST(Json, IgnoredKeysAndSourceAreFine) {
  const Json json = {{"a", 1}, {"b", 2}, {"source", "somewhere"}};
  JsonReader reader(json, "f.json");
  reader.ignore("a");
  reader.ignore_rest();
  EXPECT_TRUE(reader.finish());
}

TEST(Json, WritesNineDigitsAndNoInfinities) {
  EXPECT_EQ(round_significant(0), 0);
  EXPECT_EQ(round_significant(123456.7890123), 123456.789);
  EXPECT_EQ(round_significant(-2.0 / 3, 3), -0.667);
  const Json json = {{"b", 1.0 / 3}, {"a", INFINITY}, {"n", {std::nan("")}}};
  EXPECT_EQ(dump_json(json, -1), "{\"b\":0.333333333,\"a\":null,\"n\":[null]}\n");
}

TEST(Json, FilesAreReplacedWhole) {
  const std::string path = testing::TempDir() + "trifold_json_test.json";
  ASSERT_TRUE(write_text(path, "{\"a\": 1}"));
  ASSERT_TRUE(write_text(path, "{\"a\": 2}"));
  const Result<Json> json = read_json(path);
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_EQ((*json)["a"], 2);
  std::remove(path.c_str());
  EXPECT_FALSE(read_json(path));
  EXPECT_FALSE(read_text(testing::TempDir()));  // a folder
  const Result<void> failed = write_text("/no/such/folder/x.json", "x");
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().to_string().find("/no/such/folder/x.json"), std::string::npos);
}

}  // namespace
}  // namespace trifold

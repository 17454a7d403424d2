// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

#include <gtest/gtest.h>

namespace trifold::report {
namespace {

Json small_page() {
  return {{"schema", "trifold.page/1"},
          {"title", "</script><script>alert(1)</script>"},
          {"inputs", {{"job", {{"x", 0.1234567890123}}}}},
          {"timeline",
           {{"step_time_s", 1e-6},
            {"slices",
             {{"stage", {0, 0, 1}},
              {"stream", {0, 0, 2}},
              {"category", {0, 0, 4}},
              {"name", {0, 1, 2}},
              {"microbatch", {0, 1, 0}},
              {"chunk", {0, 0, 0}},
              {"work", {0, 1, 0}},
              {"start_ns", {0, 300, 5}},
              {"duration_ns", {200, 1, 2}}}}}},
          {"memory",
           {{"curves", {{{"stage", 0}, {"time_s", {0.0, 1e-6}}, {"bytes", {65536, 196608}}}}}}},
          {"whatif", nullptr},
          {"confidence", {{"sigma", 0.1234567890123}}}};
}

TEST(HtmlPage, EveryOpeningBracketOfTheDataIsEscaped) {
  const std::string html = html_page(small_page());
  const std::size_t begin = html.find("id=\"data\">");
  ASSERT_NE(begin, std::string::npos);
  const std::size_t end = html.find("</script>", begin);
  EXPECT_NE(html.find("\\u003c/script>\\u003cscript>alert(1)", begin), std::string::npos);
  EXPECT_EQ(html.find('<', begin), end);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

// Three slices in two rows. Row (0, 0): kind 0, batch +0, gap +0, 200 ns = varint C8 01; kind 1,
// batch +1 = zigzag 02, gap 100 = zigzag C8 01, 1 ns. Row (1, 2): kind 2, +0, gap 5 = zigzag 0A, 2
// ns. Bytes 00 00 00 C8 01 01 02 C8 01 01 02 00 0A 02 in base64.
TEST(HtmlPage, SlicesArePackedAsDocumented) {
  const Json packed = pack_page(small_page())["timeline"]["packed"];
  EXPECT_EQ(packed["unit_ns"], 1);
  EXPECT_EQ(packed["rows"], Json::parse("[[0, 0, 2], [1, 2, 1]]"));
  EXPECT_EQ(packed["kinds"], Json::parse("[[0, 0, 0, 0], [0, 1, 0, 1], [4, 2, 0, 0]]"));
  EXPECT_EQ(packed["data"], "AAAAyAEBAsgBAQIACgI=");
}

// The step is 2^20 units long: times 0 and 2^20 (zigzag 2^21 = 80 80 80 01); levels of 64 KiB 1 and
// 3, so +1 and +2 (zigzag 02, 04).
TEST(HtmlPage, CurvesArePackedAsDocumented) {
  const Json curve = pack_page(small_page())["memory"]["curves"][0];
  EXPECT_EQ(curve["unit_bytes"], 65536);
  EXPECT_EQ(curve["data"], "AAKAgIABBA==");
}

TEST(HtmlPage, InputsKeepEveryDigitAndTheRestIsRounded) {
  const Json packed = pack_page(small_page());
  EXPECT_EQ(packed["inputs"]["job"]["x"].get<double>(), 0.1234567890123);
  EXPECT_EQ(packed["confidence"]["sigma"].get<double>(), 0.1234568);
}

}  // namespace
}  // namespace trifold::report

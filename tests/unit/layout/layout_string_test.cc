// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "layout/pipeline.h"

namespace trifold::layout {
namespace {

using Stages = std::vector<std::string>;

Stages parse(const std::string& text) {
  Result<Stages> parsed = parse_pipeline_layout(text);
  if (!parsed) return {"error: " + parsed.error().message};
  return *parsed;
}

Stages repeated(std::string first, std::size_t n, const std::string& stage, Stages rest) {
  Stages out{std::move(first)};
  out.insert(out.end(), n, stage);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

TEST(LayoutString, Plain) { EXPECT_EQ(parse("Et|tt|tmL"), (Stages{"Et", "tt", "tmL"})); }

TEST(LayoutString, PublishedLayouts) {
  EXPECT_EQ(parse("Et*3|(tt|)*29m|L"), repeated("Ettt", 29, "tt", {"m", "L"}));
  EXPECT_EQ(parse("Et|(tt|)*30mL"), repeated("Et", 30, "tt", {"mL"}));
  EXPECT_EQ(parse("Et*4|(t*4|)*14tmL"), repeated("Etttt", 14, "tttt", {"tmL"}));
  Stages mixed = repeated("Ett", 22, "tt", {"ttt"});
  mixed.pop_back();
  const Stages tail = repeated("ttt", 6, "tt", {"mL"});  // "t(tt|)*7mL": t joins the first tt
  mixed.insert(mixed.end(), tail.begin(), tail.end());
  EXPECT_EQ(parse("Et*2|(tt|)*22t|(tt|)*7mL")[23], "t");
  EXPECT_EQ(parse("Et*2|(tt|)*22t|(tt|)*7mL").size(), 1u + 22u + 1u + 7u + 1u);
  EXPECT_EQ(parse("Et*2|(tt|)*22t(tt|)*7mL"), mixed);
}

TEST(LayoutString, EmptyStagesAndCommas) {
  EXPECT_EQ(parse("Et||t|L"), (Stages{"Et", "", "t", "L"}));
  EXPECT_EQ(parse("E,t*,2|,(t,t|)*1,0,L").size(), 12u);
  EXPECT_EQ(parse("Et|*3L"), (Stages{"Et", "", "", "L"}));
  EXPECT_EQ(parse(""), (Stages{""}));
}

TEST(LayoutString, Errors) {
  EXPECT_NE(parse("Et|xx|L")[0].find("Invalid layer character at 'x'"), std::string::npos);
  EXPECT_NE(parse("Et|((tt|)*2)*2L")[0].find("do not nest"), std::string::npos);
  EXPECT_NE(parse("Et|(tt|")[0].find("never closed"), std::string::npos);
  EXPECT_NE(parse("Et|(tt|)L")[0].find("must be repeated"), std::string::npos);
  EXPECT_NE(parse("Et*|L")[0].find("a number must follow"), std::string::npos);
  EXPECT_NE(parse("Et*99999999999999999999|L")[0].find("absurdly"), std::string::npos);
  EXPECT_NE(parse("(t*60000|)*60000")[0].find("absurdly"), std::string::npos);
  EXPECT_NE(parse("Et|()*2L")[0].find("empty"), std::string::npos);
}

TEST(LayoutString, PrintFoldsRepeats) {
  for (const char* text : {"Et*3|(tt|)*29m|L", "Et|(tt|)*30mL", "Et|(tt|)*30L", "Et*4|(t*4|)*14tmL",
                           "Et*3|(t*4|)*14ttL", "Et|tt|tmL", "EtL", "(|)*30L"})
    EXPECT_EQ(print_pipeline_layout(parse(text)), text);
  // A fold that would be longer than what it folds is left out.
  EXPECT_EQ(print_pipeline_layout(parse("Et*2|(tt|)*2L")), "Ett|tt|tt|L");
  EXPECT_EQ(print_pipeline_layout(parse("Et*4|(tttt|)*14tmL")), "Et*4|(t*4|)*14tmL");
}

}  // namespace
}  // namespace trifold::layout

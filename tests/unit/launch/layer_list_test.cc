// SPDX-License-Identifier: Apache-2.0
#include "launch/layer_list.h"

#include <gtest/gtest.h>

namespace trifold::launch {
namespace {

std::vector<int> list_of(const char* text) { return parse_layer_list(text, "")->list; }

TEST(LayerList, ReadsWhatMegatronEvaluates) {
  EXPECT_EQ(parse_layer_list("2", "")->every, 2);
  EXPECT_FALSE(parse_layer_list("2", "")->is_list);
  EXPECT_EQ(list_of("[0]*3+[1]*2"), (std::vector<int>{0, 0, 0, 1, 1}));
  EXPECT_EQ(list_of("([0,1]*2)"), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(list_of("2*[1]+[0]"), (std::vector<int>{1, 1, 0}));
  EXPECT_EQ(list_of("([0]+[1]*2)*2"), (std::vector<int>{0, 1, 1, 0, 1, 1}));
  for (const char* bad : {"", "[0", "[0]*", "[0]+1", "x", "[0]*[1]", "[1]*99999999"})
    EXPECT_FALSE(parse_layer_list(bad, "")) << bad;
}

TEST(LayerList, WritesTheShortestFormThatReadsBack) {
  std::vector<int> deepseek(61, 1);
  deepseek[0] = deepseek[1] = deepseek[2] = 0;
  EXPECT_EQ(print_layer_list(deepseek), "([0]*3+[1]*58)");
  std::vector<int> alternating;
  for (int i = 0; i < 48; ++i) alternating.push_back(i % 2);
  EXPECT_EQ(print_layer_list(alternating), "([0,1]*24)");
  EXPECT_EQ(list_of(print_layer_list(alternating).c_str()), alternating);
  EXPECT_EQ(list_of(print_layer_list(deepseek).c_str()), deepseek);
}

}  // namespace
}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#include "base/tokens.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace trifold {

int edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitute = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::string best;
  int best_distance = static_cast<int>(std::max<std::size_t>(2, word.size() / 2)) + 1;
  for (std::string_view candidate : candidates) {
    int distance = edit_distance(word, candidate);
    if (candidate.find(word) != std::string_view::npos && word.size() >= 3)
      distance = std::min(distance, 2);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggest(std::string_view word, const std::vector<std::string_view>& candidates) {
  if (std::string near = nearest(word, candidates); !near.empty())
    return "did you mean '" + near + "'?";
  std::string text = "one of:";
  for (std::string_view candidate : candidates) text += " " + std::string(candidate);
  return text;
}

}  // namespace trifold

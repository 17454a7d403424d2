// SPDX-License-Identifier: Apache-2.0
#pragma once

// A text table: columns aligned, numbers right, words left. UTF-8 aware by code point.

#include <string>
#include <string_view>
#include <vector>

namespace trifold {

class Table {
 public:
  enum class Align { left, right };

  explicit Table(std::vector<std::string> header);
  void align(std::size_t column, Align align) { align_[column] = align; }
  void add(std::vector<std::string> row);  // short rows are padded with empty cells
  void rule();                             // a horizontal line
  std::string text(std::string_view indent = "") const;
  std::string markdown() const;
  std::size_t rows() const { return rows_.size(); }

 private:
  std::vector<std::string> header_;
  std::vector<Align> align_;  // left for the first column, right for the others, unless told
  std::vector<std::vector<std::string>> rows_;
};

// 1234567 -> "1,234,567".
std::string thousands(long long value);
// 0.123 -> "12.3 %".
std::string percent(double share);
// 0.0123 s -> "12.3 ms"; three significant digits.
std::string human_seconds(double seconds);
// GiB with one decimal: "71.4 GiB".
std::string human_gib(long long bytes);

}  // namespace trifold

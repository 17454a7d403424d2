// SPDX-License-Identifier: Apache-2.0
#pragma once

// Comma-separated tables with a header line; lines that start with '#' or have another number of
// cells than the header are skipped (the measured files carry device banners).

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trifold::fit {

class Csv {
 public:
  static Result<Csv> read(const std::string& path);
  static Result<Csv> parse(const std::string& text, const std::string& name);

  std::size_t rows() const { return cells_.size(); }
  bool has(std::string_view column) const { return find(column) >= 0; }
  // The cell's text; "" where the column is missing.
  std::string_view text(std::size_t row, std::string_view column) const;
  // NaN where the cell is not a number.
  double number(std::size_t row, std::string_view column) const;

 private:
  int find(std::string_view column) const;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> cells_;
};

}  // namespace trifold::fit

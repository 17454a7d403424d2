// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/csv.h"

#include <cmath>
#include <cstdlib>

#include "base/json.h"

namespace trifold::fit {

namespace {

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> cells;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = line.find(',', begin);
    cells.emplace_back(line.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
    if (comma == std::string_view::npos) return cells;
    begin = comma + 1;
  }
}

}  // namespace

Result<Csv> Csv::read(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  return parse(text, path);
}

Result<Csv> Csv::parse(const std::string& text, const std::string& name) {
  Csv csv;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> cells = split(line);
    if (csv.header_.empty()) {
      if (cells.size() < 2) continue;
      csv.header_ = std::move(cells);
    } else if (cells.size() == csv.header_.size() && cells != csv.header_) {
      csv.cells_.push_back(std::move(cells));
    }
  }
  if (csv.header_.empty()) return input_error("no header line", name);
  return csv;
}

int Csv::find(std::string_view column) const {
  for (std::size_t i = 0; i < header_.size(); ++i)
    if (header_[i] == column) return static_cast<int>(i);
  return -1;
}

std::string_view Csv::text(std::size_t row, std::string_view column) const {
  const int at = find(column);
  return at < 0 ? std::string_view() : cells_[row][static_cast<std::size_t>(at)];
}

double Csv::number(std::size_t row, std::string_view column) const {
  const int at = find(column);
  if (at < 0) return NAN;
  const std::string& cell = cells_[row][static_cast<std::size_t>(at)];
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  return end == cell.c_str() ? NAN : value;
}

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#include "base/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trifold {

namespace {
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string pad(const std::string& cell, std::size_t width, Table::Align align) {
  const std::size_t missing = width - std::min(width, width_of(cell));
  return align == Table::Align::left ? cell + std::string(missing, ' ')
                                     : std::string(missing, ' ') + cell;
}
}  // namespace

Table::Table(std::vector<std::string> header)
    : header_(std::move(header)), align_(header_.size(), Align::right) {
  if (!align_.empty()) align_[0] = Align::left;
}

void Table::add(std::vector<std::string> row) {
  row.resize(header_.size());
  rows_.push_back(std::move(row));
}

void Table::rule() { rows_.emplace_back(); }

std::string Table::text(std::string_view indent) const {
  std::vector<std::size_t> widths;
  for (const std::string& cell : header_) widths.push_back(width_of(cell));
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string line_of_dashes;
  for (std::size_t i = 0; i < widths.size(); ++i)
    line_of_dashes += (i ? "  " : "") + std::string(widths[i], '-');
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text(indent);
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += (i ? "  " : "") + pad(cells[i], widths[i], align_[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string out = line(header_) + std::string(indent) + line_of_dashes + "\n";
  for (const auto& row : rows_)
    out += row.empty() ? std::string(indent) + line_of_dashes + "\n" : line(row);
  return out;
}

std::string Table::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += " " + cell + " |";
    return text + "\n";
  };
  std::string out = line(header_) + "|";
  for (Align align : align_) out += align == Align::left ? " --- |" : " ---: |";
  out += "\n";
  for (const auto& row : rows_)
    if (!row.empty()) out += line(row);
  return out;
}

std::string thousands(long long value) {
  std::string digits = fmt::format("{}", value < 0 ? -value : value);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return value < 0 ? "-" + digits : digits;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string human_seconds(double seconds) {
  const double magnitude = std::abs(seconds);
  if (magnitude >= 1 || magnitude == 0) return fmt::format("{:.3g} s", seconds);
  if (magnitude >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string human_gib(long long bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace trifold

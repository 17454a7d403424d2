// SPDX-License-Identifier: Apache-2.0
#include "facts_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/table.h"

namespace trifold::facts {

Summary summarise(const std::vector<Row>& rows) {
  Summary s;
  std::vector<double> magnitude;
  for (const Row& r : rows) {
    magnitude.push_back(std::abs(r.error()));
    s.mean += magnitude.back();
    s.bias += r.error();
  }
  s.rows = static_cast<int>(rows.size());
  if (s.rows == 0) return s;
  s.mean /= s.rows;
  s.bias /= s.rows;
  std::sort(magnitude.begin(), magnitude.end());
  s.median = (magnitude[(magnitude.size() - 1) / 2] + magnitude[magnitude.size() / 2]) / 2;
  s.worst = magnitude.back();
  return s;
}

void judge(const std::string& title, const std::vector<Row>& rows,
           const std::vector<Source>& sources, bool rows_too, double all_bound) {
  const auto percent = [](double v) { return fmt::format("{:.1f} %", 100 * v); };
  const auto left = [](Table& table, std::initializer_list<std::size_t> columns) {
    for (std::size_t column : columns) table.align(column, Table::Align::left);
  };
  if (rows_too) {
    Table table({"number", "source", "what", "published us", "predicted us", "error"});
    left(table, {1, 2});
    for (const Row& r : rows)
      table.add({r.id, r.source, r.what, fmt::format("{:.1f}", r.published * 1e6),
                 fmt::format("{:.1f}", r.predicted * 1e6),
                 fmt::format("{:+.1f} %", 100 * r.error())});
    fmt::print("{}\n{}\n", title, table.text());
  }
  Table table(
      {"source", "fitted on", "rows", "mean |e|", "median", "worst", "bias", "mean passes"});
  left(table, {1});
  for (const Source& source : sources) {
    std::vector<Row> own;
    for (const Row& r : rows)
      if (r.source == source.name) own.push_back(r);
    const Summary s = summarise(own);
    table.add({source.name, source.fitted, fmt::format("{}", s.rows), percent(s.mean),
               percent(s.median), percent(s.worst), fmt::format("{:+.1f} %", 100 * s.bias),
               fmt::format("< {:.0f} %", 100 * source.bound)});
    EXPECT_GT(s.rows, 0) << source.name;
    EXPECT_LT(s.mean, source.bound) << source.name;
  }
  if (all_bound > 0) {
    const Summary s = summarise(rows);
    table.rule();
    table.add({"all of them", "", fmt::format("{}", s.rows), percent(s.mean), percent(s.median),
               percent(s.worst), fmt::format("{:+.1f} %", 100 * s.bias),
               fmt::format("< {:.0f} %", 100 * all_bound)});
    EXPECT_LT(s.mean, all_bound) << title;
  }
  fmt::print("{}\n{}\n", title, table.text());
}

const Json& facts() {
  static const Json all = [] {
    const Result<Json> json = read_json(shared("data/observations/facts.json"));
    return json ? *json : Json::array();
  }();
  return all;
}

hardware::Profile benchmark_profile(const std::string& name) {
  Result<hardware::Profile> profile = hardware::load_profile(name, TRIFOLD_SOURCE_DIR);
  EXPECT_TRUE(profile) << (profile ? "" : profile.error().to_string());
  if (!profile) return {};
  constexpr double kCopies = 0.81;  // of HBM's rate, measured on H200 (calibrate/README.md)
  const std::pair<const char*, double> neutral[] = {
      {"hbm_efficiency", kCopies},  {"kernel_gap_s", 0},
      {"gemm_sustained_factor", 1}, {"attention_sustained_factor", 1},
      {"low_precision_factor", 1},  {"ep_sync_latency_s", 0},
      {"ep_metadata_s", 0},         {"ep_scaleout_latency_factor", 1},
  };
  for (const auto& [key, value] : neutral) profile->constants.find(key)->second.value = value;
  return *profile;
}

}  // namespace trifold::facts

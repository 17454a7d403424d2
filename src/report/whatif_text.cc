// SPDX-License-Identifier: Apache-2.0
#include "report/whatif_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/table.h"
#include "report/estimate_text.h"

namespace trifold::report {

namespace {

using planner::Point;
using planner::PointStatus;

constexpr std::size_t kMostStageRows = 24;
constexpr std::size_t kMostStages = 16;

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }
std::string signed_percent(double change) { return fmt::format("{:+.1f}", 100 * change); }
std::string gib(Bytes b) { return fmt::format("{:.1f}", to_gib(b)); }
std::string signed_gib(Bytes b) { return fmt::format("{:+.1f}", to_gib(b)); }

// "layout.ep" -> "ep"; two keys that end alike keep more.
std::string short_key(const std::string& key) { return key.substr(key.rfind('.') + 1); }

std::vector<std::string> numbers(const Point& point, double base_s) {
  const estimate::Estimate& e = point.estimate;
  const auto exposed = [&](std::size_t i) {
    return percent(e.communication[i].exposed_s / e.step_time_s);
  };
  double others = 0;
  for (std::size_t i = 1; i < estimate::kComms; ++i) others += e.communication[i].exposed_s;
  return {fmt::format("{:.4g}", e.step_time_s),
          fmt::format("{:.3g}-{:.3g}", e.low_s, e.high_s),
          base_s > 0 ? signed_percent(e.step_time_s / base_s - 1) : "",
          thousands(static_cast<long long>(e.tokens_per_s_per_gpu)),
          fmt::format("{:.0f}", e.tflops_per_gpu),
          percent(e.communication[0].total_s / e.step_time_s),
          exposed(0),
          percent(others / e.step_time_s),
          percent(e.time.bubble / e.step_time_s),
          gib(e.memory.peak),
          gib(e.memory.headroom)};
}

std::vector<std::string> header(const std::vector<planner::Axis>& axes, bool replan) {
  std::vector<std::string> words;
  for (const planner::Axis& axis : axes) words.push_back(short_key(axis.key));
  for (const char* word :
       {"Step s", "80 % interval", "vs base %", "Tokens/s/GPU", "TFLOP/s/GPU", "ep total %",
        "ep exposed %", "other comm %", "bubble %", "peak GiB", "headroom"})
    words.emplace_back(word);
  if (replan) words.emplace_back("layout");
  words.emplace_back("verdict");
  return words;
}

// Without the fix, which is in the JSON.
std::string brief(const std::string& reason) { return reason.substr(0, reason.find("; fix:")); }

std::string verdict_text(const Point& point) {
  if (point.status == PointStatus::fits) return "fits";
  const std::string status(token_name(planner::kPointStatuses, point.status));
  return status + ": " + brief(planner::reason_of(point));
}

std::string points_table(const WhatIfAnswer& a) {
  Table table(header(a.axes, a.replan));
  const std::size_t columns = a.axes.size() + 11;
  for (std::size_t c = columns; c < columns + (a.replan ? 2u : 1u); ++c)
    table.align(c, Table::Align::left);
  const double base_s = a.base_point.evaluated() ? a.base_point.estimate.step_time_s : 0;
  const auto row = [&](std::vector<std::string> cells, const Point& point) {
    if (point.evaluated())
      for (std::string& cell : numbers(point, base_s)) cells.push_back(std::move(cell));
    cells.resize(columns, "-");
    if (a.replan) cells.push_back(layout_text(point.job));
    cells.push_back(verdict_text(point));
    table.add(std::move(cells));
  };
  std::vector<std::string> base_cells(a.axes.size());
  if (!base_cells.empty()) base_cells.front() = "base";
  if (!a.axes.empty()) {
    row(base_cells, a.base_point);
    table.rule();
  }
  for (const Point& point : a.points) row(point.values, point);
  return table.text("  ");
}

// Peak and headroom of every stage, where that fits a page.
std::string stages_table(const WhatIfAnswer& a) {
  std::size_t stages = 0;
  for (const Point& p : a.points)
    if (p.evaluated()) stages = std::max(stages, p.estimate.memory.stages.size());
  if (stages < 2 || stages > kMostStages || a.points.size() > kMostStageRows) return "";
  std::vector<std::string> words;
  for (const planner::Axis& axis : a.axes) words.push_back(short_key(axis.key));
  for (std::size_t s = 0; s < stages; ++s) words.push_back(fmt::format("{}", s));
  Table table(words);
  for (const Point& p : a.points) {
    if (!p.evaluated()) continue;
    std::vector<std::string> cells = p.values;
    for (const memory::StageMemory& stage : p.estimate.memory.stages)
      cells.push_back(fmt::format("{:.1f} ({:+.1f})", to_gib(stage.peak),
                                  to_gib(p.estimate.memory.capacity - stage.reserved)));
    table.add(std::move(cells));
  }
  return "Peak by stage, GiB (headroom):\n" + table.text("  ");
}

std::string bar(double value, double most) {
  constexpr int kWidth = 20;
  const int n = most > 0 ? static_cast<int>(std::lround(kWidth * std::abs(value) / most)) : 0;
  std::string text;
  for (int i = 0; i < n; ++i) text += value < 0 ? "-" : "+";
  return text;
}

std::string sensitivity_text(const planner::Sensitivity& s) {
  double most = 0;
  for (const planner::RateBar& r : s.rates) most = std::max(most, std::abs(r.elasticity));
  Table rates({"Rate (10 % down, up)", "elasticity of step time", "step s at -10 %", "at +10 %",
               "headroom at -10 %", "at +10 %", ""});
  rates.align(6, Table::Align::left);
  for (const planner::RateBar& r : s.rates)
    rates.add({r.name, fmt::format("{:+.3f}", r.elasticity), fmt::format("{:.4g}", r.low_s),
               fmt::format("{:.4g}", r.high_s), gib(r.headroom_low), gib(r.headroom_high),
               bar(r.elasticity, most)});
  most = 0;
  for (const planner::TechniqueBar& t : s.techniques)
    if (t.status != PointStatus::illegal) most = std::max(most, std::abs(t.change));
  Table techniques({"Change", "kind", "step time %", "headroom GiB", "", "verdict"});
  techniques.align(1, Table::Align::left), techniques.align(4, Table::Align::left);
  techniques.align(5, Table::Align::left);
  std::size_t illegal = 0;
  for (const planner::TechniqueBar& t : s.techniques) {
    if (t.status == PointStatus::illegal) {
      ++illegal;
      continue;
    }
    techniques.add({t.name, std::string(token_name(planner::kAttacks, t.attack)),
                    signed_percent(t.change), signed_gib(t.headroom_change), bar(t.change, most),
                    t.reason.empty() ? "fits" : brief(t.reason)});
  }
  std::string text = "Elasticity to hardware rates:\n" + rates.text("  ") +
                     "\nOne change at a time:\n" + techniques.text("  ");
  if (illegal > 0) text += fmt::format("  {} further changes are illegal here (--json)\n", illegal);
  return text;
}

std::string crossing_text(const planner::Target& target, const planner::Crossing& c) {
  const auto value = [&](double v) {
    if (target.metric == "headroom" || target.metric == "peak" || target.metric == "reserved")
      return fmt::format("{:.2f} GiB", v / (1024.0 * 1024 * 1024));
    return fmt::format("{:.4g}", v);
  };
  if (!c.found)
    return fmt::format("{} never crosses {} over the range: it goes from {} to {}\n", target.metric,
                       value(target.value), value(c.at_low), value(c.at_high));
  const auto at = [&](const Point& p) {
    const Result<double> number = planner::metric(target.metric, p.estimate);
    return fmt::format("{} = {} (step {:.4g} s, {})", short_key(c.key), p.values.front(),
                       p.estimate.step_time_s, value(number ? *number : 0));
  };
  return fmt::format("{} crosses {} between {} and {}; {} evaluations\n", target.metric,
                     value(target.value), at(c.before), at(c.beyond), c.evaluations);
}

std::string risk_text(const planner::RoutingRisk& r) {
  Table table({"Lever", "P(out of memory) %", "peak p50 GiB", "p99", "slow-down %", "p90 %",
               "imbalance", "dropped %", "note"});
  table.align(8, Table::Align::left);
  for (const planner::RiskRow& row : r.rows)
    table.add({row.lever, percent(row.out_of_memory), gib(row.p50), gib(row.p99),
               signed_percent(row.slow_down), signed_percent(row.slow_down_p90),
               fmt::format("{:.2f}", row.imbalance), percent(row.dropped),
               row.note + (row.launchable ? "" : " (Megatron refuses it here)")});
  return fmt::format(
             "Routing: {} draws; capacity {} GiB; the balanced step takes {:.4g} s, slow-downs are "
             "over it\n",
             r.draws, gib(r.capacity), r.balanced_step_s) +
         table.text("  ");
}

Json estimate_json(const Point& point) {
  return point.evaluated() ? estimate::to_json(point.estimate, point.job) : Json(nullptr);
}

Json crossing_json(const planner::Target& target, const planner::Crossing& c) {
  Json json = {{"metric", target.metric}, {"target", target.value},
               {"found", c.found},        {"key", c.key},
               {"at_low", c.at_low},      {"at_high", c.at_high},
               {"value", c.value},        {"evaluations", c.evaluations}};
  const auto side = [&](const Point& p) -> Json {
    return {
        {"value", p.values.front()}, {"estimate", estimate_json(p)}, {"verdict", verdict_json(p)}};
  };
  if (!c.found) json["value"] = nullptr;
  if (c.found) json["before"] = side(c.before), json["beyond"] = side(c.beyond);
  return json;
}

}  // namespace

Json verdict_json(const Point& point) {
  const job::Rule* rule = point.verdict.rule;
  return {{"status", token_name(planner::kPointStatuses, point.status)},
          {"rule", rule != nullptr ? Json(rule->id) : Json(nullptr)},
          {"reason", planner::reason_of(point)},
          {"fix", rule != nullptr ? rule->fix : ""}};
}

Json sensitivity_json(const planner::Sensitivity& s) {
  Json list = Json::array();
  for (const planner::RateBar& r : s.rates)
    list.push_back({{"kind", "rate"},
                    {"key", r.key},
                    {"name", r.name},
                    {"elasticity", r.elasticity},
                    {"change", 0.1},
                    {"step_time_low_s", r.low_s},
                    {"step_time_high_s", r.high_s},
                    {"headroom_low_bytes", r.headroom_low.value()},
                    {"headroom_high_bytes", r.headroom_high.value()}});
  for (const planner::TechniqueBar& t : s.techniques) {
    const bool known = t.status != PointStatus::illegal;
    list.push_back(
        {{"kind", "technique"},
         {"name", t.name},
         {"attack", token_name(planner::kAttacks, t.attack)},
         {"removes", t.removes},
         {"status", token_name(planner::kPointStatuses, t.status)},
         {"reason", t.reason},
         {"step_time_s", known ? Json(t.step_time_s) : Json(nullptr)},
         {"step_time_change", known ? Json(t.change) : Json(nullptr)},
         {"headroom_change_bytes", known ? Json(t.headroom_change.value()) : Json(nullptr)}});
  }
  return list;
}

Json risk_json(const planner::RoutingRisk& r) {
  Json rows = Json::array();
  for (const planner::RiskRow& row : r.rows)
    rows.push_back({{"lever", row.lever},
                    {"out_of_memory_probability", row.out_of_memory},
                    {"peak_p50_bytes", row.p50.value()},
                    {"peak_p99_bytes", row.p99.value()},
                    {"slow_down", row.slow_down},
                    {"slow_down_p90", row.slow_down_p90},
                    {"imbalance", row.imbalance},
                    {"dropped_share", row.dropped},
                    {"launchable", row.launchable},
                    {"note", row.note}});
  return {{"draws", r.draws},
          {"capacity_bytes", r.capacity.value()},
          {"balanced_step_time_s", r.balanced_step_s},
          {"rows", rows}};
}

std::string whatif_text(const WhatIfAnswer& a) {
  const estimate::Estimate& e = a.base_point.estimate;
  std::string text = fmt::format("{} on {} x {}: {}\n", a.base.model.name, thousands(a.base.gpus),
                                 a.base.cluster.name, layout_text(a.base));
  if (a.base_point.evaluated())
    text +=
        fmt::format("base: {:.4g} s a step ({:.3g}-{:.3g}), headroom {} GiB, {}\n\n", e.step_time_s,
                    e.low_s, e.high_s, gib(e.memory.headroom), verdict_text(a.base_point));
  else
    text += "base: " + verdict_text(a.base_point) + "\n\n";
  if (!a.points.empty()) {
    text += points_table(a);
    const std::string stages = stages_table(a);
    if (!stages.empty()) text += "\n" + stages;
    text += "  closed-form estimates\n";
  }
  if (a.crossing != nullptr) text += crossing_text(*a.target, *a.crossing);
  if (a.risk != nullptr) text += risk_text(*a.risk);
  if (a.sensitivity != nullptr) text += sensitivity_text(*a.sensitivity);
  return text;
}

Json whatif_json(const WhatIfAnswer& a) {
  Json axes = Json::array(), points = Json::array();
  for (const planner::Axis& axis : a.axes)
    axes.push_back({{"key", axis.key}, {"values", axis.values}});
  for (const Point& p : a.points) {
    Json vary = Json::object();
    for (std::size_t i = 0; i < a.axes.size(); ++i) vary[a.axes[i].key] = p.values[i];
    Json point = {{"vary", vary},
                  {"estimate", estimate_json(p)},
                  {"verdict", verdict_json(p)},
                  {"layout", layout_text(p.job)}};
    if (a.replan) point["job"] = job::to_json(p.job);
    points.push_back(std::move(point));
  }
  Json json = {{"schema", "trifold.whatif/1"},
               {"base",
                {{"job", job::to_json(a.base)},
                 {"estimate", estimate_json(a.base_point)},
                 {"verdict", verdict_json(a.base_point)}}},
               {"vary", axes},
               {"replan", a.replan},
               {"points", points}};
  if (a.sensitivity != nullptr) json["sensitivity"] = sensitivity_json(*a.sensitivity);
  if (a.crossing != nullptr) json["until"] = crossing_json(*a.target, *a.crossing);
  if (a.risk != nullptr) json["risk"] = risk_json(*a.risk);
  return json;
}

}  // namespace trifold::report

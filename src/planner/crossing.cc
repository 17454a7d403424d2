// SPDX-License-Identifier: Apache-2.0
#include "planner/crossing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace trifold::planner {

namespace {

constexpr int kCoarse = 16;
constexpr int kMostNeighbours = 4096;
constexpr double kRelativeWidth = 1e-4;

Error usage(std::string message, const char* where, std::string hint) {
  return Error{ErrorCode::usage, std::move(message), where, std::move(hint)};
}

enum class Kind : std::uint8_t { bytes, seconds, share, plain };

Kind kind_of(const std::string& name) {
  if (name == "headroom" || name == "peak" || name == "reserved") return Kind::bytes;
  if (name == "step_time") return Kind::seconds;
  return name == "mfu" || name.find("share") != std::string::npos ? Kind::share : Kind::plain;
}

std::vector<std::string> make_names() {
  std::vector<std::string> names = {"step_time",       "tokens_per_s_per_gpu",
                                    "tflops_per_gpu",  "mfu",
                                    "headroom",        "peak",
                                    "reserved",        "compute_share",
                                    "bubble_share",    "host_share",
                                    "recompute_share", "optimizer_share",
                                    "comm_share",      "comm_total_share"};
  for (const char* kind : estimate::kCommNames) {
    names.push_back(std::string(kind) + "_share");
    names.push_back(std::string(kind) + "_total_share");
  }
  return names;
}

std::optional<double> share(const std::string& name, const estimate::Estimate& e) {
  double exposed = 0, total = 0;
  for (std::size_t i = 0; i < estimate::kComms; ++i) {
    const std::string kind = estimate::kCommNames[i];
    if (name == kind + "_share") return e.communication[i].exposed_s / e.step_time_s;
    if (name == kind + "_total_share") return e.communication[i].total_s / e.step_time_s;
    exposed += e.communication[i].exposed_s;
    total += e.communication[i].total_s;
  }
  if (name == "comm_share") return exposed / e.step_time_s;
  if (name == "comm_total_share") return total / e.step_time_s;
  if (name == "compute_share") return e.time.compute / e.step_time_s;
  if (name == "bubble_share") return e.time.bubble / e.step_time_s;
  if (name == "host_share") return e.time.host / e.step_time_s;
  if (name == "recompute_share") return e.time.recompute / e.step_time_s;
  if (name == "optimizer_share") return e.time.optimizer / e.step_time_s;
  return std::nullopt;
}

// One field, priced where somebody looks.
class Scan {
 public:
  Scan(WhatIf& what_if, const Range& range, const Target& target)
      : what_if_(what_if), range_(range), target_(target) {}

  struct Sample {
    double value = 0, distance = 0;  // metric - target
    Point point;
  };

  Result<std::optional<Sample>> at(double value) {
    const std::string word = fmt::format("{:.12g}{}", value, range_.unit);
    TRIFOLD_ASSIGN(job, what_if_.read({range_.key + "=" + word}));
    Sample sample;
    TRIFOLD_TRY(what_if_.evaluate(job, sample.point));
    if (!sample.point.evaluated()) return std::optional<Sample>();
    ++evaluations;
    sample.point.values = {word};
    sample.value = value;
    TRIFOLD_ASSIGN(number, metric(target_.metric, sample.point.estimate));
    sample.distance = number - target_.value;
    return std::optional<Sample>(std::move(sample));
  }

  // The nearest value to `middle` strictly between the two that can be priced.
  Result<std::optional<Sample>> near(double middle, double low, double high) {
    if (!range_.integer) return at(middle);
    const double start = std::round(middle);
    for (int i = 0; i < kMostNeighbours; ++i) {
      const double value = start + (i % 2 == 0 ? i / 2 : -(i + 1) / 2);
      if (value <= low || value >= high) {
        if (start - i > low || start + i < high) continue;
        break;
      }
      TRIFOLD_ASSIGN(sample, at(value));
      if (sample) return std::optional<Sample>(std::move(sample));
    }
    return std::optional<Sample>();
  }

  double between(double low, double high, double share) const {
    if (low > 0 && high / low > 8) return low * std::pow(high / low, share);
    return low + (high - low) * share;
  }

  int evaluations = 0;

 private:
  WhatIf& what_if_;
  const Range& range_;
  const Target& target_;
};

bool crosses(double a, double b) { return (a < 0) != (b < 0); }

}  // namespace

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = make_names();
  return names;
}

Result<double> metric(const std::string& name, const estimate::Estimate& e) {
  if (name == "headroom") return static_cast<double>(e.memory.headroom.value());
  if (name == "peak") return static_cast<double>(e.memory.peak.value());
  if (name == "reserved") return static_cast<double>(e.memory.reserved.value());
  if (name == "step_time") return double{e.step_time_s};
  if (name == "tokens_per_s_per_gpu") return double{e.tokens_per_s_per_gpu};
  if (name == "tflops_per_gpu") return double{e.tflops_per_gpu};
  if (name == "mfu") return double{e.mfu};
  if (const std::optional<double> value = share(name, e)) return double{*value};
  const std::vector<std::string>& names = metric_names();
  return usage(fmt::format("unknown number '{}'", name), "--until",
               suggest(name, std::vector<std::string_view>(names.begin(), names.end())));
}

Result<Target> parse_target(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return usage(fmt::format("expected number=value, found '{}'", text), "--until",
                 "for example --until headroom=10GiB");
  Target target;
  target.metric = text.substr(0, equals);
  estimate::Estimate none;
  none.step_time_s = 1;
  const Result<double> known = metric(target.metric, none);
  if (!known) return known.error();
  const std::string value = text.substr(equals + 1);
  char* end = nullptr;
  target.value = std::strtod(value.c_str(), &end);
  const std::string unit(end);
  const Kind kind = kind_of(target.metric);
  if (end == value.c_str() || !std::isfinite(target.value))
    return usage(fmt::format("'{}' is not a number", value), "--until", "for example 10GiB");
  if (unit.empty()) return target;
  if (kind == Kind::bytes) {
    Json probe = Json::object();
    Result<void> set = job::set_field(probe, "cluster_overrides.hbm_bytes=" + value);
    if (!set)
      return usage(fmt::format("unknown unit '{}'", unit), "--until", "for example 10GiB or 80GB");
    target.value = probe["cluster_overrides"]["hbm_bytes"].get<double>();
    return target;
  }
  if (kind == Kind::seconds && (unit == "s" || unit == "ms"))
    return target.value *= unit == "ms" ? 1e-3 : 1.0, target;
  if (kind == Kind::share && unit == "%") return target.value /= 100, target;
  return usage(fmt::format("unit '{}' does not fit {}", unit, target.metric), "--until",
               kind == Kind::share ? "a share: 0.05 or 5%" : "a plain number");
}

Result<Range> parse_range(const std::string& text) {
  const std::size_t equals = text.find('='), dots = text.find("..");
  if (equals == std::string::npos || dots == std::string::npos || dots < equals)
    return usage(fmt::format("expected key=low..high, found '{}'", text), "--vary",
                 "--until searches one range, for example --vary sequence_length=4096..131072");
  TRIFOLD_ASSIGN(axis, parse_axis(text.substr(0, equals) + "=" + text.substr(dots + 2)));
  TRIFOLD_ASSIGN(first, parse_axis(text.substr(0, dots)));
  Range range;
  range.key = axis.key;
  char* end = nullptr;
  const std::string &low = first.values.front(), &high = axis.values.front();
  range.high = std::strtod(high.c_str(), &end);
  const bool high_is_number = end != high.c_str();
  range.unit = end;
  range.low = std::strtod(low.c_str(), &end);
  const std::string low_unit = end;
  if (!high_is_number || end == low.c_str())
    return usage(fmt::format("{}: '{}..{}' is not a range of numbers", range.key, low, high),
                 "--vary", "--until needs a field that is a number");
  if (!low_unit.empty() && low_unit != range.unit)
    return usage(fmt::format("{}: the ends have different units", range.key), "--vary",
                 "write both in one unit");
  if (!(range.low < range.high))
    return usage(fmt::format("{}: the range is empty", range.key), "--vary", "low..high");
  range.integer = range.unit.empty() && range.low == std::floor(range.low) &&
                  range.high == std::floor(range.high) &&
                  range.key.find("_per_s") == std::string::npos &&
                  range.key.find("factor") == std::string::npos &&
                  range.key.find("fraction") == std::string::npos &&
                  range.key.find("parameters") == std::string::npos;
  return range;
}

Result<Crossing> find_crossing(WhatIf& what_if, const Range& range, const Target& target) {
  Scan scan(what_if, range, target);
  using Sample = Scan::Sample;
  Crossing out;
  out.key = range.key;
  std::optional<Sample> before, beyond;
  for (int i = 0; i <= kCoarse; ++i) {
    double value = scan.between(range.low, range.high, static_cast<double>(i) / kCoarse);
    if (i == kCoarse) value = range.high;
    const double next =
        i == kCoarse ? range.high + 1
                     : scan.between(range.low, range.high, static_cast<double>(i + 1) / kCoarse);
    const double last = before ? before->value : range.low - 1;
    TRIFOLD_ASSIGN(
        sample, range.integer ? scan.near(value, last, std::max(next, value + 1)) : scan.at(value));
    if (!sample) continue;
    out.at_high = sample->distance + target.value;
    if (!before) out.at_low = out.at_high;
    if (before && crosses(before->distance, sample->distance)) {
      beyond = std::move(sample);
      break;
    }
    before = std::move(sample);
  }
  while (before && beyond) {
    const double low = before->value, high = beyond->value;
    if (!range.integer && high - low <= kRelativeWidth * std::abs(high)) break;
    TRIFOLD_ASSIGN(middle, scan.near((low + high) / 2, low, high));
    if (!middle) break;
    (crosses(before->distance, middle->distance) ? beyond : before) = std::move(middle);
  }
  out.evaluations = scan.evaluations;
  if (!before || !beyond) return out;
  out.found = true;
  out.value = beyond->value;
  out.before = std::move(before->point);
  out.beyond = std::move(beyond->point);
  return out;
}

}  // namespace trifold::planner

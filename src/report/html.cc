// SPDX-License-Identifier: Apache-2.0
#include "report/html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

#include "base/check.h"

// The built page stands in the program's read-only data; TRIFOLD_PAGE is its path at build time.
extern "C" {
extern const char trifold_page_begin[];
extern const char trifold_page_end[];
}
__asm__(
    ".section .rodata\n"
    ".global trifold_page_begin\n"
    ".global trifold_page_end\n"
    "trifold_page_begin:\n"
    ".incbin \"" TRIFOLD_PAGE
    "\"\n"
    "trifold_page_end:\n"
    ".byte 0\n"
    ".previous\n");

namespace trifold::report {

namespace {

constexpr std::string_view kMark = "<!--trifold:data-->";
constexpr int kDigits = 7;  // of what is only drawn
constexpr std::int64_t kCurveBytes = 1 << 16;

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 128) {
    out += static_cast<char>(value | 128);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void append_zigzag(std::string& out, std::int64_t value) {
  append_varint(out,
                (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
}

std::string base64(const std::string& bytes) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) -> std::uint32_t {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0;
    };
    const std::uint32_t group = at(0) << 16 | at(1) << 8 | at(2);
    for (int k = 0; k < 4; ++k)
      out += static_cast<std::size_t>(k) > bytes.size() - i ? '='
                                                            : kAlphabet[group >> (18 - 6 * k) & 63];
  }
  return out;
}

struct Columns {
  std::vector<std::int64_t> stage, stream, category, name, microbatch, chunk, work, start, duration;
  explicit Columns(const Json& slices) {
    const std::tuple<const char*, std::vector<std::int64_t>*> all[] = {
        {"stage", &stage}, {"stream", &stream},         {"category", &category},
        {"name", &name},   {"microbatch", &microbatch}, {"chunk", &chunk},
        {"work", &work},   {"start_ns", &start},        {"duration_ns", &duration}};
    for (const auto& [key, column] : all) {
      *column = slices.at(key).get<std::vector<std::int64_t>>();
      TRIFOLD_CHECK(column->size() == stage.size());
    }
  }
};

Json packed_slices(const Json& timeline) {
  const Columns c(timeline["slices"]);
  const double step_ns = timeline.value("step_time_s", 0.0) * 1e9;
  const auto unit = std::max<std::int64_t>(1, static_cast<std::int64_t>(step_ns / (1 << 26)));
  std::map<std::array<std::int64_t, 4>, std::uint64_t> index;
  Json rows = Json::array(), kinds = Json::array();
  std::string bytes;
  std::int64_t microbatch = 0, end = 0;
  for (std::size_t i = 0; i < c.stage.size(); ++i) {
    if (i == 0 || c.stage[i] != c.stage[i - 1] || c.stream[i] != c.stream[i - 1]) {
      rows.push_back({c.stage[i], c.stream[i], 0});
      microbatch = end = 0;
    }
    rows.back()[2] = rows.back()[2].get<std::int64_t>() + 1;
    const std::array<std::int64_t, 4> kind = {c.category[i], c.name[i], c.chunk[i], c.work[i]};
    const auto [it, fresh] = index.emplace(kind, index.size());
    if (fresh) kinds.push_back(kind);
    const std::int64_t start = (c.start[i] + unit / 2) / unit;
    const std::int64_t stop = std::max(start, (c.start[i] + c.duration[i] + unit / 2) / unit);
    append_varint(bytes, it->second);
    append_zigzag(bytes, c.microbatch[i] - microbatch);
    append_zigzag(bytes, start - end);
    append_varint(bytes, static_cast<std::uint64_t>(stop - start));
    microbatch = c.microbatch[i];
    end = stop;
  }
  return {{"unit_ns", unit}, {"rows", rows}, {"kinds", kinds}, {"data", base64(bytes)}};
}

Json packed_curve(const Json& curve, double step_s) {
  const double unit_s = std::max(step_s, 1e-9) / (1 << 20);
  std::string bytes;
  std::int64_t time = 0, level = 0;
  const auto times = curve.at("time_s").get<std::vector<double>>();
  const auto values = curve.at("bytes").get<std::vector<std::int64_t>>();
  TRIFOLD_CHECK(times.size() == values.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::int64_t at = std::llround(times[i] / unit_s), to = values[i] / kCurveBytes;
    append_zigzag(bytes, at - time);
    append_zigzag(bytes, to - level);
    time = at, level = to;
  }
  return {{"stage", curve["stage"]},
          {"unit_s", unit_s},
          {"unit_bytes", kCurveBytes},
          {"data", base64(bytes)}};
}

void strip_stages(Json& whatif) {
  if (!whatif.is_object() || !whatif.contains("points")) return;
  whatif.erase("base");
  for (Json& point : whatif["points"]) {
    point.erase("job");
    if (point.contains("estimate") && point["estimate"].is_object())
      point["estimate"]["memory"].erase("stages");
  }
}

void round_all(Json& json) {
  if (json.is_number_float())
    json = round_significant(json.get<double>(), kDigits);
  else if (json.is_structured())
    for (Json& item : json) round_all(item);
}

}  // namespace

Json pack_page(const Json& data) {
  Json page = data;
  double step_s = 0;
  if (page.contains("timeline") && page["timeline"].is_object()) {
    Json& timeline = page["timeline"];
    step_s = timeline.value("step_time_s", 0.0);
    timeline["packed"] = packed_slices(timeline);
    timeline.erase("slices");
  }
  if (page.contains("memory"))
    for (Json& curve : page["memory"]["curves"]) curve = packed_curve(curve, step_s);
  if (page.contains("whatif")) strip_stages(page["whatif"]);
  // What is computed with, or compared with the command line, keeps every digit.
  for (auto& item : page.items())
    if (item.key() != "inputs" && item.key() != "estimate") round_all(item.value());
  return page;
}

std::string html_page(const Json& data) {
  const std::string_view page(trifold_page_begin,
                              static_cast<std::size_t>(trifold_page_end - trifold_page_begin));
  const std::size_t mark = page.find(kMark);
  TRIFOLD_CHECK(mark != std::string_view::npos);
  const std::string text = pack_page(data).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(page.size() + text.size() + 1024);
  out.append(page.substr(0, mark)).append("<script type=\"application/json\" id=\"data\">");
  for (char c : text) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  out.append("</script>").append(page.substr(mark + kMark.size()));
  return out;
}

}  // namespace trifold::report

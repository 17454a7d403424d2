// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/points.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace trifold::fit {

using hardware::Dtype;
using hardware::kDtypes;

const PointAxes& point_axes(PointFamily family) {
  static const PointAxes kGemm = {"m", "n", "k", ""};
  static const PointAxes kGrouped = {"m", "n", "k", "groups"};
  static const PointAxes kAttention = {"sequence", "head_dim", "heads_batch", "value_dim"};
  static const PointAxes kCollective = {"ranks", "bytes", "ctas", ""};
  static const PointAxes kDispatch = {"ranks", "scaleup_bytes", "scaleout_bytes", "sms"};
  static const PointAxes kBytes = {"bytes", "", "", ""};
  static const PointAxes kHost = {"count", "", "", ""};
  static const PointAxes kOverlap = {"bytes", "ctas", "sms", "alone_us"};
  switch (family) {
    case PointFamily::gemm:
      return kGemm;
    case PointFamily::grouped_gemm:
      return kGrouped;
    case PointFamily::attention:
      return kAttention;
    case PointFamily::collective:
      return kCollective;
    case PointFamily::dispatch:
      return kDispatch;
    case PointFamily::memory_bound:
    case PointFamily::quantize:
    case PointFamily::host_link:
      return kBytes;
    case PointFamily::host:
      return kHost;
    case PointFamily::overlap:
      return kOverlap;
  }
  return kGemm;
}

namespace {

constexpr const char* kSchema = "trifold.points/1";

Json provenance_json(const hardware::Provenance& p) {
  Json j = Json::object();
  const std::pair<const char*, const std::string*> fields[] = {
      {"gpu", &p.gpu},   {"driver", &p.driver}, {"cuda", &p.cuda},     {"cublas", &p.cublas},
      {"nccl", &p.nccl}, {"date", &p.date},     {"source", &p.source}, {"commit", &p.commit}};
  for (const auto& [key, value] : fields)
    if (!value->empty()) j[key] = *value;
  return j;
}

Result<void> read_header(const Json& json, const std::string& where, PointsFile& out) {
  JsonReader reader(json, where);
  std::string schema;
  reader.require("schema");
  reader.get("schema", schema);
  if (!schema.empty() && schema != kSchema)
    return input_error("schema '" + schema + "' is not " + kSchema, where,
                       "write points with `trifold calibrate` of this version");
  JsonReader p = reader.child("provenance");
  p.get("gpu", out.provenance.gpu);
  p.get("driver", out.provenance.driver);
  p.get("cuda", out.provenance.cuda);
  p.get("cublas", out.provenance.cublas);
  p.get("nccl", out.provenance.nccl);
  p.get("date", out.provenance.date);
  p.get("source", out.provenance.source);
  p.get("commit", out.provenance.commit);
  reader.join(p);
  reader.get("gpus", out.gpus);
  reader.get("topology", out.topology);
  reader.get("gpu_uuid_hash", out.gpu_uuid_hash);
  return reader.finish();
}

Result<Point> read_point(const Json& json, const std::string& where) {
  JsonReader reader(json, where);
  Point point;
  for (const char* key : {"family", "op", "shape", "us"}) reader.require(key);
  reader.get_token("family", kPointFamilies, point.family);
  reader.get("op", point.op);
  reader.get("variant", point.variant);
  reader.get_token("dtype", kDtypes, point.dtype);
  JsonReader shape = reader.child("shape");
  const PointAxes& axes = point_axes(point.family);
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i][0] != '\0') shape.get_in(axes[i], point.shape[i], 0.0, 1e18);
  reader.join(shape);
  reader.get_in("us", point.us, 0.0, 1e12);
  point.us_p10 = point.us_p90 = point.us;
  reader.get_in("us_p10", point.us_p10, 0.0, 1e12);
  reader.get_in("us_p90", point.us_p90, 0.0, 1e12);
  reader.get("samples", point.samples);
  reader.get("clock_mhz", point.clock_mhz);
  reader.get_tokens("flags", kPointFlags, point.flags);
  TRIFOLD_TRY(reader.finish());
  return point;
}

// A run that died mid-line must not spoil the next one's first.
Result<void> drop_torn_line(const std::string& path) {
  std::error_code gone;
  const std::uintmax_t size = std::filesystem::file_size(path, gone);
  if (gone || size == 0) return {};
  TRIFOLD_ASSIGN(text, read_text(path));
  if (text.empty() || text.back() == '\n') return {};
  const std::size_t newline = text.rfind('\n');
  std::error_code failed;
  std::filesystem::resize_file(path, newline == std::string::npos ? 0 : newline + 1, failed);
  if (failed) return input_error("cannot repair a torn last line: " + failed.message(), path);
  return {};
}

}  // namespace

std::string header_line(const PointsFile& file) {
  Json j;
  j["schema"] = kSchema;
  j["provenance"] = provenance_json(file.provenance);
  j["gpus"] = file.gpus;
  if (!file.topology.empty()) j["topology"] = file.topology;
  if (!file.gpu_uuid_hash.empty()) j["gpu_uuid_hash"] = file.gpu_uuid_hash;
  return j.dump();
}

std::string point_line(const Point& point) {
  Json j;
  j["family"] = token_name(kPointFamilies, point.family);
  j["op"] = point.op;
  if (!point.variant.empty()) j["variant"] = point.variant;
  j["dtype"] = token_name(kDtypes, point.dtype);
  const PointAxes& axes = point_axes(point.family);
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i][0] != '\0') j["shape"][axes[i]] = round_significant(point.shape[i], 15);
  j["us"] = round_significant(point.us, 6);
  j["us_p10"] = round_significant(point.us_p10, 6);
  j["us_p90"] = round_significant(point.us_p90, 6);
  if (point.samples > 0) j["samples"] = point.samples;
  if (point.clock_mhz > 0) j["clock_mhz"] = point.clock_mhz;
  for (const auto& flag : kPointFlags)
    if (point.flags.contains(flag.value)) j["flags"].push_back(flag.name);
  return j.dump();
}

Result<void> append_points(const std::string& path, const PointsFile& header,
                           const std::vector<Point>& points) {
  TRIFOLD_TRY(drop_torn_line(path));
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr)
    return input_error(std::string("cannot write: ") + std::strerror(errno), path);
  std::string text;
  if (std::fseek(file, 0, SEEK_END) == 0 && std::ftell(file) == 0)
    text = header_line(header) + "\n";
  for (const Point& point : points) text += point_line(point) + "\n";
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!wrote || !closed) return input_error("short write; is the disk full?", path);
  return {};
}

Result<PointsFile> parse_points(const std::string& text, const std::string& name) {
  PointsFile file;
  std::size_t begin = 0;
  int number = 0;
  bool header = false;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    const bool complete = end != std::string::npos;
    if (!complete) end = text.size();
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = name + ":" + std::to_string(number);
    Result<Json> json = parse_json(line, where);
    if (!json) {
      if (complete) return std::move(json).error();
      file.torn = true;
      break;
    }
    if (!header) {
      TRIFOLD_TRY(read_header(*json, where, file));
      header = true;
      continue;
    }
    Result<Point> point = read_point(*json, where);
    if (!point) return std::move(point).error();
    file.points.push_back(std::move(*point));
  }
  if (!header)
    return input_error("no header line", name,
                       "the first line holds \"schema\":\"trifold.points/1\"");
  return file;
}

Result<PointsFile> read_points(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  return parse_points(text, path);
}

}  // namespace trifold::fit

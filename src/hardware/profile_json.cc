// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hardware/catalogue.h"
#include "hardware/profile.h"

// trifold.profile/1 in and out. Axes and utilisations are plain numbers in the file, logs in
// memory.

namespace trifold::hardware {

namespace {

constexpr const char* kSchema = "trifold.profile/1";
constexpr Token<GemmPass> kPassTokens[] = {
    {GemmPass::forward, "forward"}, {GemmPass::dgrad, "dgrad"}, {GemmPass::wgrad, "wgrad"}};
constexpr const char* kDispatcherNames[] = {"alltoall", "allgather", "deepep", "hybridep"};

using AxisNames = std::array<const char*, 3>;
constexpr AxisNames kGemmAxes = {"m", "n", "k"};
constexpr AxisNames kGroupedAxes = {"tokens_per_expert", "n", "k"};
constexpr AxisNames kAttentionAxes = {"sequence", "head_dim", "heads_batch"};

constexpr double kMaxError = 2;  // relative, one sigma

template <class C>
std::string key_of(const C& name) {
  return std::string(name);
}

void read_quality(JsonReader& reader, double& error, Basis& basis, std::string& source) {
  reader.get_in("error", error, 0, kMaxError);
  reader.get_token("basis", kBases, basis);
  reader.get("source", source);
}

void write_quality(Json& json, double error, Basis basis, const std::string& source) {
  json["error"] = round_significant(error, 4);
  json["basis"] = key_of(token_name(kBases, basis));
  if (!source.empty()) json["source"] = source;
}

// Positive and strictly ascending numbers; `minimum` of them at least.
bool read_ascending(JsonReader& reader, const char* key, std::vector<double>& out,
                    std::size_t minimum) {
  reader.require(key);
  reader.get(key, out);
  if (reader.failed()) return false;
  const bool ascending =
      std::adjacent_find(out.begin(), out.end(), std::greater_equal<>()) == out.end();
  const bool finite =
      std::all_of(out.begin(), out.end(), [](double v) { return std::isfinite(v) && v > 0; });
  if (out.size() >= minimum && ascending && finite) return true;
  reader.fail(
      input_error(fmt::format("expected {} or more positive, strictly ascending numbers", minimum),
                  reader.where(key)));
  return false;
}

void read_support(JsonReader& reader, Grid3& grid) {
  grid.support.assign(grid.values.size(), 1);
  std::vector<std::int64_t> support;
  reader.get("support", support);
  if (!reader.has("support") || reader.failed()) return;
  const bool flags =
      std::all_of(support.begin(), support.end(), [](std::int64_t v) { return v == 0 || v == 1; });
  if (support.size() != grid.values.size() || !flags)
    return reader.fail(
        input_error(fmt::format("expected {} flags, each 0 or 1", grid.values.size()),
                    reader.where("support")));
  std::copy(support.begin(), support.end(), grid.support.begin());
}

Grid3 read_grid(JsonReader& reader, const AxisNames& names) {
  constexpr double kMaxUtilisation = 1.2;  // burst clocks pass the datasheet's by a little
  Grid3 grid;
  std::size_t nodes = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    if (!read_ascending(reader, names[a], grid.axes[a], 1)) return {};
    for (double& v : grid.axes[a]) v = std::log(v);
    nodes *= grid.axes[a].size();
  }
  reader.require("utilisation");
  reader.get("utilisation", grid.values);
  if (reader.failed()) return {};
  const bool in_range = std::all_of(grid.values.begin(), grid.values.end(),
                                    [](double u) { return u > 0 && u <= kMaxUtilisation; });
  if (grid.values.size() != nodes || !in_range) {
    reader.fail(input_error(fmt::format("expected {} numbers in (0, {:g}], last axis fastest "
                                        "(found {})",
                                        nodes, kMaxUtilisation, grid.values.size()),
                            reader.where("utilisation")));
    return {};
  }
  for (double& u : grid.values) u = std::log(u);
  read_support(reader, grid);
  read_quality(reader, grid.error, grid.basis, grid.source);
  return grid;
}

Json numbers(const std::vector<double>& values, int digits, bool exponentiate) {
  Json list = Json::array();
  for (double v : values) {
    const double rounded = round_significant(exponentiate ? std::exp(v) : v, digits);
    const auto whole = static_cast<std::int64_t>(std::llround(rounded));
    if (std::abs(rounded) < 1e15 && static_cast<double>(whole) == rounded)
      list.push_back(whole);
    else
      list.push_back(rounded);
  }
  return list;
}

Json write_grid(const Grid3& grid, const AxisNames& names) {
  Json json = Json::object();
  for (std::size_t a = 0; a < 3; ++a) json[names[a]] = numbers(grid.axes[a], 9, true);
  json["utilisation"] = numbers(grid.values, 5, true);
  if (std::find(grid.support.begin(), grid.support.end(), 0) != grid.support.end())
    json["support"] = grid.support;
  write_quality(json, grid.error, grid.basis, grid.source);
  return json;
}

using Family = std::array<std::array<Grid3, kGemmPasses>, kDtypeCount>;

void read_family(JsonReader& parent, const char* key, const AxisNames& names, Family& family) {
  JsonReader dtypes = parent.child(key);
  for (const Token<Dtype>& dtype : kDtypes) {
    JsonReader passes = dtypes.child(dtype.name);
    for (const Token<GemmPass>& pass : kPassTokens) {
      const bool present = passes.has(pass.name);
      JsonReader grid = passes.child(pass.name);
      if (!present) continue;
      family[static_cast<std::size_t>(dtype.value)][static_cast<std::size_t>(pass.value)] =
          read_grid(grid, names);
      passes.join(grid);
    }
    dtypes.join(passes);
  }
  parent.join(dtypes);
}

void write_family(Json& parent, const char* key, const AxisNames& names, const Family& family) {
  Json dtypes = Json::object();
  for (const Token<Dtype>& dtype : kDtypes) {
    Json passes = Json::object();
    for (const Token<GemmPass>& pass : kPassTokens) {
      const Grid3& grid =
          family[static_cast<std::size_t>(dtype.value)][static_cast<std::size_t>(pass.value)];
      if (!grid.empty()) passes[key_of(pass.name)] = write_grid(grid, names);
    }
    if (!passes.empty()) dtypes[key_of(dtype.name)] = std::move(passes);
  }
  if (!dtypes.empty()) parent[key] = std::move(dtypes);
}

void read_launches(JsonReader& parent, Profile& profile) {
  constexpr double kMaxEfficiency = 2;  // of a surface that another library measured
  JsonReader kernels = parent.child("grouped_launch");
  for (const Token<GroupedKernel>& kernel : kGroupedKernels) {
    if (kernel.value == GroupedKernel::streams) continue;
    JsonReader dtypes = kernels.child(kernel.name);
    for (const Token<Dtype>& dtype : kDtypes) {
      const bool present = dtypes.has(dtype.name);
      JsonReader reader = dtypes.child(dtype.name);
      if (!present) continue;
      GroupedLaunch launch;
      std::int64_t tile = launch.tile_rows;
      reader.require("efficiency");
      reader.get_in("efficiency", launch.efficiency, 0.01, kMaxEfficiency);
      reader.get_in("ceiling", launch.ceiling, 0.01, 1);
      reader.get_in("weight_rate", launch.weight_rate, 0.01, 1);
      reader.get_in("row_rate", launch.row_rate, 0.01, 1);
      reader.get_in("launch_s", launch.launch_s, 0, 1e-3);
      reader.get_in("tile_rows", tile, 1, 1024);
      read_quality(reader, launch.error, launch.basis, launch.source);
      launch.tile_rows = static_cast<int>(tile);
      profile.grouped_launch[static_cast<std::size_t>(kernel.value)]
                            [static_cast<std::size_t>(dtype.value)] = std::move(launch);
      dtypes.join(reader);
    }
    kernels.join(dtypes);
  }
  parent.join(kernels);
}

Json write_launches(const Profile& profile) {
  Json kernels = Json::object();
  for (const Token<GroupedKernel>& kernel : kGroupedKernels)
    for (const Token<Dtype>& dtype : kDtypes) {
      const GroupedLaunch& launch = profile.grouped_launch[static_cast<std::size_t>(kernel.value)]
                                                          [static_cast<std::size_t>(dtype.value)];
      if (launch.efficiency <= 0) continue;
      Json& json = kernels[key_of(kernel.name)][key_of(dtype.name)];
      const GroupedLaunch unset;
      const auto put = [&](const char* key, double value, double otherwise) {
        if (value != otherwise) json[key] = round_significant(value, 5);
      };
      json["efficiency"] = round_significant(launch.efficiency, 5);
      put("ceiling", launch.ceiling, unset.ceiling);
      put("weight_rate", launch.weight_rate, unset.weight_rate);
      put("row_rate", launch.row_rate, unset.row_rate);
      put("launch_s", launch.launch_s, unset.launch_s);
      if (launch.tile_rows != unset.tile_rows) json["tile_rows"] = launch.tile_rows;
      write_quality(json, launch.error, launch.basis, launch.source);
    }
  return kernels;
}

void read_attention(JsonReader& parent, std::array<Grid3, 2>& attention) {
  JsonReader passes = parent.child("attention");
  for (const bool backward : {false, true}) {
    const char* key = backward ? "backward" : "forward";
    const bool present = passes.has(key);
    JsonReader grid = passes.child(key);
    if (!present) continue;
    attention[backward ? 1 : 0] = read_grid(grid, kAttentionAxes);
    passes.join(grid);
  }
  parent.join(passes);
}

CollectiveCurve read_collective_curve(JsonReader& reader) {
  CollectiveCurve curve;
  std::int64_t ranks = 0;
  reader.require("ranks");
  reader.get_in("ranks", ranks, 2, 4096);
  curve.ranks = static_cast<int>(ranks);
  if (!read_ascending(reader, "bytes", curve.bytes, 2)) return curve;
  reader.require("seconds");
  reader.get("seconds", curve.seconds);
  if (reader.failed()) return curve;
  const auto& t = curve.seconds;
  const bool physical = std::all_of(t.begin(), t.end(), [](double v) { return v > 0 && v < 1e4; });
  if (t.size() != curve.bytes.size() || !physical || !std::is_sorted(t.begin(), t.end()))
    reader.fail(input_error(
        fmt::format("expected {} positive times that never fall as bytes grow", curve.bytes.size()),
        reader.where("seconds"), "fit with the isotonic correction"));
  read_quality(reader, curve.error, curve.basis, curve.source);
  return curve;
}

void read_collectives(JsonReader& parent, Profile& profile) {
  JsonReader operations = parent.child("collectives");
  for (const Token<Collective>& op : kCollectives) {
    const Json* list = operations.raw(op.name);
    if (list == nullptr) continue;
    if (!list->is_array()) {
      operations.fail(input_error("expected a list of curves", operations.where(op.name)));
      continue;
    }
    auto& curves = profile.collectives[static_cast<std::size_t>(op.value)];
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string where = operations.where(op.name);
      JsonReader reader((*list)[i], where, "/" + std::to_string(i));
      curves.push_back(read_collective_curve(reader));
      operations.join(reader);
      if (i > 0 && curves[i].ranks <= curves[i - 1].ranks)
        operations.fail(input_error("curves must ascend in ranks", reader.where("ranks")));
    }
  }
  const auto& curves = profile.collectives;
  if (curves[static_cast<std::size_t>(Collective::all_gather)].empty() &&
      curves[static_cast<std::size_t>(Collective::reduce_scatter)].empty())
    operations.fail(input_error("no curve of all_gather or reduce_scatter", operations.where(),
                                "the other collectives may be scaled from these, not these from "
                                "nothing"));
  parent.join(operations);
}

Json write_collectives(const Profile& profile) {
  Json operations = Json::object();
  for (const Token<Collective>& op : kCollectives) {
    Json list = Json::array();
    for (const CollectiveCurve& curve : profile.collectives[static_cast<std::size_t>(op.value)]) {
      Json json = {{"ranks", curve.ranks}};
      json["bytes"] = numbers(curve.bytes, 9, false);
      json["seconds"] = numbers(curve.seconds, 6, false);
      write_quality(json, curve.error, curve.basis, curve.source);
      list.push_back(std::move(json));
    }
    if (!list.empty()) operations[key_of(op.name)] = std::move(list);
  }
  return operations;
}

void read_dispatchers(JsonReader& parent, Profile& profile) {
  JsonReader dispatchers = parent.child("dispatchers");
  for (const char* name : kDispatcherNames) {
    const bool present = dispatchers.has(name);
    JsonReader reader = dispatchers.child(name);
    if (!present) continue;
    DispatcherRate rate;
    std::int64_t sms = rate.default_sms;
    reader.get_in("scaleup_efficiency", rate.scaleup_efficiency, 0, 1);
    reader.get_in("scaleout_efficiency", rate.scaleout_efficiency, 0, 1);
    reader.get_in("bytes_per_s_per_sm", rate.bytes_per_s_per_sm, 0, 1e12);
    reader.get_in("sm_s_per_row", rate.sm_s_per_row, 0, 1e-5);
    reader.get_in("latency_s", rate.latency_s, 0, 0.1);
    reader.get_in("latency_scaleout_s", rate.latency_scaleout_s, 0, 0.1);
    reader.get_in("default_sms", sms, 0, 256);
    read_quality(reader, rate.error, rate.basis, rate.source);
    rate.default_sms = static_cast<int>(sms);
    profile.dispatchers[name] = std::move(rate);
    dispatchers.join(reader);
  }
  parent.join(dispatchers);
}

Json write_dispatchers(const Profile& profile) {
  Json json = Json::object();
  for (const auto& [name, rate] : profile.dispatchers) {
    Json& d = json[name];
    d["scaleup_efficiency"] = rate.scaleup_efficiency;
    d["scaleout_efficiency"] = rate.scaleout_efficiency;
    d["bytes_per_s_per_sm"] = rate.bytes_per_s_per_sm;
    if (rate.sm_s_per_row > 0) d["sm_s_per_row"] = rate.sm_s_per_row;
    d["latency_s"] = rate.latency_s;
    d["latency_scaleout_s"] = rate.latency_scaleout_s;
    d["default_sms"] = rate.default_sms;
    write_quality(d, rate.error, rate.basis, rate.source);
  }
  return json;
}

void read_constants(JsonReader& parent, Profile& profile) {
  JsonReader constants = parent.child("constants");
  for (const ConstantSpec& spec : constant_specs()) {
    Constant constant = default_constant(spec);
    const bool present = constants.has(spec.key);
    JsonReader reader = constants.child(spec.key);
    if (present) {
      reader.require("value");
      reader.get_in("value", constant.value, spec.low, spec.high);
      reader.get("fitted", constant.fitted);
      reader.get_token("basis", kBases, constant.basis);
      constant.source.clear();
      reader.get("source", constant.source);
      constants.join(reader);
    }
    profile.constants[spec.key] = std::move(constant);
  }
  parent.join(constants);
}

Json write_constants(const Profile& profile) {
  Json json = Json::object();
  for (const ConstantSpec& spec : constant_specs()) {
    const auto it = profile.constants.find(spec.key);
    if (it == profile.constants.end()) continue;
    Json& c = json[spec.key];
    c["value"] = it->second.value;
    c["fitted"] = it->second.fitted;
    c["basis"] = key_of(token_name(kBases, it->second.basis));
    if (!it->second.source.empty()) c["source"] = it->second.source;
  }
  return json;
}

void read_provenance(JsonReader& parent, Provenance& p) {
  parent.require("provenance");
  JsonReader reader = parent.child("provenance");
  reader.require("gpu");
  reader.get("gpu", p.gpu);
  reader.get("driver", p.driver);
  reader.get("cuda", p.cuda);
  reader.get("cublas", p.cublas);
  reader.get("nccl", p.nccl);
  reader.get("date", p.date);
  reader.get("source", p.source);
  reader.get("commit", p.commit);
  if (!reader.failed() && p.gpu.empty())
    reader.fail(input_error("which GPU was this measured on?", reader.where("gpu")));
  parent.join(reader);
}

Json write_provenance(const Provenance& p) {
  Json json = Json::object();
  json["gpu"] = p.gpu;
  const auto put = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value;
  };
  put("driver", p.driver);
  put("cuda", p.cuda);
  put("cublas", p.cublas);
  put("nccl", p.nccl);
  put("date", p.date);
  put("source", p.source);
  put("commit", p.commit);
  return json;
}

}  // namespace

Constant default_constant(const ConstantSpec& spec) {
  return {spec.value, spec.low, spec.high, false, Basis::assumed, "default"};
}

Result<Profile> read_profile(const Json& json, const std::string& file) {
  TRIFOLD_TRY(check_schema(json, kSchema, file));
  Profile profile;
  JsonReader reader(json, file);
  reader.ignore("schema");
  reader.require("name");
  reader.get("name", profile.name);
  read_provenance(reader, profile.provenance);
  read_family(reader, "gemm", kGemmAxes, profile.gemm);
  read_family(reader, "grouped_gemm", kGroupedAxes, profile.grouped_gemm);
  read_launches(reader, profile);
  read_attention(reader, profile.attention);
  reader.require("collectives");
  read_collectives(reader, profile);
  read_dispatchers(reader, profile);
  read_constants(reader, profile);
  TRIFOLD_TRY(reader.finish());
  return profile;
}

Json to_json(const Profile& profile) {
  Json json = Json::object();
  json["schema"] = kSchema;
  json["name"] = profile.name;
  json["provenance"] = write_provenance(profile.provenance);
  write_family(json, "gemm", kGemmAxes, profile.gemm);
  write_family(json, "grouped_gemm", kGroupedAxes, profile.grouped_gemm);
  Json launches = write_launches(profile);
  if (!launches.empty()) json["grouped_launch"] = std::move(launches);
  Json attention = Json::object();
  if (!profile.attention[0].empty())
    attention["forward"] = write_grid(profile.attention[0], kAttentionAxes);
  if (!profile.attention[1].empty())
    attention["backward"] = write_grid(profile.attention[1], kAttentionAxes);
  if (!attention.empty()) json["attention"] = std::move(attention);
  json["collectives"] = write_collectives(profile);
  if (!profile.dispatchers.empty()) json["dispatchers"] = write_dispatchers(profile);
  json["constants"] = write_constants(profile);
  return json;
}

// dump_json puts every number of a list on a line of its own; join them.
std::string dump_profile(const Profile& profile) {
  const std::string text = dump_json(to_json(profile));
  std::string out;
  out.reserve(text.size());
  bool in_string = false, in_numbers = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out.push_back(c);
      if (c == '\\') out.push_back(text[++i]);
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[') in_numbers = text[text.find_first_of("]{[\"", i + 1)] == ']';
    if (in_numbers && (c == '\n' || c == ' ')) continue;
    out.push_back(c);
    if (in_numbers && c == ',') out.push_back(' ');
    if (c == ']') in_numbers = false;
  }
  return out;
}

Result<Profile> load_profile(const std::string& name_or_path, const std::string& data_dir) {
  TRIFOLD_ASSIGN(file, read_catalogue(name_or_path, data_dir + "/hardware/profiles", "profile"));
  return read_profile(file.json, file.path);
}

Result<Profile> profile_of(const Cluster& cluster, const std::string& data_dir) {
  if (cluster.profile.empty()) return assumed_profile(cluster);
  return load_profile(cluster.profile, data_dir);
}

std::vector<std::string> list_profiles(const std::string& data_dir) {
  return list_catalogue(data_dir + "/hardware/profiles");
}

}  // namespace trifold::hardware

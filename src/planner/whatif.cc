// SPDX-License-Identifier: Apache-2.0
#include "planner/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "hardware/rescaled.h"
#include "planner/explain.h"
#include "planner/moves.h"
#include "planner/search.h"

// A point is the base's JSON with fields replaced, read like any Job. Model and cluster are read
// again where an assignment touches them alone, and one Estimator lives for every cluster met, so
// that blocks which points share are priced once.

namespace trifold::planner {

struct WhatIf::Assignment {
  std::string key;
  std::vector<std::string> path;
  Json value;
};

struct WhatIf::Priced {
  hardware::Cluster cluster;
  std::shared_ptr<const hardware::Profile> profile;
  estimate::Estimator estimator;
  Priced(hardware::Cluster c, std::shared_ptr<const hardware::Profile> p)
      : cluster(std::move(c)), profile(std::move(p)), estimator(cluster, *profile) {}
};

namespace {

constexpr std::size_t kMostCached = 256;
constexpr std::size_t kMostPoints = 1'000'000;
constexpr const char* kParameters = "techniques.routing.parameters";

constexpr std::string_view kListKeys[] = {"techniques.overlap",
                                          "techniques.recompute",
                                          "techniques.cuda_graph",
                                          "techniques.fusions",
                                          "techniques.offload.activation_modules",
                                          kParameters};

bool is_list(const std::string& key) {
  return std::find(std::begin(kListKeys), std::end(kListKeys), key) != std::end(kListKeys);
}

bool starts_with(const std::string& text, std::string_view head) {
  return text.compare(0, head.size(), head) == 0;
}

bool touches_parts(const std::string& key) {
  return starts_with(key, "model") || starts_with(key, "cluster");
}

// Does a new value need another cut of the pipeline?
bool moves_the_cut(const std::string& key) {
  return key == "layout.pp" || key == "layout.vpp" || key == "model_overrides.num_layers" ||
         key == "model_overrides.mtp_layers" || key == "schedule.kind" || key == "model";
}

bool gives_the_cut(const std::string& key) {
  return key == "layout.pipeline_layout" || key == "layout.account_for_embedding" ||
         key == "layout.account_for_loss" || key == "layout.first_stage_layers" ||
         key == "layout.last_stage_layers";
}

bool is_integer_key(const std::string& key) {
  return key.find("_per_s") == std::string::npos && key != "techniques.offload.fraction" &&
         key != "techniques.routing.capacity_factor" && key != kParameters &&
         key.find("oversubscription") == std::string::npos;
}

Error usage(std::string message, std::string hint) {
  return Error{ErrorCode::usage, std::move(message), "--vary", std::move(hint)};
}

// The field's path after set_field has written it into an empty object.
std::vector<std::string> only_path(const Json& probe, const Json** leaf) {
  std::vector<std::string> path;
  const Json* at = &probe;
  while (at->is_object() && at->size() == 1) {
    path.push_back(at->begin().key());
    at = &at->begin().value();
  }
  *leaf = at;
  return path;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ".") + word;
  return text;
}

// A histogram file: a JSON list of numbers, or numbers between blanks, commas or lines.
Result<Json> read_numbers(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  if (text.find('[') != std::string::npos) return parse_json(text, path);
  Json list = Json::array();
  const char* at = text.c_str();
  for (;;) {
    while (*at != '\0' && std::strchr(" \t\r\n,;", *at) != nullptr) ++at;
    if (*at == '\0') return list;
    char* end = nullptr;
    const double value = std::strtod(at, &end);
    if (end == at)
      return input_error("expected numbers, one an expert", path,
                         "a JSON list, or numbers between blanks or commas");
    list.push_back(value);
    at = end;
  }
}

struct Quantity {
  double value = 0;
  std::string unit;
};

Result<Quantity> read_quantity(const std::string& key, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(value))
    return usage(fmt::format("{}: '{}' is not a number", key, text), "for example 8..64");
  return Quantity{value, end};
}

}  // namespace

Result<std::string> resolve_key(const std::string& word) {
  Json probe = Json::object();
  Result<void> set = job::set_field(probe, word + "=1");
  if (!set) {
    Error error = set.error();
    error.where = "--vary";
    return error;
  }
  const Json* leaf = nullptr;
  return joined(only_path(probe, &leaf));
}

Result<std::vector<std::string>> spread(const std::string& key, const std::string& text) {
  const std::size_t dots = text.find(".."), colon = text.find(':', dots);
  TRIFOLD_ASSIGN(low, read_quantity(key, text.substr(0, dots)));
  TRIFOLD_ASSIGN(high, read_quantity(key, text.substr(dots + 2, colon - dots - 2)));
  if (low.unit.empty()) low.unit = high.unit;
  if (high.unit.empty()) high.unit = low.unit;
  if (low.unit != high.unit)
    return usage(fmt::format("{}: the ends of '{}' have different units", key, text),
                 "write both in one unit");
  const int count = std::atoi(text.c_str() + colon + 1);
  if (count < 2 || count > static_cast<int>(kMostPoints))
    return usage(fmt::format("{}: '{}' asks for {} points", key, text, count),
                 "low..high:count with a count of 2 or more");
  std::vector<std::string> values;
  for (int i = 0; i < count; ++i) {
    double value = low.value + (high.value - low.value) * i / (count - 1);
    if (is_integer_key(key) && low.unit.empty()) value = std::round(value);
    std::string word = fmt::format("{:.12g}{}", value, low.unit);
    if (values.empty() || values.back() != word) values.push_back(std::move(word));
  }
  return values;
}

Result<Axis> parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return usage(fmt::format("expected key=v1,v2,..., found '{}'", text),
                 "for example --vary ep=8,16,32");
  Axis axis;
  const std::string word = text.substr(0, equals), values = text.substr(equals + 1);
  TRIFOLD_ASSIGN(key, resolve_key(word));
  axis.key = key;
  if (values.find("..") != std::string::npos && values.find(':') != std::string::npos) {
    TRIFOLD_ASSIGN(list, spread(key, values));
    axis.values = std::move(list);
    return axis;
  }
  for (std::size_t begin = 0; begin <= values.size();) {
    const std::size_t end = std::min(values.find(',', begin), values.size());
    const std::string value = values.substr(begin, end - begin);
    if (value.empty())
      return usage(fmt::format("{}: an empty value in '{}'", key, values), "separate by one comma");
    if (value.find("..") != std::string::npos)
      return usage(fmt::format("{}: '{}' is a range", key, value),
                   "give a count, low..high:count, or a target with --until");
    axis.values.push_back(value);
    begin = end + 1;
  }
  // A bare number of a bandwidth is in GB/s by its short name only, so the name goes with it.
  if (word.find("bandwidth") != std::string::npos)
    for (std::string& value : axis.values) {
      char* end = nullptr;
      (void)std::strtod(value.c_str(), &end);
      if (*end == '\0') value += "GB/s";
    }
  return axis;
}

std::string reason_of(const Point& point) {
  switch (point.status) {
    case PointStatus::fits:
      return "";
    case PointStatus::out_of_memory:
      return fmt::format("short of {:.1f} GiB on stage {}", -to_gib(point.estimate.memory.headroom),
                         point.estimate.memory.worst_stage);
    case PointStatus::not_launchable:
    case PointStatus::illegal:
      return job::explain(point.verdict);
  }
  return "";
}

Result<WhatIf> WhatIf::make(Json base_json, std::string file, std::string data_dir) {
  WhatIf w;
  w.json_ = std::move(base_json);
  w.file_ = std::move(file);
  w.data_dir_ = std::move(data_dir);
  TRIFOLD_ASSIGN(job, job::read_job(w.json_, w.file_, {w.data_dir_, true}));
  w.base_ = std::move(job);
  TRIFOLD_ASSIGN(profile, hardware::load_profile(
                              w.base_.profile.empty() ? w.base_.cluster.profile : w.base_.profile,
                              w.data_dir_));
  w.profile_ = std::make_shared<const hardware::Profile>(std::move(profile));
  TRIFOLD_ASSIGN(
      ratio, hardware::scaleup_ratio(w.base_.cluster, w.base_.cluster_origin.name, w.data_dir_));
  w.nominal_scaleup_ = w.base_.cluster.scaleup_bandwidth.value() / ratio;
  return w;
}

Result<WhatIf> WhatIf::make(Json base_json, std::string file, hardware::Profile profile) {
  WhatIf w;
  w.json_ = std::move(base_json);
  w.file_ = std::move(file);
  TRIFOLD_ASSIGN(job, job::read_job(w.json_, w.file_, {"", true}));
  w.base_ = std::move(job);
  w.profile_ = std::make_shared<const hardware::Profile>(std::move(profile));
  w.nominal_scaleup_ = w.base_.cluster.scaleup_bandwidth.value();
  return w;
}

Result<WhatIf::Assignment> WhatIf::parse_assignment(const std::string& text) {
  const std::size_t equals = text.find('=');
  std::string changed = text;
  std::optional<Json> numbers;
  Json probe = Json::object();
  if (equals != std::string::npos) {
    const std::string word = text.substr(0, equals);
    TRIFOLD_ASSIGN(key, resolve_key(word));
    if (key == kParameters && text.size() > equals + 1 && text[equals + 1] == '@') {
      TRIFOLD_ASSIGN(list, read_numbers(text.substr(equals + 2)));
      numbers = list;
      changed = word + "=1";
    } else if (is_list(key)) {
      std::replace(changed.begin() + static_cast<std::ptrdiff_t>(equals), changed.end(), '+', ',');
    }
  }
  TRIFOLD_TRY(job::set_field(probe, changed));
  Assignment a;
  const Json* leaf = nullptr;
  a.path = only_path(probe, &leaf);
  a.key = joined(a.path);
  a.value = numbers ? *numbers : *leaf;
  // Bytes are whole.
  if (a.value.is_number_float() && a.key.find("_bytes") != std::string::npos &&
      a.key.find("_per_s") == std::string::npos)
    a.value = static_cast<std::int64_t>(std::llround(a.value.get<double>()));
  return a;
}

Result<const job::Job*> WhatIf::model_and_cluster(const Json& json) {
  std::string text;
  for (const char* key : {"model", "model_overrides", "cluster", "cluster_overrides"}) {
    const auto it = json.find(key);
    if (it != json.end()) text += it->dump();
    text += '\n';
  }
  const auto found = parts_.find(text);
  if (found != parts_.end()) return static_cast<const job::Job*>(found->second.get());
  Json whole = json;
  whole["layout"] = Json::object();
  TRIFOLD_ASSIGN(job, job::read_job(whole, file_, {data_dir_, true}));
  if (parts_.size() >= kMostCached) parts_.clear();
  const auto kept = std::make_shared<job::Job>(std::move(job));
  parts_.emplace(std::move(text), kept);
  return static_cast<const job::Job*>(kept.get());
}

Result<job::Job> WhatIf::read(const std::vector<const Assignment*>& assignments) {
  Json json = json_;
  bool parts = false, moved = false, given = false, widened = false, sequence = false;
  for (const Assignment* a : assignments) {
    Json* at = &json;
    for (const std::string& word : a->path) {
      if (at->is_null()) *at = Json::object();
      if (!at->is_object())
        return input_error(fmt::format("cannot set {}: not an object there", a->key), file_, "");
      at = &(*at)[word];
    }
    *at = a->value;
    parts = parts || touches_parts(a->key);
    moved = moved || moves_the_cut(a->key);
    given = given || gives_the_cut(a->key);
    widened = widened || a->key == "layout.tp";
    sequence = sequence || a->key == "techniques.sequence_parallel";
  }
  const bool fresh = moved && !given;
  if (fresh && json.contains("layout")) {
    Json& layout = json["layout"];
    for (const char* key : {"pipeline_layout", "account_for_embedding", "account_for_loss",
                            "first_stage_layers", "last_stage_layers"})
      layout.erase(key);
    if (!json.contains("schema") && layout.contains("vpp") && layout["vpp"].is_null())
      layout.erase("vpp");
  }
  // A base without tensor parallelism says nothing about the sequence parallelism that goes with
  // it.
  if (widened && !sequence && base_.layout.tp == 1 && json.contains("techniques"))
    json["techniques"].erase("sequence_parallel");
  const job::Job* same = &base_;
  if (parts) {
    TRIFOLD_ASSIGN(carrier, model_and_cluster(json));
    same = carrier;
  }
  TRIFOLD_ASSIGN(job, job::read_job(json, file_, {data_dir_, true, same}));
  if (fresh) recut(job, true);
  return job;
}

Result<job::Job> WhatIf::read(const std::vector<std::string>& assignments) {
  std::vector<Assignment> parsed;
  for (const std::string& text : assignments) {
    TRIFOLD_ASSIGN(a, parse_assignment(text));
    parsed.push_back(std::move(a));
  }
  std::vector<const Assignment*> pointers;
  for (const Assignment& a : parsed) pointers.push_back(&a);
  return read(pointers);
}

Result<WhatIf::Priced*> WhatIf::priced(const job::Job& job) {
  const std::string name = job.profile.empty() ? job.cluster.profile : job.profile;
  const auto key = std::make_pair(job.cluster_origin.fingerprint, name);
  const auto found = priced_.find(key);
  if (found != priced_.end()) return found->second.get();
  std::shared_ptr<const hardware::Profile> profile = profile_;
  const std::string base_name = base_.profile.empty() ? base_.cluster.profile : base_.profile;
  if (name != base_name) {
    TRIFOLD_ASSIGN(other, hardware::load_profile(name, data_dir_));
    profile = std::make_shared<const hardware::Profile>(std::move(other));
  }
  double ratio = job.cluster.scaleup_bandwidth.value() / nominal_scaleup_;
  if (job.cluster_origin.name != base_.cluster_origin.name) {
    TRIFOLD_ASSIGN(own, hardware::scaleup_ratio(job.cluster, job.cluster_origin.name, data_dir_));
    ratio = own;
  }
  if (std::abs(ratio - 1) > 1e-12)
    profile = std::make_shared<const hardware::Profile>(hardware::rescaled(*profile, ratio));
  if (priced_.size() >= kMostCached) priced_.clear();
  const auto kept = std::make_shared<Priced>(job.cluster, profile);
  priced_.emplace(key, kept);
  return kept.get();
}

Result<void> WhatIf::evaluate(const job::Job& job, Point& out) {
  out.job = job;
  out.status = PointStatus::illegal;
  out.verdict = job::check(job, job::Runtime::any);
  if (!out.verdict.legal()) return {};
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
  TRIFOLD_ASSIGN(pricing, priced(job));
  pricing->estimator.evaluate(job, pipeline, out.estimate);
  out.verdict = job::check(job, pipeline, job::Runtime::megatron);
  out.status = !out.estimate.memory.fits() ? PointStatus::out_of_memory
               : out.verdict.legal()       ? PointStatus::fits
                                           : PointStatus::not_launchable;
  return {};
}

Query query_of(const job::Job& job) {
  Query query;
  query.model = job.model;
  query.cluster = job.cluster;
  query.profile = job.profile;
  query.gpus = job.gpus;
  query.training = job.training;
  query.routing = job.techniques.routing;
  // BF16 moments of the base stay; FP32 ones may be narrowed.
  query.optimizer_precision = job.training.optimizer.moments == job::StateType::fp32
                                  ? OptimizerPrecision::automatic
                                  : OptimizerPrecision::fp32;
  query.best = 1;
  return query;
}

namespace {

// Holds the varied field at the point's value; false where the search has no such pin.
bool pin(const std::string& key, const job::Job& job, Query& query) {
  Pins& p = query.pins;
  const layout::Layout& l = job.layout;
  if (key == "layout.tp") return p.tp = {l.tp}, true;
  if (key == "layout.ulysses_sp") return p.ulysses_sp = {l.ulysses_sp}, true;
  if (key == "layout.cp") return p.cp = {l.cp}, true;
  if (key == "layout.pp") return p.pp = {l.pp}, true;
  if (key == "layout.vpp") return p.vpp = {l.vpp}, true;
  if (key == "layout.ep") return p.ep = {l.ep}, true;
  if (key == "layout.etp") return p.etp = {l.etp}, true;
  if (key == "layout.fsdp") return p.fsdp = l.fsdp, true;
  if (key == "training.micro_batch_size")
    return p.micro_batch_size = {static_cast<int>(job.training.micro_batch_size)}, true;
  if (key == "techniques.dispatcher") return p.dispatcher = {job.techniques.dispatcher}, true;
  if (key == "techniques.recompute") return p.recompute = job.techniques.recompute, true;
  return starts_with(key, "techniques.routing") || starts_with(key, "training.") ||
         touches_parts(key) || key == "gpus" || key == "profile";
}

}  // namespace

Result<Point> WhatIf::plan_point(const std::vector<Axis>& axes, const job::Job& job) {
  Query query = query_of(job);
  if (!job::check(base_).legal()) query.runtime = job::Runtime::any;
  for (const Axis& axis : axes)
    if (!pin(axis.key, job, query))
      return usage(fmt::format("--replan chooses {} itself", axis.key),
                   "vary a layout axis, the dispatcher, recompute, or leave --replan out");
  TRIFOLD_ASSIGN(pricing, priced(job));
  TRIFOLD_ASSIGN(result, planner::plan(query, *pricing->profile));
  Point point;
  if (!result.plans.empty()) {
    job::Job best = std::move(result.plans.front().job);
    best.model_origin = job.model_origin;
    best.cluster_origin = job.cluster_origin;
    TRIFOLD_TRY(evaluate(best, point));
    return point;
  }
  TRIFOLD_TRY(evaluate(job, point));
  if (point.status != PointStatus::illegal) {
    point.status = PointStatus::out_of_memory;
    point.verdict = {};
  }
  return point;
}

Result<std::vector<Point>> WhatIf::each(const std::vector<Axis>& axes, bool replan) {
  std::vector<std::vector<Assignment>> values(axes.size());
  std::size_t total = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (axes[j].key == axes[i].key)
        return usage(fmt::format("{} varies twice", axes[i].key), "give all its values at once");
    for (const std::string& value : axes[i].values) {
      TRIFOLD_ASSIGN(a, parse_assignment(axes[i].key + "=" + value));
      values[i].push_back(std::move(a));
    }
    total *= axes[i].values.size();
    if (total > kMostPoints)
      return usage(fmt::format("more than {} points", kMostPoints), "vary fewer values");
  }
  std::vector<Point> points;
  points.reserve(total);
  std::vector<const Assignment*> chosen(axes.size());
  for (std::size_t n = 0; n < total; ++n) {
    std::vector<std::string> words(axes.size());
    std::size_t rest = n;
    for (std::size_t i = axes.size(); i-- > 0;) {
      const std::size_t at = rest % values[i].size();
      rest /= values[i].size();
      chosen[i] = &values[i][at];
      words[i] = axes[i].values[at];
    }
    TRIFOLD_ASSIGN(job, read(chosen));
    Point point;
    if (replan) {
      TRIFOLD_ASSIGN(planned, plan_point(axes, job));
      point = std::move(planned);
    } else {
      TRIFOLD_TRY(evaluate(job, point));
    }
    point.values = std::move(words);
    points.push_back(std::move(point));
  }
  return points;
}

Result<std::vector<Point>> WhatIf::sweep(const std::vector<Axis>& axes) {
  return each(axes, false);
}
Result<std::vector<Point>> WhatIf::replan(const std::vector<Axis>& axes) {
  return each(axes, true);
}

}  // namespace trifold::planner

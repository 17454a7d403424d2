// SPDX-License-Identifier: Apache-2.0
#include "report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "base/table.h"
#include "hardware/rescaled.h"
#include "planner/explain.h"
#include "planner/ladder.h"
#include "planner/sensitivity.h"
#include "planner/whatif.h"
#include "report/estimate_text.h"
#include "report/ladder_text.h"
#include "report/page_parts.h"
#include "report/whatif_text.h"

namespace trifold::report {

namespace {

using planner::Axis;
using planner::Point;
using planner::PointStatus;
using planner::WhatIf;

constexpr std::size_t kMostNeighbours = 60;
constexpr std::size_t kMostWhatIf = 120;  // as candidates; the what-if's own table has them all

template <class E, std::size_t N>
Json words(const Token<E> (&table)[N]) {
  Json list = Json::array();
  for (const Token<E>& token : table) list.push_back(token.name);
  return list;
}

template <class E, std::size_t N>
Json words(const Token<E> (&table)[N], EnumSet<E> set) {
  Json list = Json::array();
  for (const Token<E>& token : table)
    if (set.contains(token.value)) list.push_back(token.name);
  return list;
}

// The Job with model and cluster written whole.
Json inline_job(const job::Job& job) {
  job::Job whole = job;
  whole.model_origin = {};
  whole.cluster_origin = {};
  return job::to_json(whole);
}

Json axes_json(const job::Job& job) {
  const layout::Layout& l = job.layout;
  return {{"tp", l.tp},
          {"cp", l.cp * l.ulysses_sp},
          {"pp", l.pp},
          {"vpp", l.vpp},
          {"ep", l.ep},
          {"etp", l.etp},
          {"dp", job.gpus / std::max(1, l.dense_model_size())},
          {"edp", job.gpus / std::max(1, l.expert_model_size())},
          {"micro_batch_size", job.training.micro_batch_size}};
}

void put_numbers(const Point& p, Json& json) {
  const estimate::Estimate& e = p.estimate;
  json["step_time_s"] = {{"value", e.step_time_s}, {"low", e.low_s}, {"high", e.high_s}};
  json["tokens_per_s_per_gpu"] = e.tokens_per_s_per_gpu;
  json["tflops_per_gpu"] = e.tflops_per_gpu;
  json["mfu"] = e.mfu;
  json["peak_bytes"] = e.memory.peak.value();
  json["headroom_bytes"] = e.memory.headroom.value();
  Json exposed, total;
  double communication = 0;
  for (std::size_t i = 0; i < estimate::kComms; ++i) {
    exposed[estimate::kCommNames[i]] = e.time.exposed[i];
    total[estimate::kCommNames[i]] = e.communication[i].total_s;
    communication += e.time.exposed[i];
  }
  json["walls_s"] = {{"compute", e.time.compute},
                     {"recompute", e.time.recompute},
                     {"communication", communication},
                     {"bubble", e.time.bubble},
                     {"host", e.time.host},
                     {"optimizer", e.time.optimizer}};
  json["exposed_s"] = exposed;
  json["total_s"] = total;
  json["wall"] = token_name(planner::kWalls, planner::binding_wall(e));
}

Json candidate_json(const std::string& label, const char* group, const Point& p, double best_high) {
  Json json = {{"id", job::job_id(p.job)},
               {"label", label},
               {"group", group},
               {"layout", layout_text(p.job)},
               {"techniques", techniques_text(p.job)},
               {"axes", axes_json(p.job)},
               {"status", token_name(planner::kPointStatuses, p.status)},
               {"reason", planner::reason_of(p)}};
  for (const char* key :
       {"step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "peak_bytes",
        "headroom_bytes", "walls_s", "exposed_s", "total_s", "wall"})
    json[key] = nullptr;
  if (p.evaluated()) put_numbers(p, json);
  json["tie"] = p.evaluated() && p.estimate.memory.fits() && p.estimate.low_s <= best_high;
  return json;
}

std::string label_of(const std::string& key) {
  std::string text = key.substr(key.rfind('.') + 1);
  if (text == "scaleout_bytes_per_s") return "NIC bandwidth";
  if (text == "scaleup_bytes_per_s") return "NVLink bandwidth";
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

class Candidates {
 public:
  Candidates(WhatIf& what_if, const PageInput& input) : what_if_(what_if), input_(input) {}

  Result<Json> take() {
    Point shown;
    TRIFOLD_TRY(price(input_.job, shown));
    high_ = shown.estimate.high_s;
    list_.push_back(candidate_json("shown", "plan", shown, high_));
    list_.back()["tie"] = false;
    ids_.push_back(list_.back()["id"].get<std::string>());
    TRIFOLD_TRY(add_plans("plans", "plan"));
    TRIFOLD_TRY(add_plans("not_launchable", "not launchable"));
    TRIFOLD_TRY(add_plans("geometries", "geometry"));
    TRIFOLD_TRY(add_whatif());
    TRIFOLD_TRY(add_neighbours());
    return std::move(list_);
  }

 private:
  // The profile is the shown Job's, rescaled to its links: rates are relative to those.
  Result<void> price(job::Job job, Point& out) {
    job.cluster_origin.name.clear();
    return what_if_.evaluate(job, out);
  }

  Result<void> add(const std::string& label, const char* group, const job::Job& job) {
    Point point;
    TRIFOLD_TRY(price(job, point));
    Json json = candidate_json(label, group, point, high_);
    const std::string id = json["id"].get<std::string>();
    if (std::find(ids_.begin(), ids_.end(), id) != ids_.end()) return {};
    ids_.push_back(id);
    list_.push_back(std::move(json));
    return {};
  }

  Result<void> add_plans(const char* key, const char* group) {
    if (!input_.plans.is_object() || !input_.plans.contains(key)) return {};
    int number = 0;
    for (const Json& entry : input_.plans[key]) {
      ++number;
      const auto job = entry.find("job");
      if (job == entry.end()) continue;
      TRIFOLD_ASSIGN(read, job::read_job(*job, "plans", {input_.data_dir, true}));
      const std::string name = entry.value("name", fmt::format("{} {}", group, number));
      TRIFOLD_TRY(add(name, group, read));
    }
    return {};
  }

  Result<void> add_whatif() {
    if (!input_.whatif.is_object() || !input_.whatif.contains("points")) return {};
    const Json& base = input_.whatif["base"]["job"];
    TRIFOLD_ASSIGN(other, WhatIf::make(base, "what-if", input_.data_dir));
    std::size_t count = 0;
    for (const Json& entry : input_.whatif["points"]) {
      if (++count > kMostWhatIf) break;
      std::vector<std::string> assignments;
      std::string label;
      for (const auto& item : entry["vary"].items()) {
        const std::string value = item.value().get<std::string>();
        assignments.push_back(item.key() + "=" + value);
        label += (label.empty() ? "" : ", ") + label_of(item.key()) + " " + value;
      }
      const auto planned = entry.find("job");
      TRIFOLD_ASSIGN(job, planned != entry.end()
                              ? job::read_job(*planned, "what-if", {input_.data_dir, true})
                              : other.read(assignments));
      TRIFOLD_TRY(add(label, "what-if", job));
    }
    return {};
  }

  // What one change would reach, and why some of it falls.
  Result<void> add_neighbours() {
    std::size_t count = 0;
    for (const planner::Move& move : planner::moves(input_.job)) {
      if (count >= kMostNeighbours) break;
      job::Job job = input_.job;
      move.apply(job);
      if (move.layout)
        planner::recut(
            job, job.layout.pp != input_.job.layout.pp || job.layout.vpp != input_.job.layout.vpp);
      Point point;
      TRIFOLD_TRY(price(job, point));
      const bool holds =
          point.status == PointStatus::fits || point.status == PointStatus::not_launchable;
      ++count;
      list_.push_back(candidate_json(move.name, holds ? "neighbour" : "rejected", point, high_));
    }
    return {};
  }

  WhatIf& what_if_;
  const PageInput& input_;
  Json list_ = Json::array();
  std::vector<std::string> ids_;
  double high_ = 0;
};

std::vector<std::string> strings(const std::vector<std::int64_t>& values) {
  std::vector<std::string> out;
  for (std::int64_t v : values) out.push_back(fmt::format("{}", v));
  return out;
}

std::vector<std::int64_t> expert_sizes(const job::Job& job) {
  std::vector<std::int64_t> out;
  for (std::int64_t d : divisors(std::max<std::int64_t>(1, job.model.moe.experts)))
    if (d <= job.gpus / job.layout.pp) out.push_back(d);
  return out;
}

std::vector<std::int64_t> pipeline_sizes(const job::Job& job) {
  std::vector<std::int64_t> out;
  for (std::int64_t d : divisors(job.gpus))
    if (d <= job.model.num_layers() && (is_power_of_two(d) || d == job.layout.pp)) out.push_back(d);
  return out;
}

std::vector<std::string> scaled_rate(double rate) {
  std::vector<std::string> out;
  for (double f : {0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0})
    out.push_back(fmt::format("{:.0f}", rate * f));
  return out;
}

std::vector<Axis> sweep_axes(const job::Job& job) {
  std::vector<Axis> axes;
  if (job.model.is_moe()) axes.push_back({"layout.ep", strings(expert_sizes(job))});
  axes.push_back({"layout.pp", strings(pipeline_sizes(job))});
  axes.push_back({"training.micro_batch_size", strings({1, 2, 4, 8})});
  std::vector<std::int64_t> lengths;
  for (std::int64_t s = std::max<std::int64_t>(1024, job.training.sequence_length / 4);
       s <= job.training.sequence_length * 8; s *= 2)
    lengths.push_back(s);
  axes.push_back({"training.sequence_length", strings(lengths)});
  axes.push_back({"cluster_overrides.scaleout_bytes_per_s",
                  scaled_rate(job.cluster.scaleout_bandwidth.value())});
  axes.push_back({"cluster_overrides.scaleup_bytes_per_s",
                  scaled_rate(job.cluster.scaleup_bandwidth.value())});
  return axes;
}

Json sweep_point(const std::string& value, const Point& p) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  Json json = {{"value", *end == '\0' ? Json(number) : Json(value)},
               {"status", token_name(planner::kPointStatuses, p.status)},
               {"reason", planner::reason_of(p)}};
  for (const char* key : {"step_time_s", "low_s", "high_s", "ep_total_share", "ep_exposed_share",
                          "communication_exposed_share", "bubble_share", "peak_bytes",
                          "headroom_bytes", "tokens_per_s_per_gpu"})
    json[key] = nullptr;
  if (!p.evaluated()) return json;
  const estimate::Estimate& e = p.estimate;
  double exposed = 0;
  for (double s : e.time.exposed) exposed += s;
  json["step_time_s"] = e.step_time_s, json["low_s"] = e.low_s, json["high_s"] = e.high_s;
  json["ep_total_share"] = e.communication[0].total_s / e.step_time_s;
  json["ep_exposed_share"] = e.communication[0].exposed_s / e.step_time_s;
  json["communication_exposed_share"] = exposed / e.step_time_s;
  json["bubble_share"] = e.time.bubble / e.step_time_s;
  json["peak_bytes"] = e.memory.peak.value();
  json["headroom_bytes"] = e.memory.headroom.value();
  json["tokens_per_s_per_gpu"] = e.tokens_per_s_per_gpu;
  return json;
}

const char* unit_of(const std::string& key) {
  if (key.find("bytes_per_s") != std::string::npos) return "bytes/s";
  return key.find("sequence_length") != std::string::npos ? "tokens" : "";
}

Result<Json> sweeps_json(WhatIf& what_if, const job::Job& job) {
  Json sweeps = Json::array();
  for (const Axis& axis : sweep_axes(job)) {
    TRIFOLD_ASSIGN(points, what_if.sweep({axis}));
    Json list = Json::array();
    for (const Point& p : points) list.push_back(sweep_point(p.values.front(), p));
    sweeps.push_back({{"key", axis.key},
                      {"label", label_of(axis.key)},
                      {"unit", unit_of(axis.key)},
                      {"points", list}});
  }
  return sweeps;
}

Result<Json> heatmap_json(WhatIf& what_if, const job::Job& job) {
  if (!job.model.is_moe()) return Json(nullptr);
  const std::vector<std::int64_t> x = expert_sizes(job), y = pipeline_sizes(job);
  TRIFOLD_ASSIGN(points, what_if.sweep({{"layout.pp", strings(y)}, {"layout.ep", strings(x)}}));
  Json cells = Json::array();
  for (const Point& p : points)
    cells.push_back({{"x", std::stoll(p.values[1])},
                     {"y", std::stoll(p.values[0])},
                     {"step_time_s", p.evaluated() ? Json(p.estimate.step_time_s) : Json(nullptr)},
                     {"headroom_bytes",
                      p.evaluated() ? Json(p.estimate.memory.headroom.value()) : Json(nullptr)},
                     {"status", token_name(planner::kPointStatuses, p.status)},
                     {"reason", planner::reason_of(p)}});
  return Json{{"x_key", "layout.ep"}, {"y_key", "layout.pp"}, {"x", x}, {"y", y}, {"cells", cells}};
}

class Controls {
 public:
  explicit Controls(const job::Job& job) : job_(job) {}

  Json take() {
    layout_choices();
    technique_choices();
    rate("cluster_overrides.scaleout_bytes_per_s", job_.cluster.scaleout_bandwidth.value());
    rate("cluster_overrides.scaleup_bytes_per_s", job_.cluster.scaleup_bandwidth.value());
    if (job_.model.is_moe()) skew();
    technique_sets();
    return std::move(list_);
  }

 private:
  void choice(const char* key, const std::string& label, Json values, Json value) {
    list_.push_back({{"key", key},
                     {"label", label},
                     {"kind", "choice"},
                     {"values", std::move(values)},
                     {"value", std::move(value)}});
  }
  void rate(const char* key, double value) {
    list_.push_back({{"key", key},
                     {"label", label_of(key)},
                     {"kind", "range"},
                     {"low", value / 4},
                     {"high", value * 4},
                     {"value", value},
                     {"unit", "bytes/s"}});
  }
  void layout_choices() {
    const layout::Layout& l = job_.layout;
    if (job_.model.is_moe()) choice("layout.ep", "EP", expert_sizes(job_), l.ep);
    choice("layout.tp", "TP", {1, 2, 4, 8}, l.tp);
    choice("layout.pp", "PP", pipeline_sizes(job_), l.pp);
    choice("layout.cp", "CP", {1, 2, 4, 8, 16}, l.cp);
    choice("training.micro_batch_size", "micro batch", {1, 2, 4, 8},
           job_.training.micro_batch_size);
    choice("training.sequence_length", "sequence length",
           {2048, 4096, 8192, 16384, 32768, 65536, 131072}, job_.training.sequence_length);
  }
  void technique_choices() {
    const job::Techniques& t = job_.techniques;
    Json precisions = Json::array();
    for (const auto& token : job::kPrecisions)
      if (job_.cluster.gpu.peak(job::gemm_dtype(token.value)).value() > 0)
        precisions.push_back(token.name);
    choice("training.precision", "precision", precisions,
           token_name(job::kPrecisions, job_.training.precision));
    if (job_.model.is_moe())
      choice("techniques.dispatcher", "dispatcher", words(job::kDispatchers),
             token_name(job::kDispatchers, t.dispatcher));
  }
  void technique_sets() {
    const job::Techniques& t = job_.techniques;
    list_.push_back({{"key", "techniques.recompute"},
                     {"label", "recompute"},
                     {"kind", "set"},
                     {"values", words(job::kRecomputes)},
                     {"value", words(job::kRecomputes, t.recompute)}});
    list_.push_back({{"key", "techniques.overlap"},
                     {"label", "overlap"},
                     {"kind", "set"},
                     {"values", words(job::kOverlaps)},
                     {"value", words(job::kOverlaps, t.overlap)}});
  }
  void skew() {
    const job::Routing& r = job_.techniques.routing;
    const bool zipf = r.distribution == job::LoadDistribution::zipf && !r.parameters.empty();
    list_.push_back({{"key", "techniques.routing.parameters"},
                     {"label", "routing skew (Zipf exponent)"},
                     {"kind", "range"},
                     {"low", 0},
                     {"high", 1.5},
                     {"value", zipf ? r.parameters.front() : 0.0},
                     {"unit", ""},
                     {"with", {"techniques.routing.distribution=zipf"}}});
  }

  const job::Job& job_;
  Json list_ = Json::array();
};

Json confidence_json(const estimate::Estimate& e) {
  Json basis;
  std::string text = "80 % interval of the step time; costs known as";
  bool first = true;
  for (const auto& token : hardware::kBases) {
    const double share = e.basis_share[static_cast<std::size_t>(token.value)];
    basis[std::string(token.name)] = share;
    text += fmt::format("{} {} {:.0f} %", first ? "" : ",", token.name, 100 * share);
    first = false;
  }
  return {{"sigma", e.sigma},
          {"interval", {e.low_s, e.high_s}},
          {"basis_share", basis},
          {"text", text}};
}

Json provenance_json(const PageInput& input, const hardware::Profile& profile) {
  const hardware::Provenance& p = profile.provenance;
  return {{"version", TRIFOLD_VERSION},
          {"command", input.command},
          {"job_id", job::job_id(input.job)},
          {"model", input.job.model.name},
          {"model_source", input.job.model.source},
          {"cluster", input.job.cluster.name},
          {"profile", profile.name},
          {"profile_source",
           {{"gpu", p.gpu},
            {"driver", p.driver},
            {"cuda", p.cuda},
            {"nccl", p.nccl},
            {"date", p.date},
            {"source", p.source},
            {"commit", p.commit}}}};
}

}  // namespace

Result<Json> page_data(const PageInput& input, const hardware::Profile& nominal) {
  const job::Job& job = input.job;
  TRIFOLD_ASSIGN(ratio,
                 hardware::scaleup_ratio(job.cluster, job.cluster_origin.name, input.data_dir));
  const hardware::Profile profile = hardware::rescaled(nominal, ratio);
  const Json whole = inline_job(job);
  TRIFOLD_ASSIGN(what_if, WhatIf::make(whole, "page", profile));
  Point shown;
  TRIFOLD_TRY(what_if.evaluate(what_if.base(), shown));
  if (!shown.evaluated())
    return Error{ErrorCode::infeasible, "this layout cannot run: " + planner::reason_of(shown),
                 "report", ""};
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
  TRIFOLD_ASSIGN(candidates, Candidates(what_if, input).take());
  TRIFOLD_ASSIGN(sweeps, sweeps_json(what_if, job));
  TRIFOLD_ASSIGN(heatmap, heatmap_json(what_if, job));
  TRIFOLD_ASSIGN(ladder, planner::climb(job, nullptr, profile));
  Simulated simulated = simulated_json(job, pipeline, profile, input.most_slices);
  const memory::Memory& memory = shown.estimate.memory;
  Json estimate = estimate::to_json(shown.estimate, job);
  const Json stages = estimate["memory"]["stages"];
  const std::string title =
      !input.title.empty()
          ? input.title
          : fmt::format("{} on {} x {}", job.model.name, thousands(job.gpus), job.cluster.name);
  return Json{{"schema", "trifold.page/1"},
              {"title", title},
              {"provenance", provenance_json(input, profile)},
              {"inputs",
               {{"job", whole},
                {"profile", hardware::to_json(profile)},
                {"fields", job::settable_fields()}}},
              {"estimate", std::move(estimate)},
              {"candidates", std::move(candidates)},
              {"timeline", std::move(simulated.timeline)},
              {"memory",
               {{"capacity_bytes", memory.capacity.value()},
                {"stages", stages},
                {"curves", std::move(simulated.curves)},
                {"terms", terms_json(job, pipeline, memory.worst_stage)}}},
              {"sweeps", std::move(sweeps)},
              {"heatmap", std::move(heatmap)},
              {"icicle", icicle_json(job, pipeline, memory)},
              {"ranks", ranks_json(job)},
              {"ladder", ladder_json(ladder)},
              {"sensitivity", sensitivity_json(planner::sensitivity(job, profile))},
              {"controls", Controls(job).take()},
              {"whatif", input.whatif},
              {"confidence", confidence_json(shown.estimate)}};
}

}  // namespace trifold::report

// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.h"

namespace trifold::timeline {
namespace {

Json parts_json(const estimate::Time& p) {
  Json exposed = Json::object();
  for (std::size_t i = 0; i < kComms; ++i)
    exposed[std::string(estimate::kCommNames[i]) + "_s"] = p.exposed[i];
  return {{"compute_s", p.compute}, {"recompute_s", p.recompute}, {"bubble_s", p.bubble},
          {"host_s", p.host},       {"optimizer_s", p.optimizer}, {"exposed", exposed}};
}

Json path_json(const PathShare& path) {
  Json out = Json::object();
  for (int i = 0; i < schedule::kCategories; ++i)
    out[std::string(schedule::kCategoryNames[i]) + "_s"] =
        path.by_category[static_cast<std::size_t>(i)];
  for (std::size_t i = 0; !layer::is_communication(static_cast<layer::Family>(i)); ++i)
    out["compute_by_family"][std::string(layer::kFamilyNames[i]) + "_s"] = path.by_family[i];
  out["waiting_s"] = path.waiting_s;
  return out;
}

Json timeline_json(const Timeline& t) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < t.stages.size(); ++i) {
    const StageTimeline& s = t.stages[i];
    Json comm = Json::object();
    for (int k = 0; k < kComms; ++k)
      comm[std::string(estimate::kCommNames[k]) + "_s"] =
          s.communication[static_cast<std::size_t>(k)];
    stages.push_back({{"stage", i},
                      {"time", parts_json(s.time)},
                      {"communication", comm},
                      {"end_s", s.end_s},
                      {"peak_bytes", s.peak.value()},
                      {"peak_at_s", s.peak_s},
                      {"peak_units", s.peak_units}});
  }
  return {{"tasks", t.tasks},
          {"slowest_stage", t.slowest_stage},
          {"hidden_share", t.hidden_share},
          {"ep_hidden_share", t.ep_hidden_share},
          {"critical_path", path_json(t.critical_path)},
          {"stages", stages}};
}

}  // namespace

Json to_json(const Timeline& t, const job::Job& job, const estimate::Estimate& closed_form) {
  Json json = estimate::to_json(as_estimate(t, closed_form), job);
  json["method"] = "simulation";
  json["step_time_s"]["closed_form"] = closed_form.step_time_s;
  json["timeline"] = timeline_json(t);
  return json;
}

}  // namespace trifold::timeline

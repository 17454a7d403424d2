// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.h"

namespace trifold::timeline {
namespace {

Json parts_json(const Parts& p) {
  Json exposed = Json::object();
  for (int i = 0; i < kComms; ++i)
    exposed[std::string(kCommNames[i]) + "_s"] = p.exposed[static_cast<std::size_t>(i)];
  return {{"compute_s", p.compute}, {"recompute_s", p.recompute}, {"bubble_s", p.bubble},
          {"host_s", p.host},       {"optimizer_s", p.optimizer}, {"exposed", exposed}};
}

Json path_json(const PathShare& path) {
  Json out = Json::object();
  for (int i = 0; i < schedule::kCategories; ++i)
    out[std::string(schedule::kCategoryNames[i]) + "_s"] =
        path.by_category[static_cast<std::size_t>(i)];
  static constexpr const char* kFamilyNames[layer::kFamilies] = {
      "gemm", "grouped_gemm", "attention", "memory_bound", "quantize", "tp", "cp", "ep"};
  for (int i = 0; i < layer::kFamilies && i < 5; ++i)
    out["compute_by_family"][std::string(kFamilyNames[i]) + "_s"] =
        path.by_family[static_cast<std::size_t>(i)];
  out["waiting_s"] = path.waiting_s;
  return out;
}

}  // namespace

Json to_json(const Timeline& t) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < t.stages.size(); ++i) {
    const StageTimeline& s = t.stages[i];
    Json comm = Json::object();
    for (int k = 0; k < kComms; ++k)
      comm[std::string(kCommNames[k]) + "_s"] = s.communication[static_cast<std::size_t>(k)];
    stages.push_back({{"stage", i},
                      {"time", parts_json(s.time)},
                      {"communication", comm},
                      {"end_s", s.end_s},
                      {"peak_bytes", s.peak.value()},
                      {"peak_at_s", s.peak_s},
                      {"peak_units", s.peak_units}});
  }
  return {{"step_time_s", {{"value", t.step_time_s}, {"basis", "simulated"}}},
          {"time", parts_json(t.time())},
          {"timeline",
           {{"tasks", t.tasks},
            {"slowest_stage", t.slowest_stage},
            {"hidden_share", t.hidden_share},
            {"ep_hidden_share", t.ep_hidden_share},
            {"critical_path", path_json(t.critical_path)},
            {"stages", stages}}}};
}

}  // namespace trifold::timeline

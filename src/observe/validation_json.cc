// SPDX-License-Identifier: Apache-2.0
#include "observe/validate.h"

namespace trifold::observe {

Json to_json(const std::vector<Row>& rows, const std::vector<Skipped>& skipped) {
  Json list = Json::array();
  for (const Row& row : rows) {
    if (!row.usable) continue;
    const Observation& o = *row.observation;
    Json measured = Json::object();
    const Measured& m = o.measured;
    if (m.tokens_per_s_per_gpu) measured["tokens_per_s_per_gpu"] = *m.tokens_per_s_per_gpu;
    if (m.tflops_per_gpu) measured["tflops_per_gpu"] = *m.tflops_per_gpu;
    if (m.step_time_s) measured["step_time_s"] = *m.step_time_s;
    if (m.mfu_percent) measured["mfu_percent"] = *m.mfu_percent;
    if (m.allocated_bytes) measured["peak_memory_bytes"] = *m.allocated_bytes;
    if (m.out_of_memory) measured["out_of_memory"] = true;
    Json item = {
        {"id", o.id},
        {"predicted",
         {{"step_time_s", row.step_time_s},
          {"tokens_per_s_per_gpu", row.tokens_per_s_per_gpu},
          {"tflops_per_gpu", row.tflops_per_gpu},
          {"peak_memory_bytes", row.peak_bytes}}},
        {"measured", measured},
        {"relative_error", row.has_error ? Json(row.relative_error) : Json()},
        {"memory_relative_error", row.has_memory_error ? Json(row.memory_relative_error) : Json()},
        {"in_interval", row.in_interval}};
    if (!o.unknown.empty()) item["relative_error_range"] = {row.low_error, row.high_error};
    list.push_back(item);
  }
  Json skips = Json::array();
  for (const Skipped& s : skipped) skips.push_back({{"id", s.id}, {"reason", s.reason}});
  for (const Row& row : rows)
    if (!row.usable) skips.push_back({{"id", row.observation->id}, {"reason", row.reason}});
  const Summary s = summarize(scored(rows));
  return {{"schema", "trifold.validation/1"},
          {"rows", list},
          {"summary",
           {{"count", s.count},
            {"mean_absolute_error", s.mean_absolute_error},
            {"median_absolute_error", s.median_absolute_error},
            {"p90_absolute_error", s.p90_absolute_error},
            {"bias", s.bias},
            {"interval_coverage", s.interval_coverage}}},
          {"skipped", skips}};
}

}  // namespace trifold::observe

// SPDX-License-Identifier: Apache-2.0

// Groups are records of one model, cluster, GPU count, precision and sequence length from one
// source family; their order by measured throughput is compared with the predicted one. Identical
// Jobs are collapsed to their mean.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "observe/validate.h"

namespace trifold::observe {

namespace {

struct Entry {
  double measured = 0, predicted = 0;  // tokens/s/GPU
};

std::string group_key(const Observation& o) {
  return fmt::format("{}|{}|{}|{}|{}|{}", o.model_name, o.job.cluster.name, o.job.gpus,
                     static_cast<int>(o.job.training.precision), o.job.training.sequence_length,
                     o.job.training.global_batch_size);
}

}  // namespace

Ranking rank(const std::vector<Row>& rows) {
  std::map<std::string, std::map<std::string, std::vector<Entry>>> groups;
  for (const Row& row : rows) {
    if (!row.usable || !row.has_error || row.observation->quality == Quality::known_regression)
      continue;
    const double predicted = row.tokens_per_s_per_gpu;
    const Entry entry{predicted / (1 + row.relative_error), predicted};
    groups[group_key(*row.observation)][job::job_id(row.observation->job)].push_back(entry);
  }
  Ranking r;
  for (const auto& [key, jobs] : groups) {
    std::vector<Entry> entries;
    for (const auto& [id, repeats] : jobs) {
      Entry mean;
      for (const Entry& e : repeats) mean.measured += e.measured, mean.predicted += e.predicted;
      mean.measured /= static_cast<double>(repeats.size());
      mean.predicted /= static_cast<double>(repeats.size());
      entries.push_back(mean);
    }
    if (entries.size() < 2) continue;
    ++r.groups;
    const auto by_measured = [](const Entry& a, const Entry& b) { return a.measured < b.measured; };
    const auto by_predicted = [](const Entry& a, const Entry& b) {
      return a.predicted < b.predicted;
    };
    const Entry& best = *std::max_element(entries.begin(), entries.end(), by_measured);
    const Entry& chosen = *std::max_element(entries.begin(), entries.end(), by_predicted);
    const double regret = 1 - chosen.measured / best.measured;
    r.best_found += regret <= 0;
    r.best_within_3_percent += chosen.predicted <= best.predicted * 1.03;
    r.mean_regret += regret;
    r.worst_regret = std::max(r.worst_regret, regret);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      for (std::size_t j = i + 1; j < entries.size(); ++j) {
        const double measured = std::log(entries[i].measured / entries[j].measured);
        const double predicted = std::log(entries[i].predicted / entries[j].predicted);
        const bool ordered = measured * predicted > 0;
        ++r.pairs, r.pairs_ordered += ordered;
        if (std::abs(measured) > std::log(1.05)) ++r.clear_pairs, r.clear_ordered += ordered;
      }
    }
  }
  if (r.groups > 0) r.mean_regret /= r.groups;
  return r;
}

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

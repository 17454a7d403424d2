// SPDX-License-Identifier: Apache-2.0
#include "observe/validation_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/table.h"
#include "observe/ranking.h"

namespace trifold::observe {

namespace {

std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

struct Throughput {
  std::string predicted, measured, unit;
};

// The figure the error is of; see throughput_ratio().
Throughput throughput_of(const Row& row) {
  const Observation& o = *row.observation;
  const double ratio = 1 + row.relative_error;
  const auto pair = [&](double measured, const char* unit, int digits) {
    return Throughput{fmt::format("{:.{}f}", measured * ratio, digits),
                      fmt::format("{:.{}f}", measured, digits), unit};
  };
  const Measured& m = o.measured;
  if (o.tokens_rounded && m.tflops_per_gpu) return pair(*m.tflops_per_gpu, "TFLOP/s", 0);
  if (m.tokens_per_s_per_gpu) return pair(*m.tokens_per_s_per_gpu, "tok/s", 0);
  if (m.tflops_per_gpu) return pair(*m.tflops_per_gpu, "TFLOP/s", 0);
  if (m.mfu_percent) return pair(*m.mfu_percent, "MFU %", 1);
  return {fmt::format("{:.3f}", row.step_time_s), fmt::format("{:.3f}", *m.step_time_s), "s"};
}

std::string note_of(const Row& row) {
  const Observation& o = *row.observation;
  if (!o.ladder.empty()) return "ladder " + o.ladder;
  if (!o.unknown.empty())
    return fmt::format("unknown fields: {} to {}", signed_percent(row.low_error),
                       signed_percent(row.high_error));
  if (o.quality != Quality::full) return std::string(token_name(kQualities, o.quality));
  return "";
}

std::string rows_table(const std::vector<Row>& rows) {
  Table table(
      {"Record", "GPUs", "predicted", "measured", "", "error", "in 80 %", "memory error", "note"});
  for (std::size_t column : {4u, 8u}) table.align(column, Table::Align::left);
  for (const Row& row : rows) {
    if (!row.usable) continue;
    Throughput t;
    if (row.has_error) t = throughput_of(row);
    table.add({row.observation->id, fmt::format("{}", row.observation->job.gpus), t.predicted,
               t.measured, t.unit, row.has_error ? signed_percent(row.relative_error) : "",
               row.has_error ? (row.in_interval ? "yes" : "no") : "",
               row.has_memory_error ? signed_percent(row.memory_relative_error) : "",
               note_of(row)});
  }
  return table.text();
}

void add_summary(Table& table, const std::string& name, const std::vector<const Row*>& rows) {
  const Summary s = summarize(rows);
  if (s.count == 0) return;
  table.add({name, fmt::format("{}", s.count), percent(s.mean_absolute_error),
             percent(s.median_absolute_error), percent(s.p90_absolute_error),
             signed_percent(s.worst), signed_percent(s.bias), percent(s.interval_coverage)});
}

std::string scale_of(int gpus) {
  if (gpus <= 8) return "up to 8 GPUs";
  if (gpus <= 64) return "9-64 GPUs";
  if (gpus <= 256) return "65-256 GPUs";
  return "over 256 GPUs";
}

std::string source_of(const Observation& o) {
  return o.source.substr(0, std::min<std::size_t>(44, o.source.find(" (")));
}

template <class Key>
void add_groups(Table& table, const std::vector<const Row*>& rows, const char* what, Key key) {
  std::map<std::string, std::vector<const Row*>> groups;
  for (const Row* row : rows) groups[key(*row->observation)].push_back(row);
  table.rule();
  for (const auto& [name, members] : groups)
    add_summary(table, std::string(what) + " " + name, members);
}

Table summary_table(const std::vector<Row>& rows, bool with_groups) {
  const std::vector<const Row*> counted = scored(rows);
  Table table({"Throughput error", "records", "mean", "median", "90th pct", "worst", "bias",
               "in interval"});
  add_summary(table, "settings stated", counted);
  const auto apart = [&](const char* name, auto keep) {
    std::vector<const Row*> chosen;
    for (const Row& row : rows)
      if (row.usable && row.has_error && keep(*row.observation)) chosen.push_back(&row);
    add_summary(table, name, chosen);
  };
  apart("apart: one node of one machine", [](const Observation& o) { return o.one_machine(); });
  apart("apart: ablation ladder", [](const Observation& o) { return !o.ladder.empty(); });
  apart("apart: from a table alone, all fields known",
        [](const Observation& o) { return o.quality == Quality::table && o.unknown.empty(); });
  apart("apart: fields left out", [](const Observation& o) { return !o.unknown.empty(); });
  apart("apart: rounded by the publisher",
        [](const Observation& o) { return o.quality == Quality::rounded; });
  apart("apart: known regressions",
        [](const Observation& o) { return o.quality == Quality::known_regression; });
  if (!with_groups) return table;
  add_groups(table, counted, "model", [](const Observation& o) { return o.model_name; });
  add_groups(table, counted, "on", [](const Observation& o) { return o.job.cluster.name; });
  add_groups(table, counted, "in", [](const Observation& o) {
    return std::string(token_name(job::kPrecisions, o.job.training.precision));
  });
  add_groups(table, counted, "by", [](const Observation& o) {
    return o.job.model.is_moe()
               ? std::string(token_name(job::kDispatchers, o.job.techniques.dispatcher))
               : "dense";
  });
  add_groups(table, counted, "with", [](const Observation& o) { return scale_of(o.job.gpus); });
  add_groups(table, counted, "from", source_of);
  return table;
}

std::string memory_summary(const std::vector<Row>& rows) {
  int count = 0, oom = 0, oom_seen = 0;
  double mean = 0, worst = 0;
  for (const Row& row : rows) {
    if (row.usable && row.observation->measured.out_of_memory)
      ++oom, oom_seen += row.headroom_bytes < 0;
    if (!row.has_memory_error || !row.usable) continue;
    ++count;
    mean += std::abs(row.memory_relative_error);
    if (std::abs(row.memory_relative_error) > std::abs(worst)) worst = row.memory_relative_error;
  }
  std::string text;
  if (count > 0)
    text += fmt::format("Allocated peak: {} records, mean {}, worst {}\n", count,
                        percent(mean / count), signed_percent(worst));
  if (oom > 0)
    text += fmt::format("Out of memory: {} of {} runs that died are predicted not to fit\n",
                        oom_seen, oom);
  return text;
}

// One factor a machine: the median ratio on every second record of a source that measured one
// machine, applied to the others, and the other way round.
std::string machine_factor(const std::vector<Row>& rows) {
  std::array<std::vector<double>, 2> halves;
  std::size_t next = 0;
  for (const Row& row : rows)
    if (row.usable && row.has_error && row.observation->one_machine())
      halves[next++ % 2].push_back(1 + row.relative_error);
  if (halves[1].empty()) return "";
  double raw = 0, corrected[2] = {};
  for (std::size_t half : {0, 1}) {
    std::vector<double> known = halves[1 - half];
    std::nth_element(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2),
                     known.end());
    const double factor = known[known.size() / 2];
    for (double r : halves[half]) raw += std::abs(1 / r - 1);
    for (double r : halves[half]) corrected[half] += std::abs(factor / r - 1);
  }
  const double n[] = {static_cast<double>(halves[0].size()), static_cast<double>(halves[1].size())};
  return fmt::format(
      "One B200 node (SimuMax's records), step time: raw mean {}, after one machine factor "
      "from the other half {} ({} and {} of the halves)\n",
      percent(raw / (n[0] + n[1])), percent((corrected[0] + corrected[1]) / (n[0] + n[1])),
      percent(corrected[0] / n[0]), percent(corrected[1] / n[1]));
}

}  // namespace

std::string validation_text(const std::vector<Row>& rows, const std::vector<Skipped>& skipped,
                            const TextOptions& options) {
  if (options.markdown) return summary_table(rows, false).markdown();
  std::string text = options.rows ? rows_table(rows) + "\n" : "";
  text += summary_table(rows, true).text() + "\n" + memory_summary(rows) + machine_factor(rows);
  const Ranking r = rank(ranked_groups(rows));
  if (r.groups > 0)
    text += fmt::format(
        "Ranking, {} groups that differ only in layout or technique: best picked in {}, "
        "within 3 % by measurement in {} (worst {}, mean {}); of {} groups with settings stated "
        "the fastest run's within 3 % of the best by prediction in {} (worst {}); "
        "pairs ordered {}/{}, of those more than 5 % apart {}/{}\n",
        r.groups, r.best_found, r.chosen_within_3_percent, percent(r.worst_regret),
        percent(r.mean_regret), r.stated_groups, r.best_within_3_percent,
        percent(r.worst_shortfall), r.pairs_ordered, r.pairs, r.clear_ordered, r.clear_pairs);
  std::map<std::string, int> reasons;
  for (const Skipped& s : skipped) ++reasons[s.reason];
  for (const Row& row : rows)
    if (!row.usable) ++reasons[row.reason];
  for (const auto& [reason, count] : reasons)
    text += fmt::format("skipped {}: {}\n", count, reason);
  return text;
}

}  // namespace trifold::observe

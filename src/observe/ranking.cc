// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "observe/ranking.h"

namespace trifold::observe {

namespace {

struct Entry {
  const Observation* observation = nullptr;
  double measured = 0, predicted = 0;  // tokens/s/GPU
  double fastest = 0;                  // measured, of the repeats
};

// Natural routing and dropped tokens belong to what is trained: no layout competes across them.
std::string group_name(const Observation& o) {
  const job::Routing& routing = o.job.techniques.routing;
  std::string name =
      fmt::format("{} on {} x {}, {}, sequence {}, batch {}", o.model_name, o.job.gpus,
                  o.job.cluster.name, token_name(job::kPrecisions, o.job.training.precision),
                  o.job.training.sequence_length, o.job.training.global_batch_size);
  if (routing.balance == job::Balance::natural) name += ", natural routing";
  if (routing.capacity_factor > 0) name += fmt::format(", capacity {}", routing.capacity_factor);
  return name;
}

Entry mean_of(const std::vector<Entry>& repeats) {
  Entry mean{repeats.front().observation};
  for (const Entry& e : repeats) {
    mean.measured += e.measured, mean.predicted += e.predicted;
    mean.fastest = std::max(mean.fastest, e.measured);
  }
  mean.measured /= static_cast<double>(repeats.size());
  mean.predicted /= static_cast<double>(repeats.size());
  return mean;
}

std::optional<double> shortfall_of(const std::vector<Entry>& entries) {
  const Entry *fastest = nullptr, *predicted = nullptr;
  int stated = 0;
  for (const Entry& e : entries) {
    if (!e.observation->settings_stated()) continue;
    ++stated;
    if (fastest == nullptr || e.fastest > fastest->fastest) fastest = &e;
    if (predicted == nullptr || e.predicted > predicted->predicted) predicted = &e;
  }
  if (stated < 2) return {};
  return 1 - fastest->predicted / predicted->predicted;
}

RankedGroup ranked(const std::string& name, const std::vector<Entry>& entries) {
  RankedGroup group;
  group.name = name;
  const Entry *best = &entries.front(), *chosen = best;
  for (const Entry& e : entries) {
    if (e.measured > best->measured) best = &e;
    if (e.predicted > chosen->predicted) chosen = &e;
  }
  group.best = best->observation;
  group.chosen = chosen->observation;
  group.regret = 1 - chosen->measured / best->measured;
  group.shortfall = shortfall_of(entries);
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = i + 1; j < entries.size(); ++j)
      group.pairs.push_back({entries[i].observation, entries[j].observation,
                             entries[i].measured / entries[j].measured,
                             entries[i].predicted / entries[j].predicted});
  return group;
}

}  // namespace

bool RankedPair::clear() const { return std::abs(std::log(measured)) > std::log(1.05); }

std::vector<RankedGroup> ranked_groups(const std::vector<Row>& rows) {
  std::map<std::string, std::map<std::string, std::vector<Entry>>> groups;
  for (const Row& row : rows) {
    const Observation& o = *row.observation;
    if (!row.usable || !row.has_error || o.quality == Quality::known_regression) continue;
    const double predicted = row.tokens_per_s_per_gpu;
    groups[group_name(o)][job::job_id(o.job)].push_back(
        {&o, predicted / (1 + row.relative_error), predicted});
  }
  std::vector<RankedGroup> list;
  for (const auto& [name, jobs] : groups) {
    std::vector<Entry> entries;
    for (const auto& [id, repeats] : jobs) entries.push_back(mean_of(repeats));
    if (entries.size() > 1) list.push_back(ranked(name, entries));
  }
  return list;
}

Ranking rank(const std::vector<RankedGroup>& groups) {
  Ranking r;
  r.groups = static_cast<int>(groups.size());
  for (const RankedGroup& group : groups) {
    r.best_found += group.regret <= 0;
    r.chosen_within_3_percent += group.regret <= 0.03;
    r.mean_regret += group.regret / r.groups;
    r.worst_regret = std::max(r.worst_regret, group.regret);
    if (group.shortfall) {
      ++r.stated_groups, r.best_within_3_percent += *group.shortfall <= 0.03;
      r.worst_shortfall = std::max(r.worst_shortfall, *group.shortfall);
    }
    for (const RankedPair& pair : group.pairs) {
      ++r.pairs, r.pairs_ordered += pair.ordered();
      if (pair.clear()) ++r.clear_pairs, r.clear_ordered += pair.ordered();
    }
  }
  return r;
}

}  // namespace trifold::observe

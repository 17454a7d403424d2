// SPDX-License-Identifier: Apache-2.0
#include "report/page_parts.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>

#include "layout/rank_grid.h"
#include "model/size.h"
#include "timeline/timeline.h"

namespace trifold::report {

namespace {

constexpr std::size_t kMostCurvePoints = 600;
constexpr int kMostRanks = 2048;
constexpr double kMostTasks = 4e6;  // of a simulation; beyond it fewer micro-batches are drawn
constexpr const char* kParts[] = {"weights", "gradients", "optimizer", "activations", "buffers"};
constexpr const char* kWorks[] = {"forward", "backward", "wgrad", "merged"};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Slice {
  int stage = 0, stream = 0, category = 0, work = 0, microbatch = 0, chunk = 0;
  const char* name = "";
  sim::Picoseconds start = 0, end = 0;
};

bool same_unit(const Slice& a, const Slice& b) {
  return a.stage == b.stage && a.stream == b.stream && a.microbatch == b.microbatch &&
         a.chunk == b.chunk && a.work == b.work;
}

// Neighbours of one unit become one slice: those of one category, or all of them (`whole`), which
// then carries the name of the pass. A gap above a tenth of the joined time keeps them apart.
std::vector<Slice> joined(const std::vector<Slice>& slices, bool whole) {
  std::vector<Slice> out;
  for (const Slice& s : slices) {
    if (!out.empty() && same_unit(out.back(), s) && (whole || out.back().category == s.category)) {
      Slice& last = out.back();
      if ((s.start - last.end) * 10 <= s.end - last.start) {
        last.end = s.end;
        last.name = whole ? kWorks[at(s.work)]
                          : schedule::kCategoryNames[static_cast<std::size_t>(s.category)];
        continue;
      }
    }
    out.push_back(s);
  }
  return out;
}

std::vector<Slice> slices_of(const timeline::Simulator& simulator) {
  const schedule::StepGraph& step = simulator.lowered().step;
  const sim::Outcome& outcome = simulator.outcome();
  std::vector<Slice> slices;
  for (sim::Index t = 0; t < step.graph.tasks(); ++t) {
    const int stage = step.graph.domain(t);
    const sim::Picoseconds start = outcome.start[at(t)], end = outcome.end[at(t)];
    if (stage >= step.stages || end - start < 1000) continue;
    const schedule::TaskInfo& info = step.tasks[at(t)];
    slices.push_back({stage, step.graph.stream(t) % schedule::kStreams,
                      static_cast<int>(info.op->category), static_cast<int>(info.work),
                      info.microbatch, info.chunk, info.op->name, start, end});
  }
  std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
    return std::tie(a.stage, a.stream, a.start, a.end) <
           std::tie(b.stage, b.stream, b.start, b.end);
  });
  return slices;
}

// The first and the last micro-batches of a step: filling and draining. What lies between repeats.
struct Ends {
  std::int64_t microbatches, shown;
  std::map<int, std::pair<sim::Picoseconds, sim::Picoseconds>> omitted = {};  // by stage

  bool holds(const Slice& s) const {
    return s.microbatch < (shown + 1) / 2 || s.microbatch >= microbatches - shown / 2;
  }
  void narrow(std::vector<Slice>& slices, std::size_t most) {
    const double share = static_cast<double>(most) / static_cast<double>(slices.size());
    shown = std::max<std::int64_t>(
        1, std::min(shown - 1, static_cast<std::int64_t>(share * static_cast<double>(shown))));
    for (const Slice& s : slices) {
      if (holds(s)) continue;
      auto& [from, to] = omitted.try_emplace(s.stage, s.start, s.end).first->second;
      from = std::min(from, s.start), to = std::max(to, s.end);
    }
    slices.erase(
        std::remove_if(slices.begin(), slices.end(), [this](const Slice& s) { return !holds(s); }),
        slices.end());
  }
  Json omitted_json(int stages) const {
    Json list = Json::array();
    for (int stage = 0; stage < stages; ++stage) {
      const auto it = omitted.find(stage);
      if (it == omitted.end()) return Json::array();
      list.push_back({sim::to_seconds(it->second.first), sim::to_seconds(it->second.second)});
    }
    return list;
  }
};

Json columns(const std::vector<Slice>& slices, Json& names) {
  std::map<std::string, int> index;
  std::array<std::vector<std::int64_t>, 9> c;
  for (const Slice& s : slices) {
    const auto [it, fresh] = index.emplace(s.name, static_cast<int>(index.size()));
    if (fresh) names.push_back(s.name);
    const std::int64_t start = (s.start + 500) / 1000, end = (s.end + 500) / 1000;
    const std::int64_t row[9] = {s.stage, s.stream, s.category, it->second, s.microbatch,
                                 s.chunk, s.work,   start,      end - start};
    for (std::size_t i = 0; i < 9; ++i) c[i].push_back(row[i]);
  }
  return {{"stage", c[0]}, {"stream", c[1]},     {"category", c[2]},
          {"name", c[3]},  {"microbatch", c[4]}, {"chunk", c[5]},
          {"work", c[6]},  {"start_ns", c[7]},   {"duration_ns", c[8]}};
}

// The highest and lowest step of each of a few hundred windows.
void thin(std::vector<timeline::Simulator::MemoryStep>& curve) {
  if (curve.size() <= kMostCurvePoints) return;
  using Step = timeline::Simulator::MemoryStep;
  const auto lower = [](const Step& a, const Step& b) { return a.bytes < b.bytes; };
  std::vector<Step> out = {curve.front()};
  const std::size_t windows = kMostCurvePoints / 2;
  for (std::size_t w = 0; w < windows; ++w) {
    const auto begin = curve.begin() + static_cast<std::ptrdiff_t>(curve.size() * w / windows);
    const auto end = curve.begin() + static_cast<std::ptrdiff_t>(curve.size() * (w + 1) / windows);
    auto low = std::min_element(begin, end, lower), high = std::max_element(begin, end, lower);
    if (high < low) std::swap(low, high);
    out.push_back(*low);
    if (high != low) out.push_back(*high);
  }
  curve = std::move(out);
}

Json curves_json(const timeline::Simulator& simulator) {
  Json curves = Json::array();
  int stage = 0;
  for (std::vector<timeline::Simulator::MemoryStep> curve : simulator.memory_curves()) {
    thin(curve);
    std::vector<double> seconds;
    std::vector<std::int64_t> bytes;
    for (const timeline::Simulator::MemoryStep& step : curve)
      seconds.push_back(step.time_s), bytes.push_back(step.bytes);
    curves.push_back({{"stage", stage++}, {"time_s", seconds}, {"bytes", bytes}});
  }
  return curves;
}

Json node(const char* name, std::int64_t parameters) {
  return {{"name", name}, {"parameters", parameters}};
}

Json parameters_node(const model::Model& model) {
  const model::Parameters p = model::count_parameters(model);
  Json layers = Json::array();
  const auto add = [](Json& list, const char* name, std::int64_t count) {
    if (count > 0) list.push_back(node(name, count));
  };
  add(layers, "attention", p.attention);
  add(layers, "norms", p.norms);
  add(layers, "dense feed-forward", p.dense_ffn);
  add(layers, "router", p.router);
  if (p.experts > 0) {
    Json experts = node("routed experts", p.experts);
    experts["children"] =
        Json::array({node("active for a token", p.expert_active),
                     node("not active for a token", p.experts - p.expert_active)});
    layers.push_back(experts);
  }
  add(layers, "shared expert", p.shared);
  const std::int64_t decoder =
      p.attention + p.norms + p.dense_ffn + p.router + p.experts + p.shared;
  Json parts = Json::array();
  add(parts, "embedding", p.embedding);
  Json body = node("decoder layers", decoder);
  body["children"] = layers;
  parts.push_back(body);
  add(parts, "final norm", p.final_norm);
  add(parts, "head", p.head);
  add(parts, "multi-token prediction", p.mtp);
  Json root = node("parameters", p.total() + p.mtp);
  root["children"] = parts;
  return root;
}

// What has been freed (negative terms) comes off the largest term of its part.
Json memory_node(const job::Job& job, const layout::Pipeline& pipeline,
                 const memory::Memory& memory) {
  const int stage = memory.worst_stage;
  const std::vector<memory::Term> terms = memory::explain(job, pipeline, stage);
  Json parts = Json::array();
  std::int64_t total = 0;
  for (std::size_t part = 0; part < 5; ++part) {
    std::vector<std::pair<std::string, std::int64_t>> list;
    std::int64_t freed = 0, sum = 0;
    for (const memory::Term& term : terms) {
      if (static_cast<std::size_t>(term.part) != part) continue;
      sum += term.bytes.value();
      if (term.bytes.value() > 0)
        list.emplace_back(term.name, term.bytes.value());
      else
        freed -= term.bytes.value();
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    Json children = Json::array();
    for (auto& [name, bytes] : list) {
      const std::int64_t off = std::min(freed, bytes);
      freed -= off, bytes -= off;
      if (bytes > 0) children.push_back({{"name", name}, {"bytes", bytes}});
    }
    if (sum <= 0) continue;
    total += sum;
    parts.push_back({{"name", kParts[part]}, {"bytes", sum}, {"children", children}});
  }
  return {
      {"name", "memory of stage " + std::to_string(stage)}, {"bytes", total}, {"children", parts}};
}

// A step of fewer micro-batches, where the whole one would take millions of tasks.
job::Job drawable(const job::Job& job) {
  const double layers = static_cast<double>(job.model.num_layers());
  const double tasks = layers * static_cast<double>(job.microbatches()) * 60;
  if (tasks <= kMostTasks) return job;
  job::Job out = job;
  const std::int64_t group = std::max(1, job.layout.pp);
  std::int64_t count = static_cast<std::int64_t>(kMostTasks / (layers * 60)) / group * group;
  count = std::min(std::max(count, 2 * group), job.microbatches());
  out.training.global_batch_size = count * job.training.micro_batch_size * job.dp();
  return out;
}

}  // namespace

Simulated simulated_json(const job::Job& whole, const layout::Pipeline& pipeline,
                         const hardware::Profile& profile, int most_slices) {
  const job::Job job = drawable(whole);
  cost::Pricer pricer(job.cluster, profile);
  timeline::Simulator simulator;
  timeline::Timeline result;
  simulator.run(job, pipeline, pricer, {}, result);
  if (!result.completes) return {nullptr, Json::array()};
  std::vector<Slice> slices = slices_of(simulator);
  const std::size_t total = slices.size(), most = at(std::max(1, most_slices));
  const bool merged = total > most;
  if (slices.size() > most) slices = joined(slices, false);
  if (slices.size() > most) slices = joined(slices, true);
  Ends ends{job.microbatches(), job.microbatches()};
  while (slices.size() > most && ends.shown > 1) ends.narrow(slices, most);
  Json names = Json::array(), path = Json::object();
  Json rows = columns(slices, names);
  for (std::size_t i = 0; i < schedule::kCategories; ++i)
    path[schedule::kCategoryNames[i]] = result.critical_path.by_category[i];
  path["waiting"] = result.critical_path.waiting_s;
  Json timeline = {{"method", "simulated"},
                   {"step_time_s", result.step_time_s},
                   {"stages", pipeline.pp},
                   {"streams", schedule::kStreamNames},
                   {"categories", schedule::kCategoryNames},
                   {"names", names},
                   {"work", kWorks},
                   {"microbatches", whole.microbatches()},
                   {"microbatches_shown", ends.shown},
                   {"omitted_s", ends.omitted_json(pipeline.pp)},
                   {"total_slices", total},
                   {"merged", merged},
                   {"slices", std::move(rows)},
                   {"hidden_share", result.hidden_share},
                   {"critical_path_s", path}};
  return {std::move(timeline), curves_json(simulator)};
}

Json terms_json(const job::Job& job, const layout::Pipeline& pipeline, int stage) {
  Json terms = Json::array();
  for (const memory::Term& term : memory::explain(job, pipeline, stage))
    terms.push_back({{"stage", stage},
                     {"part", kParts[static_cast<std::size_t>(term.part)]},
                     {"name", term.name},
                     {"formula", term.formula},
                     {"divisor", term.divisor},
                     {"bytes", term.bytes.value()}});
  return terms;
}

Json icicle_json(const job::Job& job, const layout::Pipeline& pipeline,
                 const memory::Memory& memory) {
  return {
      {"name", job.model.name},
      {"children", Json::array({parameters_node(job.model), memory_node(job, pipeline, memory)})}};
}

Json ranks_json(const job::Job& job) {
  const layout::RankGrid grid(job.layout, job.gpus);
  const int shown = std::min(job.gpus, kMostRanks);
  std::array<std::vector<int>, 10> c;
  for (int r = 0; r < shown; ++r) {
    const layout::Coordinates x = grid.coordinates(RankId(r));
    const int row[10] = {r,
                         r / job.cluster.gpus_per_node,
                         r / job.cluster.gpus_used_per_domain,
                         x.tp,
                         x.cp,
                         x.dp,
                         x.pp,
                         x.etp,
                         x.ep,
                         x.edp};
    for (std::size_t i = 0; i < 10; ++i) c[i].push_back(row[i]);
  }
  return {{"gpus", job.gpus},
          {"shown", shown},
          {"gpus_per_node", job.cluster.gpus_per_node},
          {"domain_gpus", job.cluster.gpus_used_per_domain},
          {"columns",
           {{"rank", c[0]},
            {"node", c[1]},
            {"domain", c[2]},
            {"tp", c[3]},
            {"cp", c[4]},
            {"dp", c[5]},
            {"pp", c[6]},
            {"etp", c[7]},
            {"ep", c[8]},
            {"edp", c[9]}}}};
}

}  // namespace trifold::report

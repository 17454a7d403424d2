// SPDX-License-Identifier: Apache-2.0
#include "observe/observation.h"

#include <algorithm>

#include "job/legality.h"

namespace trifold::observe {

namespace {

bool contains(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

void apply_source_defaults(const Json& record, Observation& o) {
  const bool bridge = o.source.find("Megatron-Bridge") != std::string::npos;
  // Megatron-Bridge 25.09's token-dropping runs pad to capacity (shared/reference/flops.md 3).
  job::Techniques& techniques = o.job.techniques;
  if (bridge && o.release == "25.09" && techniques.routing.capacity_factor > 0)
    techniques.routing.pad_to_capacity = true;
  // 107 of its 127 runs with HybridEP that say so give it 32 SMs, all on Hopper.
  if (bridge && techniques.dispatcher == job::Dispatcher::hybridep &&
      techniques.dispatcher_sms == 0)
    techniques.dispatcher_sms = 32;
  // What publishers leave out of `fusions` is not stated rather than off, unless they say "none":
  // every recipe since 2024 fuses permutation and cross entropy (Bridge's began to list `permute`
  // in 26.02, at the same speed before and after), every recipe of Bridge that lists fusions of a
  // model that can be priced fuses the router.
  const Json::json_pointer pointer("/techniques/fusions");
  const bool absent = !record.contains(pointer) || record[pointer].is_null();
  techniques.fusions.insert(job::Fusion::cross_entropy);
  if (absent || !record[pointer].empty()) techniques.fusions.insert(job::Fusion::permute);
  if (absent && bridge && o.job.model.is_moe()) techniques.fusions.insert(job::Fusion::router);
}

void read_measured(JsonReader& reader, Measured& m) {
  JsonReader r = reader.child("measured");
  r.get("tokens_per_s_per_gpu", m.tokens_per_s_per_gpu);
  r.get("tflops_per_gpu", m.tflops_per_gpu);
  r.get("step_time_s", m.step_time_s);
  r.get("mfu_percent", m.mfu_percent);
  r.get("mfu_peak_tflops", m.mfu_peak_tflops);
  r.get("out_of_memory", m.out_of_memory);
  const double gib = 1024.0 * 1024 * 1024;
  const struct {
    const char* key;
    double unit;
    bool reserved;
  } memory[] = {{"peak_memory_allocated_gib", gib, false},
                {"peak_memory_gib", gib, false},
                {"peak_memory_gb", 1e9, false},
                {"peak_memory_allocated_mib", gib / 1024, false},
                {"peak_memory_reserved_gib", gib, true},
                {"peak_memory_reserved_mib", gib / 1024, true}};
  for (const auto& field : memory) {
    std::optional<double> value;
    r.get(field.key, value);
    if (value) (field.reserved ? m.reserved_bytes : m.allocated_bytes) = *value * field.unit;
  }
  r.ignore_rest();
  reader.join(r);
}

}  // namespace

Result<Observation> read_observation(const Json& record, const std::string& file,
                                     const std::string& data_dir) {
  Observation o;
  JsonReader r(record, file);
  r.get("id", o.id);
  r.get("source", o.source);
  r.get("release", o.release);
  r.get("method", o.method);
  r.get_token("quality", kQualities, o.quality);
  r.get("unknown", o.unknown);
  r.get("published_gflop_per_token", o.published_gflop_per_token);
  std::string convention;
  r.get("flops_convention", convention);
  o.full_attention = convention == "full_attention";
  o.tokens_rounded = r.has("tokens_quantum");
  read_measured(r, o.measured);
  if (record.contains("ladder") && record["ladder"].is_object())
    o.ladder = record["ladder"].value("name", "");
  if (record["model"].is_string()) r.get("model", o.model_name);
  r.ignore_rest();
  TRIFOLD_TRY(r.finish());
  TRIFOLD_ASSIGN(job, job::read_job(record, file, {data_dir, true}));
  o.job = std::move(job);
  if (o.model_name.empty()) o.model_name = o.job.model.name;
  const auto add_unknown = [&](const char* section, const char* field) {
    const bool null = record.contains(section) && record[section].contains(field) &&
                      record[section][field].is_null();
    if (null && !contains(o.unknown, field)) o.unknown.push_back(field);
  };
  add_unknown("layout", "vpp");
  add_unknown("training", "micro_batch_size");
  apply_source_defaults(record, o);
  return o;
}

Result<ObservationSet> load_observations(const std::string& path, const std::string& data_dir) {
  TRIFOLD_ASSIGN(json, read_json(path));
  if (json.is_object()) json = Json::array({json});
  if (!json.is_array()) return input_error("expected a record or a list of records", path);
  ObservationSet set;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_object())
      return input_error("expected a record", path + "#/" + std::to_string(i));
    Result<Observation> observation =
        read_observation(json[i], path + "#/" + std::to_string(i), data_dir);
    if (observation) {
      set.observations.push_back(std::move(*observation));
    } else if (observation.error().message.find("cannot be priced") != std::string::npos) {
      set.skipped.push_back({json[i].value("id", ""), observation.error().message});
    } else {
      return std::move(observation).error();
    }
  }
  return set;
}

std::vector<job::Job> plausible_jobs(const Observation& o) {
  std::vector<job::Job> jobs = {o.job};
  const auto expand = [&](auto&& variants_of) {
    std::vector<job::Job> next;
    for (const job::Job& job : jobs) variants_of(job, next);
    jobs = std::move(next);
  };
  if (contains(o.unknown, "tp")) {
    expand([](const job::Job& job, std::vector<job::Job>& next) {
      for (int tp : {1, 2, 4, 8}) {
        job::Job variant = job;
        variant.layout.tp = tp;
        variant.techniques.sequence_parallel = tp > 1;
        for (const auto& [ep, etp] : {std::pair{1, tp}, std::pair{8, 1}}) {
          variant.layout.ep = ep;
          variant.layout.etp = etp;
          next.push_back(variant);
        }
      }
    });
  }
  if (contains(o.unknown, "micro_batch_size")) {
    expand([](const job::Job& job, std::vector<job::Job>& next) {
      for (int size : {1, 2, 4}) next.push_back(job), next.back().training.micro_batch_size = size;
    });
  }
  if (contains(o.unknown, "vpp")) {
    expand([](const job::Job& job, std::vector<job::Job>& next) {
      for (int vpp = 1; vpp <= 8; ++vpp) {
        next.push_back(job);
        next.back().layout.vpp = vpp;
        if (vpp > 1) {
          next.back().schedule.kind = layout::ScheduleKind::interleaved;
          next.back().techniques.overlap.insert(job::Overlap::pipeline_p2p);
        }
      }
    });
  }
  if (contains(o.unknown, "recompute")) {
    expand([](const job::Job& job, std::vector<job::Job>& next) {
      next.push_back(job);
      next.push_back(job);
      next.back().techniques.recompute = {job::Recompute::full};
    });
  }
  if (contains(o.unknown, "overlap")) {
    expand([](const job::Job& job, std::vector<job::Job>& next) {
      next.push_back(job);
      next.push_back(job);
      for (job::Overlap overlap : {job::Overlap::grad_reduce, job::Overlap::param_gather,
                                   job::Overlap::tp_comm, job::Overlap::pipeline_p2p})
        next.back().techniques.overlap.insert(overlap);
    });
  }
  std::vector<job::Job> legal;
  for (job::Job& job : jobs)
    if (job::check(job, job::Runtime::any).legal()) legal.push_back(std::move(job));
  return legal;
}

}  // namespace trifold::observe

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/random.h"
#include "job/job.h"
#include "job/job_text.h"
#include "model/catalogue.h"

namespace trifold::job {

namespace {

// Puts a field where it differs from the default, or always when `all` (the canonical form).
struct Writer {
  Json json = Json::object();
  bool all = false;

  template <class T>
  void put(const char* key, const T& value, const T& fallback) {
    if (all || !(value == fallback)) json[key] = value;
  }
  template <class E, std::size_t N>
  void token(const char* key, const Token<E> (&table)[N], E value, E fallback) {
    if (all || value != fallback) json[key] = std::string(token_name(table, value));
  }
  template <class E, std::size_t N>
  void tokens(const char* key, const Token<E> (&table)[N], EnumSet<E> set) {
    if (!all && set.empty()) return;
    Json list = Json::array();
    for (const Token<E>& t : table)
      if (set.contains(t.value)) list.push_back(std::string(t.name));
    json[key] = std::move(list);
  }
  void child(const char* key, Writer&& part) {
    if (all || !part.json.empty()) json[key] = std::move(part.json);
  }
  Writer part() const { return Writer{Json::object(), all}; }
};

Writer training_json(Writer w, const Training& t) {
  const Optimizer none;
  w.json["sequence_length"] = t.sequence_length;
  w.json["global_batch_size"] = t.global_batch_size;
  w.json["micro_batch_size"] = t.micro_batch_size;
  w.json["precision"] = std::string(token_name(kPrecisions, t.precision));
  Writer o = w.part();
  const Optimizer& opt = t.optimizer;
  o.token("name", kOptimizerNames, opt.name, none.name);
  o.put("distributed", opt.distributed, none.distributed);
  o.token("main_params", kStateTypes, opt.main_params, none.main_params);
  o.token("main_grads", kStateTypes, opt.main_grads, none.main_grads);
  o.token("moments", kStateTypes, opt.moments, none.moments);
  o.token("grad_reduce", kStateTypes, opt.grad_reduce, opt.main_grads);
  o.put("fp8_param_gather", opt.fp8_param_gather, none.fp8_param_gather);
  w.child("optimizer", std::move(o));
  return w;
}

Writer layout_json(Writer w, const layout::Layout& l) {
  const layout::Layout none;
  w.json["tp"] = l.tp;
  w.json["cp"] = l.cp;
  w.put("ulysses_sp", l.ulysses_sp, none.ulysses_sp);
  w.json["pp"] = l.pp;
  w.json["vpp"] = l.vpp;
  w.json["ep"] = l.ep;
  w.json["etp"] = l.etp;
  w.put("fsdp", l.fsdp, none.fsdp);
  w.token("order", layout::kRankOrders, l.order, none.order);
  w.put("pipeline_layout", l.pipeline_layout, none.pipeline_layout);
  w.put("account_for_embedding", l.account_for_embedding, none.account_for_embedding);
  w.put("account_for_loss", l.account_for_loss, none.account_for_loss);
  w.put("first_stage_layers", l.first_stage_layers, none.first_stage_layers);
  w.put("last_stage_layers", l.last_stage_layers, none.last_stage_layers);
  return w;
}

Writer offload_json(Writer w, const Offload& o) {
  const Offload none;
  w.tokens("activation_modules", kOffloadModules, o.activation_modules);
  w.put("activation_layers", o.activation_layers, none.activation_layers);
  w.token("optimizer", kOptimizerOffloads, o.optimizer, none.optimizer);
  w.put("fraction", o.fraction, none.fraction);
  return w;
}

Writer routing_json(Writer w, const Routing& r) {
  const Routing none;
  w.token("balance", kBalances, r.balance, none.balance);
  w.put("capacity_factor", r.capacity_factor, none.capacity_factor);
  w.put("pad_to_capacity", r.pad_to_capacity, none.pad_to_capacity);
  w.token("distribution", kLoadDistributions, r.distribution, none.distribution);
  w.put("parameters", r.parameters, none.parameters);
  w.put("seed", r.seed, none.seed);
  w.put("echo_spare_experts", r.echo_spare_experts, none.echo_spare_experts);
  return w;
}

Writer techniques_json(Writer w, const Techniques& t, int tp) {
  const Techniques none;
  w.json["dispatcher"] = std::string(token_name(kDispatchers, t.dispatcher));
  w.put("dispatcher_sms", t.dispatcher_sms, none.dispatcher_sms);
  w.token("dispatch_precision", kDispatchPrecisions, t.dispatch_precision, none.dispatch_precision);
  w.tokens("overlap", kOverlaps, t.overlap);
  w.tokens("recompute", kRecomputes, t.recompute);
  w.tokens("cuda_graph", kGraphScopes, t.cuda_graph);
  w.tokens("fusions", kFusions, t.fusions);
  w.child("offload", offload_json(w.part(), t.offload));
  w.child("routing", routing_json(w.part(), t.routing));
  w.token("cp_comm", kCpComms, t.cp_comm, none.cp_comm);
  w.token("gradient_compression", kGradientCompressions, t.gradient_compression,
          none.gradient_compression);
  w.token("implementation", kImplementations, t.implementation, none.implementation);
  w.token("attention_backend", kAttentionBackends, t.attention_backend, none.attention_backend);
  w.token("grouped_gemm", hardware::kGroupedKernels, t.grouped_gemm, none.grouped_gemm);
  if (w.all || tp > 1) w.json["sequence_parallel"] = t.sequence_parallel && tp > 1;
  w.put("memory_efficient_permutation", t.memory_efficient_permutation,
        none.memory_efficient_permutation);
  w.put("paged_stash", t.paged_stash, none.paged_stash);
  Writer host = w.part();
  host.put("processes_bound_to_cpus", t.processes_bound_to_cpus, none.processes_bound_to_cpus);
  w.child("host", std::move(host));
  return w;
}

Writer schedule_json(Writer w, const Schedule& s, int vpp) {
  using layout::ScheduleKind;
  const ScheduleKind usual = vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  w.token("kind", layout::kScheduleKinds, s.kind, usual);
  w.put("microbatch_group_size", s.microbatch_group_size, 0);
  return w;
}

// By name with its overrides when nothing has changed since it was read, else whole.
template <class Thing, class Whole>
void put_thing(Json& json, const char* key, const char* overrides_key, const Thing& thing,
               const Origin& origin, bool all, Whole whole) {
  if (all || origin.name.empty() || origin.fingerprint != fingerprint(thing)) {
    json[key] = whole(thing);
    return;
  }
  json[key] = origin.name;
  if (!origin.overrides.empty()) json[overrides_key] = Json::parse(origin.overrides);
}

Json write(const Job& job, bool all) {
  Writer w{Json::object(), all};
  w.json["schema"] = "trifold.job/1";
  put_thing(w.json, "model", "model_overrides", job.model, job.model_origin, all,
            [](const model::Model& m) { return model::to_hf_config(m); });
  put_thing(w.json, "cluster", "cluster_overrides", job.cluster, job.cluster_origin, all,
            [](const hardware::Cluster& c) { return hardware::to_json(c); });
  w.put("profile", job.profile, std::string());
  w.json["gpus"] = job.gpus;
  w.put("rank", job.measured_rank, -1);
  w.child("training", training_json(w.part(), job.training));
  w.child("layout", layout_json(w.part(), job.layout));
  w.child("techniques", techniques_json(w.part(), job.techniques, job.layout.tp));
  w.child("schedule", schedule_json(w.part(), job.schedule, job.layout.vpp));
  return std::move(w.json);
}

std::uint64_t hash_of(const Json& json) {
  const std::string text = dump_json(json, -1);
  return fnv1a(text.data(), text.size());
}

}  // namespace

std::uint64_t fingerprint(const model::Model& model) { return hash_of(model::to_hf_config(model)); }
std::uint64_t fingerprint(const hardware::Cluster& cluster) {
  return hash_of(hardware::to_json(cluster));
}

Json to_json(const Job& job) { return write(job, false); }

std::string job_id(const Job& job) { return fmt::format("{:016x}", hash_of(write(job, true))); }

layout::ScheduleShape Job::schedule_shape() const {
  return layout::ScheduleShape{schedule.kind,
                               layout.pp,
                               layout.vpp,
                               static_cast<int>(microbatches()),
                               schedule.microbatch_group_size,
                               techniques.has(Overlap::ep_a2a)};
}

}  // namespace trifold::job

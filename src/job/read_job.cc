// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "job/job.h"
#include "job/job_text.h"
#include "model/catalogue.h"

namespace trifold::job {

namespace {

void get_size(JsonReader& r, std::string_view key, int& out, int low, int high) {
  std::int64_t value = out;
  r.get_in(key, value, low, high);
  out = static_cast<int>(value);
}

void read_optimizer(JsonReader r, JsonReader& parent, Optimizer& out) {
  r.get_token("name", kOptimizerNames, out.name);
  r.get("distributed", out.distributed);
  r.get_token("main_params", kStateTypes, out.main_params);
  r.get_token("main_grads", kStateTypes, out.main_grads);
  r.get_token("moments", kStateTypes, out.moments);
  // A gradient is reduced in the format it is kept in, unless said otherwise.
  if (r.has("main_grads")) out.grad_reduce = out.main_grads;
  r.get_token("grad_reduce", kStateTypes, out.grad_reduce);
  r.get("fp8_param_gather", out.fp8_param_gather);
  parent.join(r);
}

void read_training(JsonReader r, JsonReader& parent, const Optimizer& defaults, Training& out) {
  r.get_in("sequence_length", out.sequence_length, 1, 100'000'000);
  r.require("global_batch_size");
  r.get_in("global_batch_size", out.global_batch_size, 1, 1'000'000'000);
  r.get_in("micro_batch_size", out.micro_batch_size, 1, 1'000'000);
  r.get_token("precision", kPrecisions, out.precision);
  out.optimizer = defaults;
  read_optimizer(r.child("optimizer"), r, out.optimizer);
  parent.join(r);
}

int layout_stages(const std::string& text) {
  Result<std::vector<std::string>> stages = layout::parse_pipeline_layout(text);
  return stages ? static_cast<int>(stages->size()) : 0;
}

// Products of sizes stay far from overflow for whoever multiplies them next.
void check_products(JsonReader& r, const layout::Layout& l) {
  constexpr double kMost = 1 << 28;
  const double dense = double{1} * l.tp * l.cp * l.ulysses_sp * l.pp;
  const double expert = double{1} * l.etp * l.ep * l.pp;
  if (std::max(dense, expert) > kMost || double{1} * l.pp * l.vpp > 1 << 20)
    r.fail(input_error("the product of the layout's sizes is absurdly large", r.where(),
                       "tp * cp * pp and etp * ep * pp must divide the number of GPUs"));
}

void read_layout(JsonReader r, JsonReader& parent, bool is_record, layout::Layout& out) {
  constexpr int kMost = 65536;
  get_size(r, "tp", out.tp, 1, kMost);
  get_size(r, "cp", out.cp, 1, kMost);
  get_size(r, "ulysses_sp", out.ulysses_sp, 1, kMost);
  get_size(r, "pp", out.pp, 1, kMost);
  get_size(r, "vpp", out.vpp, 1, kMost);
  get_size(r, "ep", out.ep, 1, kMost);
  get_size(r, "etp", out.etp, 1, kMost);
  r.get("fsdp", out.fsdp);
  r.get_token("order", layout::kRankOrders, out.order);
  r.get("pipeline_layout", out.pipeline_layout);
  r.get("account_for_embedding", out.account_for_embedding);
  r.get("account_for_loss", out.account_for_loss);
  get_size(r, "first_stage_layers", out.first_stage_layers, 0, kMost);
  get_size(r, "last_stage_layers", out.last_stage_layers, 0, kMost);
  // A record's string decides (observations/README.md); a Job that contradicts itself is PP-02.
  if (!out.pipeline_layout.empty() && (out.vpp == 1 || is_record)) {
    const int stages = layout_stages(out.pipeline_layout);
    if (stages > 0 && stages % out.pp == 0) out.vpp = stages / out.pp;
  }
  check_products(r, out);
  parent.join(r);
}

void read_offload(JsonReader r, JsonReader& parent, Offload& out) {
  r.get_tokens("activation_modules", kOffloadModules, out.activation_modules);
  get_size(r, "activation_layers", out.activation_layers, 0, 100'000);
  r.get_token("optimizer", kOptimizerOffloads, out.optimizer);
  r.get_in("fraction", out.fraction, 0, 1);
  parent.join(r);
}

void read_routing(JsonReader r, JsonReader& parent, Routing& out) {
  r.get_token("balance", kBalances, out.balance);
  r.get_in("capacity_factor", out.capacity_factor, 0, 1000);
  r.get("pad_to_capacity", out.pad_to_capacity);
  r.get_token("distribution", kLoadDistributions, out.distribution);
  r.get("parameters", out.parameters);
  r.get("seed", out.seed);
  get_size(r, "echo_spare_experts", out.echo_spare_experts, 0, 1024);
  if (std::any_of(out.parameters.begin(), out.parameters.end(),
                  [](double v) { return !(v >= 0 && v < 1e12); }))
    r.fail(input_error("parameters must be finite and not negative", r.where("parameters")));
  parent.join(r);
}

void read_techniques(JsonReader r, JsonReader& parent, int tp, Techniques& out) {
  r.get_token("dispatcher", kDispatchers, out.dispatcher);
  get_size(r, "dispatcher_sms", out.dispatcher_sms, 0, 1024);
  r.get_token("dispatch_precision", kDispatchPrecisions, out.dispatch_precision);
  r.get_tokens("overlap", kOverlaps, out.overlap);
  r.get_tokens("recompute", kRecomputes, out.recompute);
  r.get_tokens("cuda_graph", kGraphScopes, out.cuda_graph);
  r.get_tokens("fusions", kFusions, out.fusions);
  read_offload(r.child("offload"), r, out.offload);
  read_routing(r.child("routing"), r, out.routing);
  r.get_token("cp_comm", kCpComms, out.cp_comm);
  r.get_token("gradient_compression", kGradientCompressions, out.gradient_compression);
  r.get_token("implementation", kImplementations, out.implementation);
  r.get_token("attention_backend", kAttentionBackends, out.attention_backend);
  r.get_token("grouped_gemm", hardware::kGroupedKernels, out.grouped_gemm);
  // Nobody runs tensor parallelism without it (an MoE model cannot), so silence means yes.
  out.sequence_parallel = tp > 1 && out.implementation == Implementation::transformer_engine;
  r.get("sequence_parallel", out.sequence_parallel);
  if (tp == 1) out.sequence_parallel = false;  // TP-03: Megatron switches it off by itself
  r.get("memory_efficient_permutation", out.memory_efficient_permutation);
  r.get("paged_stash", out.paged_stash);
  JsonReader host = r.child("host");
  host.get("processes_bound_to_cpus", out.processes_bound_to_cpus);
  r.join(host);
  parent.join(r);
}

void read_schedule(JsonReader r, JsonReader& parent, int vpp, Schedule& out) {
  using layout::ScheduleKind;
  out.kind = vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  r.get_token("kind", layout::kScheduleKinds, out.kind);
  // PP-06: a vpp of 1 means no interleaving.
  if (out.kind == ScheduleKind::interleaved && vpp == 1) out.kind = ScheduleKind::one_f_one_b;
  get_size(r, "microbatch_group_size", out.microbatch_group_size, 0, 1'000'000);
  parent.join(r);
}

bool is_catalogue_name(const std::string& name) {
  return name.find('/') == std::string::npos && name.find(".json") == std::string::npos &&
         name != "-";
}

std::string overrides_text(const Json* overrides) {
  return overrides == nullptr || overrides->empty() ? "" : overrides->dump();
}

Result<void> read_model(JsonReader& r, const std::string& file, const ReadOptions& options,
                        Job& job) {
  const Json* value = r.raw("model");
  const Json* overrides = r.raw("model_overrides");
  if (value == nullptr) return input_error("missing key 'model'", r.where());
  if (value->is_string()) {
    const auto name = value->get<std::string>();
    TRIFOLD_ASSIGN(model, model::load_model(name, options.data_dir));
    job.model = std::move(model);
    if (is_catalogue_name(name)) job.model_origin.name = name;
  } else {
    TRIFOLD_ASSIGN(model, model::import_hf_config(*value, r.where("model")));
    job.model = std::move(model);
  }
  if (overrides != nullptr)
    TRIFOLD_TRY(model::apply_overrides(job.model, *overrides, r.where("model_overrides")));
  TRIFOLD_TRY(model::validate(job.model, file + "#/model"));
  job.model_origin.overrides = overrides_text(overrides);
  job.model_origin.fingerprint = fingerprint(job.model);
  return {};
}

Result<void> read_cluster_of(JsonReader& r, const ReadOptions& options, Job& job) {
  const Json* value = r.raw("cluster");
  const Json* overrides = r.raw("cluster_overrides");
  if (value == nullptr) return input_error("missing key 'cluster'", r.where());
  if (value->is_string()) {
    const auto name = value->get<std::string>();
    TRIFOLD_ASSIGN(cluster, hardware::load_cluster(name, options.data_dir));
    job.cluster = std::move(cluster);
    if (is_catalogue_name(name)) job.cluster_origin.name = name;
  } else {
    TRIFOLD_ASSIGN(cluster, hardware::read_cluster(*value, r.where("cluster"), options.data_dir));
    job.cluster = std::move(cluster);
  }
  if (overrides != nullptr) {
    const std::string where = r.where("cluster_overrides");
    TRIFOLD_TRY(hardware::apply_overrides(job.cluster, *overrides, where));
    TRIFOLD_TRY(hardware::validate(job.cluster, where));
  }
  job.cluster_origin.overrides = overrides_text(overrides);
  job.cluster_origin.fingerprint = fingerprint(job.cluster);
  return {};
}

// What Megatron-Bridge's recipes use where its tables say nothing, as all its records that do say:
// gradients reduced in BF16, FP8 parameters gathered, and BF16 gradients and moments for
// DeepSeek-V3. shared/data/observations/README.md gives those moments to every BF16 run; the other
// BF16 records that say so have FP32 ones, and so do the two peaks that Qwen3-30B's notes state
// (62.2 GiB of which 7 are the difference).
Optimizer default_optimizer(const Json& json) {
  Optimizer out;
  if (json.contains("schema")) return out;
  const auto text = [&](const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  if (text(json, "source").find("Megatron-Bridge") == std::string::npos) return out;
  out.grad_reduce = StateType::bf16;
  const auto training = json.find("training");
  const std::string precision = training != json.end() && training->is_object()
                                    ? text(*training, "precision")
                                    : std::string();
  // Not of MXFP8 parameters beside gathers in the optimizer's step (PR-05).
  const Json::json_pointer overlap("/techniques/overlap");
  const bool in_step = json.contains(overlap) && json[overlap].is_array() &&
                       std::find(json[overlap].begin(), json[overlap].end(),
                                 "param_gather_with_optimizer") != json[overlap].end();
  out.fp8_param_gather = precision == "fp8_tensor" || (precision == "mxfp8" && !in_step);
  if (text(json, "model") == "deepseek-v3") {
    out.main_grads = StateType::bf16;
    out.moments = StateType::bf16;
  }
  return out;
}

// Tables state pp and vpp but not how the layers were cut. Where they do not divide, recipes count
// embedding and loss as layers (Qwen3-235B, Llama-3.1-405B) or write a string (DeepSeek-V3).
void guess_cut(Job& job) {
  layout::Layout& l = job.layout;
  if (!l.pipeline_layout.empty() || l.account_for_embedding || l.account_for_loss ||
      l.first_stage_layers > 0 || l.last_stage_layers > 0)
    return;
  layout::Pipeline pipeline;
  const auto cuts = [&] { return layout::cut_pipeline(job.model, l, pipeline).ok(); };
  if (cuts()) return;
  l.account_for_embedding = l.account_for_loss = true;
  if (cuts()) return;
  l.account_for_embedding = l.account_for_loss = false;
  l.pipeline_layout = layout::filled_pipeline_layout(job.model, l.pp, l.vpp);
}

void skip_observation_keys(JsonReader& r) {
  for (const char* key :
       {"id", "source", "release", "notes", "measured", "quality", "unknown", "method", "ladder",
        "peer_predicted", "published_gflop_per_token", "flops_convention", "tokens_quantum"})
    r.ignore(key);
}

}  // namespace

Result<Job> read_job(const Json& json, const std::string& file, const ReadOptions& options) {
  JsonReader r(json, file);
  if (!json.is_object()) return r.finish().error();
  std::string schema = "trifold.job/1";
  r.get("schema", schema);
  if (schema != "trifold.job/1")
    return input_error(fmt::format("schema is '{}'", schema), r.where("schema"),
                       "this reads \"trifold.job/1\"");
  if (options.allow_observation) skip_observation_keys(r);
  Job job;
  r.require("gpus");
  get_size(r, "gpus", job.gpus, 1, 1 << 20);
  r.get("profile", job.profile);
  get_size(r, "rank", job.measured_rank, -1, 1 << 20);
  r.require("training");
  read_training(r.child("training"), r, default_optimizer(json), job.training);
  read_layout(r.child("layout"), r, !json.contains("schema"), job.layout);
  read_techniques(r.child("techniques"), r, job.layout.tp, job.techniques);
  read_schedule(r.child("schedule"), r, job.layout.vpp, job.schedule);
  for (const char* key : {"model", "model_overrides", "cluster", "cluster_overrides"})
    r.ignore(key);
  TRIFOLD_TRY(r.finish());
  if (const Job* same = options.same_model_and_cluster) {
    job.model = same->model, job.model_origin = same->model_origin;
    job.cluster = same->cluster, job.cluster_origin = same->cluster_origin;
  } else {
    TRIFOLD_TRY(read_model(r, file, options, job));
    TRIFOLD_TRY(read_cluster_of(r, options, job));
  }
  if (!json.contains("schema")) guess_cut(job);
  return job;
}

Result<Job> load_job(const std::string& path, const ReadOptions& options) {
  TRIFOLD_ASSIGN(json, read_json(path));
  return read_job(json, path, options);
}

}  // namespace trifold::job

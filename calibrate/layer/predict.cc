// SPDX-License-Identifier: Apache-2.0

// The MoE part of a block as the layer test runs it, priced from parts.
//
//   operators    layer::build_block's, without attention, shared expert, norms and residual; one
//                kernel each, since nothing stands around them; the router's GEMM in bf16, its
//                choice and map as four small kernels; the probabilities as a second, small
//                exchange of the forward dispatch. No host operations: the test lets the host run
//                ahead.
//   closed form  estimate::layer_time: sums where passes follow one another, the merged formula
//                where two micro-batches overlap.
//   simulated    one stream a micro-batch, operators in the test's order, contention as schedule/
//                has it.
//
// Known error: the committed run, tests/observations/h200x2/README.md.
#include "calibrate/layer/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/json.h"
#include "base/table.h"
#include "cost/price.h"
#include "estimate/stage_time.h"
#include "job/job.h"
#include "layer/block.h"
#include "schedule/block_program.h"
#include "sim/engine.h"

namespace trifold::calibrate {

namespace {

using layer::Family;
using layer::Operator;
using layer::Pass;

Result<LayerCase> read_case(const Json& json, const std::string& where) {
  LayerCase c;
  JsonReader reader(json, where);
  std::int64_t tokens = 0, ep = 1;
  reader.get("model", c.model);
  reader.get("pass", c.pass);
  reader.get("tokens", tokens);
  reader.get("ep", ep);
  reader.get("hidden", c.hidden);
  reader.get("expert_width", c.width);
  reader.get("experts", c.experts);
  reader.get("top_k", c.top_k);
  reader.get("rows", c.rows);
  reader.get("cuda_graph", c.graph);
  reader.get("throttled", c.throttled);
  reader.get("us", c.us);
  reader.get("us_p10", c.us_p10);
  reader.get("us_p90", c.us_p90);
  reader.get("clock_mhz", c.clock_mhz);
  JsonReader steps = reader.child("steps_us");
  for (int i = 0; i < kLayerSteps; ++i)
    steps.get(kLayerStepNames[i], c.step_us[static_cast<std::size_t>(i)]);
  reader.join(steps);
  reader.ignore_rest();
  TRIFOLD_TRY(reader.finish());
  c.tokens = static_cast<int>(tokens);
  c.ep = static_cast<int>(ep);
  if (c.model.empty() || c.us <= 0 || c.tokens < 1 || c.ep < 1)
    return input_error("not a line of the layer test", where);
  return c;
}

Result<job::Job> job_of(const LayerCase& c, const hardware::Cluster& cluster,
                        const std::string& data_dir) {
  Json j;
  j["schema"] = "trifold.job/1";
  j["model"] = c.model;
  j["cluster"] = cluster.name;
  j["gpus"] = c.ep;
  j["training"] = {
      {"sequence_length", c.tokens}, {"micro_batch_size", 1}, {"global_batch_size", c.ep}};
  j["layout"] = {{"tp", 1}, {"pp", 1}, {"ep", c.ep}, {"etp", 1}};
  TRIFOLD_ASSIGN(job, job::read_job(j, "layer test", {data_dir, true}));
  const model::Moe& moe = job.model.moe;
  if (job.model.hidden != c.hidden || moe.expert_ffn != c.width || moe.experts != c.experts ||
      moe.top_k != c.top_k)
    return input_error("the layer test's '" + c.model + "' is not the catalogue's");
  job.cluster = cluster;
  job.techniques.dispatcher = job::Dispatcher::alltoall;
  job.techniques.fusions.insert(job::Fusion::permute);
  job.techniques.routing.balance = job::Balance::forced;
  if (c.graph) job.techniques.cuda_graph.insert(job::GraphScope::full_iteration);
  if (c.overlapped()) job.techniques.overlap.insert(job::Overlap::ep_a2a);
  return job;
}

// The step of an operator; -1: the test does not run it.
int step_of(const Operator& op) {
  constexpr std::pair<const char*, int> kNames[] = {
      {"router_gemm", 0},    {"router", 0},     {"permute", 1},           {"dispatch", 2},
      {"sort_by_expert", 3}, {"expert_fc1", 4}, {"expert_activation", 5}, {"expert_fc2", 6},
      {"unsort", 7},         {"combine", 8},    {"unpermute", 9}};
  for (const auto& [name, step] : kNames)
    if (std::strcmp(op.name, name) == 0) return step;
  return -1;
}

// What the test launches in place of what a framework does.
void add_bare(Operator op, double rows_over_even, const job::Job& job, layer::Block& out) {
  op.host_ops = 0;
  op.graph_scope = 0xff;
  if (std::strcmp(op.name, "router") == 0) {
    if (op.pass != Pass::forward) return;
    // Logits in; indices, probabilities and the map out. Top-k, histogram, scan, slots.
    op.bytes = op.m = 0;
    op.bytes = static_cast<double>(job.training.sequence_length) *
               static_cast<double>(job.model.moe.experts * 4 + job.model.moe.top_k * 24);
    op.kernels = 4;
  } else if (op.family == Family::memory_bound || op.family == Family::gemm) {
    op.kernels = 1;
  }
  if (op.family == Family::gemm) op.dtype = hardware::Dtype::bf16;
  if (op.family == Family::grouped_gemm) op.m *= rows_over_even, op.flops *= rows_over_even;
  const bool probabilities =
      op.family == Family::ep_comm && op.pass == Pass::forward && step_of(op) == 2;
  out.operators.push_back(op);
  if (!probabilities) return;
  op.scaleup_bytes *= 4.0 / (2.0 * static_cast<double>(job.model.hidden));
  out.operators.push_back(op);
}

// A case lasts as long as its busiest rank; the line has rank 0's rows. Of two ranks the other has
// what is left.
double busiest_rows(const LayerCase& c, double even) {
  if (c.rows <= 0) return even;
  return c.ep == 2 ? std::max(c.rows, 2 * even - c.rows) : c.rows;
}

layer::Block bare_block(const job::Job& job, const LayerCase& c) {
  layer::Block whole, bare;
  const model::LayerKind kind{true, false};
  layer::build_block(job, layer::BlockRole::layer, kind, whole);
  bare.role = whole.role;
  bare.kind = kind;
  const double even = static_cast<double>(c.tokens) * c.top_k;
  for (const Operator& op : whole.operators)
    if (step_of(op) >= 0) add_bare(op, busiest_rows(c, even) / even, job, bare);
  return bare;
}

sim::Load load_of(const Operator& op, double seconds, const cost::Pricer& pricer,
                  const job::Job& job) {
  const schedule::Contention model;
  const double sms = pricer.cluster().gpu.sms;
  switch (op.family) {
    case Family::gemm:
    case Family::grouped_gemm: {
      const double tiles = std::max(1, op.groups) * std::ceil(op.m / 128) * std::ceil(op.n / 256);
      return schedule::gemm_load(model, std::min(tiles, 16 * sms), sms, sms);
    }
    case Family::ep_comm: {
      const double moved = 2 * op.scaleup_bytes;  // read here, written by the peer
      return schedule::transfer_load(model, schedule::kScaleUp,
                                     pricer.dispatcher_sms(job.techniques), sms,
                                     moved / seconds / pricer.cluster().gpu.hbm_bandwidth.value());
    }
    default:
      return schedule::memory_load(model);
  }
}

// Forward on one stream; backward after it, or beside it on another.
double simulate(const layer::Block& block, const LayerCase& c, const cost::Pricer& pricer,
                const job::Job& job) {
  sim::Graph graph;
  sim::LoadTable loads;
  const sim::Index gpu = graph.add_domain();
  const sim::Index first = graph.add_stream(gpu);
  const sim::Index second = c.overlapped() ? graph.add_stream(gpu) : first;
  for (const bool forward : {true, false}) {
    if (c.pass == (forward ? "backward" : "forward")) continue;
    for (const Operator& op : block.operators) {
      if ((op.pass == Pass::forward) != forward) continue;
      const double seconds = pricer.price(op, job.techniques).seconds;
      graph.add_task(forward ? first : second, sim::to_picoseconds(seconds),
                     loads.add(load_of(op, seconds, pricer, job)));
    }
  }
  sim::Engine engine;
  const sim::Outcome& outcome = engine.run(graph, loads);
  TRIFOLD_CHECK(outcome.complete);
  return sim::to_seconds(outcome.makespan);
}

}  // namespace

Result<std::vector<LayerCase>> read_layer_test(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  std::istringstream in(text);
  std::vector<LayerCase> cases;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = path + ":" + std::to_string(++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    TRIFOLD_ASSIGN(json, parse_json(line, where));
    if (!json.is_object()) return input_error("not an object", where);
    if (!json.contains("model")) continue;  // the header
    TRIFOLD_ASSIGN(one, read_case(json, where));
    cases.push_back(one);
  }
  if (cases.empty()) return input_error("no cases of the layer test", path);
  return cases;
}

Result<hardware::Provenance> layer_provenance(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  hardware::Provenance p;
  TRIFOLD_ASSIGN(json, parse_json(text.substr(0, text.find('\n')), path + ":1"));
  if (!json.is_object() || json.contains("model")) return p;
  const std::pair<const char*, std::string*> fields[] = {
      {"gpu", &p.gpu}, {"driver", &p.driver}, {"cuda", &p.cuda}, {"nccl", &p.nccl}};
  for (const auto& [key, value] : fields)
    if (json.contains(key) && json[key].is_string()) *value = json[key].get<std::string>();
  return p;
}

Result<LayerPrediction> predict_layer(const LayerCase& c, const hardware::Cluster& cluster,
                                      const hardware::Profile& profile,
                                      const std::string& data_dir) {
  TRIFOLD_ASSIGN(job, job_of(c, cluster, data_dir));
  hardware::Profile bare = profile;
  bare.constants.find("ep_sync_latency_s")->second.value = 0;  // the counts are known beforehand
  const cost::Pricer pricer(cluster, bare);
  const layer::Block block = bare_block(job, c);
  LayerPrediction p;
  const bool forward = c.pass != "backward", backward = c.pass != "forward";
  for (const Operator& op : block.operators)
    if (op.pass == Pass::forward ? forward : backward)
      p.step_us[static_cast<std::size_t>(step_of(op))] +=
          1e6 * pricer.price(op, job.techniques).seconds;
  const cost::BlockCost cost = pricer.price_block(block, job.techniques);
  const double share = static_cast<double>(pricer.dispatcher_sms(job.techniques)) / cluster.gpu.sms;
  const estimate::LayerTime time =
      estimate::layer_time(job, cost, pricer.constants(), c.ep > 1 ? share : 0);
  const double closed =
      c.overlapped() ? time.pair.sum()
                     : (forward ? time.forward.sum() : 0) + (backward ? time.backward.sum() : 0);
  p.closed_us = 1e6 * closed;
  p.simulated_us = 1e6 * simulate(block, c, pricer, job);
  return p;
}

Result<std::vector<LayerComparison>> compare_layers(const std::string& path,
                                                    const hardware::Cluster& cluster,
                                                    const hardware::Profile& profile,
                                                    const std::string& data_dir) {
  TRIFOLD_ASSIGN(cases, read_layer_test(path));
  std::vector<LayerComparison> out;
  for (const LayerCase& c : cases) {
    TRIFOLD_ASSIGN(predicted, predict_layer(c, cluster, profile, data_dir));
    out.push_back({c, predicted});
  }
  return out;
}

std::string layer_table(const std::vector<LayerComparison>& comparisons) {
  Table table({"Model", "EP", "Pass", "Graph", "MHz", "Measured us", "p10", "p90", "Estimate us",
               "error", "Simulate us", "error"});
  for (const LayerComparison& c : comparisons) {
    const LayerCase& m = c.measured;
    table.add({m.model, fmt::format("{}", m.ep), m.pass, m.graph ? "graph" : "-",
               fmt::format("{:.0f}{}", m.clock_mhz, m.throttled ? "!" : ""),
               fmt::format("{:.0f}", m.us), fmt::format("{:.0f}", m.us_p10),
               fmt::format("{:.0f}", m.us_p90), fmt::format("{:.0f}", c.predicted.closed_us),
               fmt::format("{:+.1f} %", 100 * c.closed_error()),
               fmt::format("{:.0f}", c.predicted.simulated_us),
               fmt::format("{:+.1f} %", 100 * c.simulated_error())});
  }
  return table.text();
}

}  // namespace trifold::calibrate

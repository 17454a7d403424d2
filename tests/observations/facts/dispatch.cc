// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>

#include "calibrate/fit/traffic.h"
#include "facts_table.h"
#include "layer/block.h"
#include "layer/shape.h"

// Published dispatch and combine times: 7168 wide, top 8, one Job a row, priced as any Job's.
// Calibrate's dispatch_fit.cc fits the dispatchers' rates to most of these rows (all of a source,
// or none); its own report has the error of five folds that did not see the rows they judge.

namespace trifold::facts {
namespace {

struct Case {
  std::string cluster, dispatcher;
  int ranks = 8, tokens = 4096, sms = 0;  // 0: the dispatcher's own number
  int experts = 256, groups = 0, groups_used = 0;
  bool combine = false, fp8 = false;
};

job::Job job_of(const Case& c) {
  const std::string limit =
      c.groups > 0 ? fmt::format(R"(, "n_group": {}, "topk_group": {})", c.groups, c.groups_used)
                   : "";
  const std::string sms = c.sms > 0 ? fmt::format(R"("dispatcher_sms": {}, )", c.sms) : "";
  return read(fmt::format(
      R"({{"model": {{"num_layers": 1, "hidden_size": 7168, "num_attention_heads": 56,
            "head_dim": 128, "vocab_size": 128, "num_experts": {}, "num_experts_per_tok": 8,
            "moe_intermediate_size": 2048, "intermediate_size": 2048{}}},
          "cluster": "{}", "gpus": {},
          "training": {{"sequence_length": {}, "global_batch_size": {}, "micro_batch_size": 1}},
          "layout": {{"ep": {}}},
          "techniques": {{"dispatcher": "{}", {}"dispatch_precision": "{}",
            "routing": {{"balance": "forced"}}}}}})",
      c.experts, limit, c.cluster, c.ranks, c.tokens, c.ranks, c.ranks, c.dispatcher, sms,
      c.fp8 ? "fp8" : "bf16"));
}

class Clusters {
 public:
  // Seconds of the transfer, and of the copies that a call through PyTorch adds: what is sent into
  // the library's buffer, what arrives out of it.
  std::pair<double, double> seconds(const Case& c) {
    const job::Job job = job_of(c);
    Machine& machine = of(job);
    layer::Block block;
    layer::build_operators(job, layer::BlockRole::layer, job.model.layers.front(), block);
    for (const layer::Operator& op : block.operators) {
      if (op.family != layer::Family::ep_comm || op.pass != layer::Pass::forward) continue;
      if (op.name != std::string(c.combine ? "combine" : "dispatch")) continue;
      const double sent =
          op.bytes / layer::exchange_of(job, layer::expert_load(job)).arriving_tokens * c.tokens;
      return {machine.pricer->price(op, job.techniques).seconds,
              machine.pricer->memory_seconds(2 * (sent + op.bytes))};
    }
    ADD_FAILURE() << "no transfer in the block";
    return {0, 0};
  }
  int domain(const Case& c) { return job_of(c).cluster.gpus_used_per_domain; }

 private:
  struct Machine {
    hardware::Cluster cluster;
    hardware::Profile profile;
    std::unique_ptr<cost::Pricer> pricer;
  };
  Machine& of(const job::Job& job) {
    Machine& m = machines_[job.cluster.name];
    if (m.pricer == nullptr) {
      m.cluster = job.cluster;
      m.profile = benchmark_profile(job.cluster.profile);
      m.pricer = std::make_unique<cost::Pricer>(m.cluster, m.profile);
    }
    return m;
  }
  std::map<std::string, Machine> machines_;
};

std::string text(const Json& fact, const char* key) {
  const auto it = fact.find(key);
  return it == fact.end() || !it->is_string() ? std::string() : it->get<std::string>();
}

bool has(const std::string& where, const char* what) {
  return where.find(what) != std::string::npos;
}

// "16 SMs", "EP 8x2, 12 SMs": the number before the word.
int sms_in(const std::string& notes) {
  const std::size_t at = notes.find(" SMs");
  if (at == std::string::npos) return 0;
  const std::size_t before = notes.rfind(' ', at - 1);
  return std::atoi(notes.c_str() + (before == std::string::npos ? 0 : before + 1));
}

// The README's bandwidths count a token once for every distinct rank of one domain, or node of
// several, that it goes to, the local one included.
double seconds_of_bandwidth(const Case& c, int domain, double bytes_per_s) {
  const fit::Routing routing{double(c.experts), 8, double(c.groups), double(c.groups_used)};
  const double parts = c.ranks <= domain ? c.ranks : std::ceil(double(c.ranks) / domain);
  const double row = c.fp8 && !c.combine ? 7168 * (1 + 4.0 / 128) : 7168 * 2;
  return c.tokens * row * fit::expected_parts(routing, parts) / bytes_per_s;
}

struct Placed {
  Case c;
  std::string source;
  bool microseconds = false, through_torch = false;
};

// 4096 tokens of DeepSeek-V3 in BF16; the paper leaves the routing open, its model limits it to 4
// of 8 groups.
Placed table_seven(const Json& fact) {
  Placed p;
  const bool nccl = has(text(fact, "dispatcher"), "NCCL");
  p.c.cluster = text(fact, "gpu") == "H100" ? "dgx-h100" : "gb200-nvl72";
  p.c.dispatcher = nccl ? "alltoall" : "hybridep";
  p.c.groups = 8, p.c.groups_used = 4;
  p.source = fmt::format("2603.07685 Table 7, {} {}", text(fact, "gpu"), p.c.dispatcher);
  p.microseconds = true;
  return p;
}

Placed hybridep_readme(const Json& fact) {
  Placed p;
  const std::string gpu = text(fact, "gpu"), dispatcher = text(fact, "dispatcher");
  p.c.cluster = gpu == "H100" ? "dgx-h100" : gpu == "B200" ? "dgx-b200" : "gb200-nvl72";
  p.c.dispatcher = has(dispatcher, "HybridEP") ? "hybridep" : "deepep";
  p.c.sms = sms_in(text(fact, "notes"));
  p.c.experts = 8 * fact.at("ep").get<int>();
  const bool kernel = has(dispatcher, "kernel only") || has(text(fact, "op"), "kernel only");
  p.through_torch = !kernel && p.c.dispatcher == "hybridep";
  const bool cliff = gpu == "GB200" && p.c.dispatcher == "deepep" && fact.at("ep") == 24 &&
                     has(text(fact, "op"), "combine");
  p.source = fmt::format("HybridEP README, {} {}{}", gpu, p.c.dispatcher,
                         cliff                        ? ", combine at EP24"
                         : p.c.dispatcher == "deepep" ? ""
                         : kernel                     ? " kernel"
                                                      : " through PyTorch");
  return p;
}

// H800, 24 SMs; the library's tests limit a token to 4 of the nodes.
Placed deepep_v1(const Json& fact) {
  Placed p;
  p.c.cluster = "hgx-h800";
  p.c.dispatcher = "deepep";
  p.c.sms = 24;
  const int nodes = fact.at("ep").get<int>() / 8;
  if (nodes > 4) p.c.groups = nodes, p.c.groups_used = 4;
  p.source = has(text(fact, "source"), "2505.09343") ? "2505.09343 Fig 7, H800 deepep"
                                                     : "DeepEP V1 README, H800 deepep";
  return p;
}

Placed deepep_v2(const Json& fact) {
  Placed p;
  p.c.cluster = has(text(fact, "gpu"), "SM90") ? "dgx-h100" : "dgx-b200";
  p.c.dispatcher = "deepep";
  p.c.tokens = 8192;
  p.c.sms = sms_in(text(fact, "notes"));
  p.source = "DeepEP V2 README, priced as V1";
  return p;
}

bool place(const Json& fact, Placed& p) {
  const std::string source = text(fact, "source");
  if (has(source, "2603.07685 Table 7"))
    p = table_seven(fact);
  else if (has(source, "README_Hybrid-EP"))
    p = hybridep_readme(fact);
  else if (has(source, "README (V2)"))
    p = deepep_v2(fact);
  else if (has(source, "2505.09343 Fig 7") ||
           (has(source, "legacy.md") && !has(source, "low-latency")))
    p = deepep_v1(fact);
  else
    return false;
  p.c.ranks = fact.at("ep").get<int>();
  p.c.combine = has(text(fact, "op"), "combine");
  const bool v1 = p.source.find("H800") != std::string::npos;
  p.c.fp8 = !p.c.combine && (has(text(fact, "op"), "FP8") || v1);
  return true;
}

TEST(Facts, DispatchAndCombine) {
  if (!have_shared()) GTEST_SKIP() << "../shared is not here";
  Clusters clusters;
  std::vector<Row> rows;
  for (const Json& fact : facts()) {
    Placed p;
    if (!place(fact, p)) continue;
    const double value = fact.at("value").get<double>();
    const auto [transfer, copies] = clusters.seconds(p.c);
    const double published = p.microseconds
                                 ? value * 1e-6
                                 : seconds_of_bandwidth(p.c, clusters.domain(p.c), value * 1e9);
    rows.push_back(
        {p.source, text(fact, "id"),
         fmt::format("{} EP{}{}{}", p.c.combine ? "combine" : "dispatch", p.c.ranks,
                     p.c.fp8 ? " FP8" : "", p.c.sms > 0 ? fmt::format(" {} SMs", p.c.sms) : ""),
         published, transfer + (p.through_torch ? copies : 0)});
  }
  judge("Dispatch and combine", rows,
        {{"2603.07685 Table 7, H100 alltoall", "all rows"},
         {"2603.07685 Table 7, GB200 alltoall", "all rows"},
         {"2603.07685 Table 7, H100 hybridep", "all rows"},
         {"2603.07685 Table 7, GB200 hybridep", "all rows"},
         {"DeepEP V1 README, H800 deepep", "all rows"},
         {"2505.09343 Fig 7, H800 deepep", "no"},
         {"HybridEP README, H100 hybridep kernel", "all rows"},
         {"HybridEP README, B200 hybridep kernel", "all rows"},
         {"HybridEP README, GB200 hybridep kernel", "all rows"},
         {"HybridEP README, H100 hybridep through PyTorch", "no"},
         {"HybridEP README, B200 hybridep through PyTorch", "no"},
         {"HybridEP README, GB200 hybridep through PyTorch", "no"},
         {"HybridEP README, B200 deepep", "all rows"},
         {"HybridEP README, GB200 deepep", "EP8 and EP16"},
         // A build patched for NVLink across trays; its combine falls to a third there.
         {"HybridEP README, GB200 deepep, combine at EP24", "no", 0.65},
         // Another program (NCCL's device API, other kernels): no Job can choose it.
         {"DeepEP V2 README, priced as V1", "no", 0.55}},
        true, 0.12);
}

}  // namespace
}  // namespace trifold::facts

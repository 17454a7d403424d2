// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/knock_out.h"

#include <algorithm>
#include <functional>

namespace trifold::fit {

namespace {

using observe::Observation;

// Taken out of the Jobs, out of the constants (held at a value that means "free"), or both.
struct Mechanism {
  const char* name;
  std::function<void(job::Job&)> job;
  std::vector<std::pair<const char*, double>> constants;
};

void small_domains(job::Job& job) {
  hardware::Cluster& c = job.cluster;
  if (c.domain_gpus <= 8) return;
  c.domain_gpus = c.gpus_used_per_domain = 8;
  c.name += "-domains-of-8";
}

const std::vector<Mechanism>& mechanisms() {
  static const std::vector<Mechanism> list = {
      {"NVLink domains of 72 (taken as 8)", small_domains, {}},
      {"merged forward-backward (EP overlap)",
       [](job::Job& j) { j.techniques.overlap.erase(job::Overlap::ep_a2a); },
       {}},
      {"DeepEP and HybridEP (taken as all-to-all)",
       [](job::Job& j) {
         if (is_flex(j.techniques.dispatcher)) j.techniques.dispatcher = job::Dispatcher::alltoall;
       },
       {}},
      {"memory-bound operators", nullptr, {{"hbm_efficiency", 1e3}}},
      {"quantise passes", nullptr, {{"quantize_efficiency", 1e3}}},
      {"gaps between kernels", nullptr, {{"kernel_gap_s", 1e-12}, {"kernel_gap_graph_s", 1e-12}}},
      {"host time", nullptr, {{"host_op_s", 1e-12}}},
      {"CUDA graphs", [](job::Job& j) { j.techniques.cuda_graph = {}; }, {}},
      {"recompute", [](job::Job& j) { j.techniques.recompute = {}; }, {}},
      {"sustained clocks", nullptr, {{"gemm_sustained_factor", 1}}},
      {"exposed data-parallel traffic under overlap", nullptr, {{"dp_overlap_exposed", 1e-3}}},
      {"exposed tensor-parallel traffic under overlap", nullptr, {{"tp_overlap_exposed", 1e-3}}},
      {"waiting at a step's end", nullptr, {{"step_sync_s", 1e-12}}},
      {"NVFP4's own factor", nullptr, {{"low_precision_factor", 1}}},
      {"natural routing (taken as balanced)",
       [](job::Job& j) { j.techniques.routing.balance = job::Balance::forced; },
       {}}};
  return list;
}

}  // namespace

std::vector<KnockOut> knock_out(const std::vector<Observation>& observations,
                                const Profiles& profiles) {
  std::vector<KnockOut> table;
  for (const Mechanism& mechanism : mechanisms()) {
    std::vector<Observation> changed = observations;
    if (mechanism.job)
      for (Observation& o : changed) mechanism.job(o.job);
    Profiles held = profiles;
    std::vector<Parameter> parameters = fitted_parameters(profiles);
    for (const auto& [key, value] : mechanism.constants) {
      for (auto& [name, profile] : held) profile.constants[key].value = value;
      parameters.erase(
          std::remove_if(parameters.begin(), parameters.end(),
                         [&, k = std::string(key)](const Parameter& p) { return p.key == k; }),
          parameters.end());
    }
    table.push_back({mechanism.name, fit_constants(fit_cases(changed), held, parameters).errors});
  }
  return table;
}

}  // namespace trifold::fit

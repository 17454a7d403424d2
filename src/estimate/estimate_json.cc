// SPDX-License-Identifier: Apache-2.0
#include "estimate/estimate.h"

namespace trifold::estimate {

std::vector<std::pair<std::string, double>> Time::terms() const {
  std::vector<std::pair<std::string, double>> list = {{"compute", compute},
                                                      {"recompute", recompute},
                                                      {"bubble", bubble},
                                                      {"host", host},
                                                      {"optimizer", optimizer}};
  for (std::size_t i = 0; i < kComms; ++i)
    list.emplace_back(std::string("exposed ") + kCommNames[i], exposed[i]);
  return list;
}

namespace {

Json memory_json(const memory::Memory& memory) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < memory.stages.size(); ++i) {
    const memory::StageMemory& s = memory.stages[i];
    stages.push_back({{"stage", i},
                      {"weights_bytes", s.weights.value()},
                      {"gradients_bytes", s.gradients.value()},
                      {"optimizer_bytes", s.optimizer.value()},
                      {"activations_bytes", s.activations.value()},
                      {"buffers_bytes", s.buffers.value()},
                      {"peak_bytes", s.peak.value()},
                      {"reserved_bytes", s.reserved.value()}});
  }
  return {{"capacity_bytes", memory.capacity.value()},
          {"peak_bytes", memory.peak.value()},
          {"reserved_bytes", memory.reserved.value()},
          {"headroom_bytes", memory.headroom.value()},
          {"fits", memory.fits()},
          {"worst_stage", memory.worst_stage},
          {"stages", stages}};
}

}  // namespace

Json to_json(const Estimate& e, const job::Job& job) {
  Json exposed, communication;
  for (std::size_t i = 0; i < kComms; ++i) {
    exposed[kCommNames[i]] = e.time.exposed[i];
    communication[kCommNames[i]] = {
        {"total_s", e.communication[i].total_s},
        {"exposed_s", e.communication[i].exposed_s},
        {"total_share", e.communication[i].total_s / e.step_time_s},
        {"exposed_share", e.communication[i].exposed_s / e.step_time_s}};
  }
  Json kernels;
  for (std::size_t i = 0; i < kWorks; ++i)
    kernels[kWorkNames[i]] = {{"forward_s", e.kernels.forward[i]},
                              {"backward_s", e.kernels.backward[i]}};
  Json basis;
  for (const auto& token : hardware::kBases)
    basis[std::string(token.name)] = e.basis_share[static_cast<std::size_t>(token.value)];
  return {{"schema", "trifold.estimate/1"},
          {"job_id", job::job_id(job)},
          {"method", "closed form"},
          {"step_time_s", {{"value", e.step_time_s}, {"low", e.low_s}, {"high", e.high_s}}},
          {"tokens_per_s_per_gpu", e.tokens_per_s_per_gpu},
          {"tflops_per_gpu", e.tflops_per_gpu},
          {"mfu", e.mfu},
          {"time_s",
           {{"compute", e.time.compute},
            {"recompute", e.time.recompute},
            {"bubble", e.time.bubble},
            {"host", e.time.host},
            {"optimizer", e.time.optimizer},
            {"exposed", exposed}}},
          {"communication", communication},
          {"kernels", kernels},
          {"memory", memory_json(e.memory)},
          {"basis_share", basis}};
}

}  // namespace trifold::estimate

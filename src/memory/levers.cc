// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "job/legality.h"
#include "memory/memory.h"

// Single changes that may free memory, each tried on a copy of the Job. Changes that break a rule
// which the Job keeps are left out (job/legality.h); a changed layout is cut anew.

namespace trifold::memory {

namespace {

struct Candidate {
  std::string name;
  bool layout = false;
  std::function<bool(job::Job&)> apply;  // false: changes nothing
};

template <class E>
bool insert(EnumSet<E>& set, E value) {
  if (set.contains(value)) return false;
  set.insert(value);
  return true;
}

void add_technique_levers(const job::Job& job, std::vector<Candidate>& out) {
  for (const auto& token : job::kRecomputes) {
    if (job.techniques.has(job::Recompute::full)) break;
    const job::Recompute r = token.value;
    out.push_back({fmt::format("recompute {}", token.name), false,
                   [r](job::Job& j) { return insert(j.techniques.recompute, r); }});
  }
  for (const auto& token : job::kOffloadModules) {
    const job::OffloadModule m = token.value;
    out.push_back({fmt::format("offload {}", token.name), false, [m](job::Job& j) {
                     return insert(j.techniques.offload.activation_modules, m);
                   }});
  }
  out.push_back({"optimizer on the host (cpu_adam)", false, [](job::Job& j) {
                   const bool change =
                       j.techniques.offload.optimizer == job::OptimizerOffload::none;
                   j.techniques.offload.optimizer = job::OptimizerOffload::cpu_adam;
                   return change;
                 }});
  out.push_back({"precision-aware optimizer (BF16 moments)", false, [](job::Job& j) {
                   const bool change = j.training.optimizer.moments == job::StateType::fp32;
                   j.training.optimizer.moments = job::StateType::bf16;
                   return change;
                 }});
  out.push_back({"gradients reduced in BF16", false, [](job::Job& j) {
                   const bool change = j.training.optimizer.grad_reduce == job::StateType::fp32;
                   j.training.optimizer.grad_reduce = job::StateType::bf16;
                   j.training.optimizer.main_grads = job::StateType::bf16;
                   return change;
                 }});
  out.push_back({"distributed optimizer", false, [](job::Job& j) {
                   const bool change = !j.training.optimizer.distributed;
                   j.training.optimizer.distributed = true;
                   return change;
                 }});
  out.push_back({"memory-efficient permutation", false, [](job::Job& j) {
                   const bool change =
                       j.model.is_moe() && !j.techniques.memory_efficient_permutation;
                   j.techniques.memory_efficient_permutation = true;
                   return change;
                 }});
  out.push_back({"fused cross entropy", false, [](job::Job& j) {
                   return insert(j.techniques.fusions, job::Fusion::cross_entropy);
                 }});
  out.push_back({"paged stash", false, [](job::Job& j) {
                   const bool change = j.model.is_moe() && !j.techniques.paged_stash;
                   j.techniques.paged_stash = true;
                   return change;
                 }});
}

void add_layout_levers(const job::Job& job, std::vector<Candidate>& out) {
  const layout::Layout& l = job.layout;
  const auto doubled = [&](const char* name, int value, auto apply) {
    out.push_back({fmt::format("{} {} -> {}", name, value, value * 2), true, apply});
  };
  doubled("pp", l.pp, [](job::Job& j) {
    j.layout.pp *= 2;
    j.layout.pipeline_layout.clear();
    return true;
  });
  if (job.model.is_moe()) doubled("ep", l.ep, [](job::Job& j) { return (j.layout.ep *= 2) > 0; });
  doubled("tp", l.tp, [](job::Job& j) {
    j.layout.tp *= 2;
    j.techniques.sequence_parallel = true;
    return true;
  });
  doubled("cp", l.cp, [](job::Job& j) { return (j.layout.cp *= 2) > 0; });
  if (l.vpp > 1)
    out.push_back({fmt::format("vpp {} -> 1", l.vpp), true, [](job::Job& j) {
                     j.layout.vpp = 1;
                     j.layout.pipeline_layout.clear();
                     j.schedule.kind = layout::ScheduleKind::one_f_one_b;
                     return true;
                   }});
  const std::int64_t mbs = job.training.micro_batch_size;
  if (mbs > 1 && mbs % 2 == 0)
    out.push_back({fmt::format("micro batch {} -> {}", mbs, mbs / 2), true, [](job::Job& j) {
                     j.training.micro_batch_size /= 2;
                     return true;
                   }});
}

}  // namespace

std::vector<Lever> levers(const job::Job& job, const layout::Pipeline& pipeline) {
  std::vector<Candidate> candidates;
  add_technique_levers(job, candidates);
  add_layout_levers(job, candidates);
  Memory memory;
  evaluate(job, pipeline, memory);
  const Bytes before = memory.peak;
  const job::Rule* broken = job::check(job, pipeline).rule;  // a Job of another runtime
  std::vector<Lever> out;
  for (const Candidate& c : candidates) {
    job::Job changed = job;
    changed.measured_rank = -1;
    if (!c.apply(changed)) continue;
    const Result<layout::Pipeline> cut = layout::build_pipeline(changed.model, changed.layout);
    if (!cut) continue;
    const job::Verdict verdict = job::check(changed, *cut);
    if (!verdict.legal() && verdict.rule != broken) continue;
    evaluate(changed, *cut, memory);
    if (memory.peak < before)
      out.push_back(Lever{c.name, before - memory.peak, memory.peak, c.layout});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Lever& a, const Lever& b) { return a.freed > b.freed; });
  return out;
}

}  // namespace trifold::memory

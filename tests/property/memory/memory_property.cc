// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "../../unit/memory/jobs.h"

// Properties of the memory model over random Jobs.

namespace trifold::memory_test {
namespace {

template <class T>
T pick(std::initializer_list<T> from) {
  return *rc::gen::elementOf(std::vector<T>(from));
}

job::Job random_job() {
  job::Job j = job_of(*rc::gen::inRange(0, 2) == 0 ? moe_model() : mla_model(), 64);
  j.layout.tp = pick({1, 2, 4});
  j.layout.cp = pick({1, 2});
  j.layout.pp = pick({1, 2, 4});
  j.layout.ep = pick({1, 2, 4, 8});
  j.layout.vpp = j.layout.pp > 1 ? pick({1, 2}) : 1;
  if (j.layout.vpp > 1) j.schedule.kind = layout::ScheduleKind::interleaved;
  j.training.micro_batch_size = pick<std::int64_t>({1, 2, 4});
  j.training.sequence_length = pick<std::int64_t>({1024, 4096});
  j.training.precision = pick({job::Precision::bf16, job::Precision::mxfp8});
  j.techniques.sequence_parallel = j.layout.tp > 1 && *rc::gen::arbitrary<bool>();
  j.techniques.implementation =
      pick({job::Implementation::transformer_engine, job::Implementation::local});
  j.techniques.memory_efficient_permutation = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) j.techniques.fusions.insert(job::Fusion::cross_entropy);
  return j;
}

Bytes peak(const job::Job& j) { return evaluate(j).peak; }

void check(const char* name, void (*property)()) { EXPECT_TRUE(rc::check(name, property)); }

TEST(MemoryProperty, MonotoneInTheBatch) {
  check("a larger micro-batch never takes less", [] {
    job::Job j = random_job();
    const Bytes before = peak(j);
    j.training.micro_batch_size *= 2;
    j.training.global_batch_size *= 2;  // as many micro-batches
    RC_ASSERT(peak(j) >= before);
  });
}

TEST(MemoryProperty, MonotoneInTheSequence) {
  check("a longer sequence never takes less", [] {
    job::Job j = random_job();
    const Bytes before = peak(j);
    j.training.sequence_length *= 2;
    RC_ASSERT(peak(j) >= before);
  });
}

TEST(MemoryProperty, MonotoneInExpertsPerRank) {
  check("more experts a rank never take less", [] {
    job::Job j = random_job();
    const Bytes before = peak(j);
    j.model.moe.experts *= 2;
    RC_ASSERT(peak(j) >= before);
  });
}

TEST(MemoryProperty, RecomputeNeverAdds) {
  check("recompute never adds", [] {
    job::Job j = random_job();
    const Bytes before = peak(j);
    const auto module =
        pick({job::Recompute::core_attn, job::Recompute::moe_act, job::Recompute::layernorm,
              job::Recompute::mla_up_proj, job::Recompute::mlp, job::Recompute::moe,
              job::Recompute::shared_experts, job::Recompute::full});
    j.techniques.recompute.insert(module);
    RC_ASSERT(peak(j) <= before);
  });
}

// What the planner's pruning rests on (planner/space.cc, undercuts).
TEST(MemoryProperty, SavingsOnTopOfOthersNeverAdd) {
  check("rebuilding or offloading more never adds", [] {
    job::Job j = random_job();
    j.techniques.implementation = job::Implementation::transformer_engine;
    j.layout.fsdp = *rc::gen::arbitrary<bool>();
    const auto module = [] {
      return pick({job::Recompute::moe_act, job::Recompute::layernorm, job::Recompute::mla_up_proj,
                   job::Recompute::mlp, job::Recompute::shared_experts});
    };
    const auto tensor = [] {
      return pick({job::OffloadModule::expert_fc1, job::OffloadModule::moe_act});
    };
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) j.techniques.recompute.insert(module());
    if (*rc::gen::arbitrary<bool>()) j.techniques.offload.activation_modules.insert(tensor());
    const Bytes before = peak(j);
    if (*rc::gen::arbitrary<bool>())
      j.techniques.recompute.insert(module());
    else
      j.techniques.offload.activation_modules.insert(tensor());
    RC_ASSERT(peak(j) <= before);
    j.training.optimizer.moments = job::StateType::bf16;
    RC_ASSERT(peak(j) <= before);
  });
}

TEST(MemoryProperty, OffloadNeverAdds) {
  check("offload never adds", [] {
    job::Job j = random_job();
    const Bytes before = peak(j);
    j.techniques.offload.activation_modules.insert(
        pick({job::OffloadModule::core_attn, job::OffloadModule::attn_proj,
              job::OffloadModule::expert_fc1, job::OffloadModule::moe_act,
              job::OffloadModule::attn_norm, job::OffloadModule::mlp_norm,
              job::OffloadModule::qkv_linear, job::OffloadModule::fused_group_mlp}));
    j.techniques.offload.activation_layers = *rc::gen::inRange(0, 3);
    j.techniques.offload.optimizer =
        pick({job::OptimizerOffload::none, job::OptimizerOffload::cpu_adam});
    RC_ASSERT(peak(j) <= before);
  });
}

TEST(MemoryProperty, PartsSumToThePeak) {
  check("parts sum to the peak, terms to the parts", [] {
    const job::Job j = random_job();
    const memory::Memory m = evaluate(j);
    const layout::Pipeline pipeline = cut(j);
    for (int stage = 0; stage < pipeline.pp; ++stage) {
      const memory::StageMemory& s = m.stages[static_cast<std::size_t>(stage)];
      RC_ASSERT(s.peak == s.weights + s.gradients + s.optimizer + s.activations + s.buffers);
      Bytes sum;
      for (const memory::Term& t : memory::explain(j, pipeline, stage)) sum += t.bytes;
      RC_ASSERT(sum == s.peak);
    }
  });
}

TEST(MemoryProperty, LabelsDoNotMatter) {
  check("names and seeds change nothing", [] {
    job::Job j = random_job();
    const Bytes before = peak(j);
    j.model.name = "another", j.cluster.name = "elsewhere", j.profile = "p";
    j.techniques.routing.seed += 1;
    RC_ASSERT(peak(j) == before);
  });
}

}  // namespace
}  // namespace trifold::memory_test

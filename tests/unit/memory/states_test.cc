// SPDX-License-Identifier: Apache-2.0
#include "memory/states.h"

#include <gtest/gtest.h>

#include "jobs.h"
#include "model/size.h"

namespace trifold::memory_test {
namespace {

using memory::Sizes;

std::int64_t elements(const job::Job& j, bool moe) {
  memory::CountSink sink;
  memory::add_layer_parameters(j, memory::sizes_of(j), model::LayerKind{moe, false}, sink);
  return sink.elements[0] + sink.elements[1] + sink.elements[2];
}

// Undivided, a rank holds what model/size.h counts.
TEST(States, ElementsAreTheModels) {
  for (const model::Model& m : {dense_model(), moe_model(), mla_model()}) {
    const job::Job j = job_of(m, 1);
    const bool moe = m.is_moe();
    EXPECT_EQ(elements(j, moe), model::layer_parameters(m, model::LayerKind{moe, false}).total())
        << m.name;
  }
  model::Model gated = moe_model();
  gated.attention.qk_norm = gated.attention.sinks = gated.attention.output_gate = true;
  gated.attention.qkv_bias = gated.linear_bias = gated.post_norms = true;
  gated.moe.shared_ffn = 512, gated.moe.shared_gate = true;
  gated.norm = model::Norm::layernorm;
  const job::Job j = job_of(gated, 1);
  EXPECT_EQ(elements(j, true), model::layer_parameters(gated, model::LayerKind{true}).total());
}

// Attention per layer 1024 x (16 + 8) x 64 + 16 x 64 x 1024 = 2,621,440; norms 2048; feed-forward
// 3 x 1024 x 4096 = 12,582,912: 15,206,400. 8 layers, embedding and head 32,000 x 1024 each, final
// norm 1024: 187,188,224 elements, a multiple of lcm(4, 128) = 128.
TEST(States, DenseDistributedOptimizer) {
  const std::int64_t p = 8 * 15'206'400 + 2 * 32'000 * 1024 + 1024;
  ASSERT_EQ(p % 128, 0);
  const memory::StageMemory s = evaluate(job_of(dense_model(), 4)).stages[0];
  EXPECT_EQ(s.weights.value(), 2 * p);
  EXPECT_EQ(s.gradients.value(), 4 * p);
  EXPECT_EQ(s.optimizer.value(), 12 * p / 4);
}

TEST(States, PlainDataParallelKeepsEighteenBytes) {
  job::Job j = job_of(dense_model(), 4);
  j.training.optimizer.distributed = false;
  const std::int64_t p = 8 * 15'206'400 + 2 * 32'000 * 1024 + 1024;
  const memory::StageMemory s = evaluate(j).stages[0];
  EXPECT_EQ((s.weights + s.gradients + s.optimizer).value(), 18 * p);
}

// Expert states over edp, dense ones over dp x cp. 8 GPUs, ep 4: edp 2, dp 8. Dense a layer:
// 2,621,440 + 2048 + router 16 x 1024 = 2,639,872. Experts a rank and layer: 4 x 3 x 1024 x 512.
TEST(States, ExpertsShardOverTheirOwnGroup) {
  job::Job j = job_of(moe_model(), 8);
  j.layout.ep = 4;
  const std::int64_t dense = 8 * 2'639'872 + 2 * 32'000 * 1024 + 1024;
  const std::int64_t expert = 8 * std::int64_t{4} * 3 * 1024 * 512;
  ASSERT_EQ(dense % 128, 0);
  const memory::StageMemory s = evaluate(j).stages[0];
  EXPECT_EQ(s.weights.value(), 2 * (dense + expert));
  EXPECT_EQ(s.optimizer.value(), 12 * dense / 8 + 12 * expert / 2);
}

// 15,206,400 + 32,000 x 1024 elements on the first of 8 stages; 24 GPUs give D = 3, and buckets end
// on lcm(3, 128) = 384 elements: 47,974,400 -> 47,974,656.
TEST(States, BucketsArePadded) {
  job::Job j = job_of(dense_model(), 24);
  j.layout.pp = 8;
  j.training.global_batch_size = 240;
  const memory::StageMemory s = evaluate(j).stages[0];
  EXPECT_EQ(s.gradients.value(), 4 * std::int64_t{47'974'656});
  EXPECT_EQ(s.optimizer.value(), 12 * std::int64_t{47'974'656} / 3);
}

TEST(States, PrecisionAware) {
  job::Job j = job_of(dense_model(), 4);
  const memory::StageMemory full = evaluate(j).stages[0];
  j.training.optimizer.moments = job::StateType::bf16;
  EXPECT_EQ(evaluate(j).stages[0].optimizer.value(), full.optimizer.value() * 8 / 12);
  j.training.optimizer.main_params = job::StateType::bf16;  // 2-byte remainders
  EXPECT_EQ(evaluate(j).stages[0].optimizer.value(), full.optimizer.value() * 6 / 12);
  j.training.optimizer.grad_reduce = job::StateType::bf16;
  EXPECT_EQ(evaluate(j).stages[0].gradients.value(), full.gradients.value() / 2);
  j.techniques.offload.optimizer = job::OptimizerOffload::cpu_adam;
  EXPECT_EQ(evaluate(j).stages[0].optimizer.value(), 0);
}

// MXFP8 with parameter gather: linear weights 2 x (1 + 1/32) bytes; embedding, head and norms bf16.
TEST(States, Mxfp8Weights) {
  job::Job j = job_of(dense_model(), 4);
  j.training.precision = job::Precision::mxfp8;
  j.training.optimizer.fp8_param_gather = true;
  const std::int64_t linear = 8 * std::int64_t{2'621'440 + 12'582'912};
  const std::int64_t other = 8 * 2048 + 2 * 32'000 * 1024 + 1024;
  EXPECT_EQ(evaluate(j).stages[0].weights.value(), linear * 66 / 32 + other * 2);
  j.training.optimizer.fp8_param_gather = false;
  EXPECT_EQ(evaluate(j).stages[0].weights.value(), linear * 66 / 32 + linear * 2 + other * 2);
}

TEST(States, FullySharded) {
  job::Job j = job_of(dense_model(), 4);
  const memory::StageMemory plain = evaluate(j).stages[0];
  j.layout.fsdp = true;
  const memory::StageMemory s = evaluate(j).stages[0];
  EXPECT_EQ(s.weights.value(), plain.weights.value() / 4);
  EXPECT_EQ(s.gradients.value(), plain.gradients.value() / 4);
  EXPECT_EQ(s.optimizer, plain.optimizer);
}

// The MTP stage holds an embedding of its own: h V more than the same cut without it, beside the
// depth's layer and its 2h x h projection with three norms.
TEST(States, MtpCopiesTheEmbedding) {
  job::Job j = job_of(dense_model(), 4);
  j.layout.pp = 2;
  const std::int64_t without = evaluate(j).stages[1].weights.value();
  j.model.mtp_layers = 1;
  const std::int64_t depth = 15'206'400 + 2 * 1024 * 1024 + 3 * 1024;
  EXPECT_EQ(evaluate(j).stages[1].weights.value() - without, 2 * (32'000 * 1024 + depth));
}

}  // namespace
}  // namespace trifold::memory_test

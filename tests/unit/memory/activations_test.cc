// SPDX-License-Identifier: Apache-2.0
#include "memory/activations.h"

#include <gtest/gtest.h>

#include "jobs.h"

namespace trifold::memory_test {
namespace {

using job::Recompute;

std::int64_t saved(const job::Job& j, bool moe) {
  memory::SumSink sink;
  memory::add_layer(j, memory::sizes_of(j), model::LayerKind{moe, false}, sink);
  return sink.saved();
}

// Bytes a token: four h-wide tensors 8 h = 8192; q, k, v 2 x (16 + 8) x 64 = 3072; attention output
// 2048; log-sum-exp 64; fc1 and activation 6 F = 24,576: 37,952.
TEST(Activations, DenseLayer) {
  const job::Job j = job_of(dense_model(), 4);
  EXPECT_EQ(saved(j, false), 2048 * std::int64_t{37'952});
}

TEST(Activations, SequenceParallelDividesEverything) {
  job::Job j = job_of(dense_model(), 4);
  j.layout.tp = 2;
  j.techniques.sequence_parallel = true;
  EXPECT_EQ(saved(j, false), 2048 * std::int64_t{37'952} / 2);
  // Without it the four h-wide tensors stay whole.
  j.techniques.sequence_parallel = false;
  EXPECT_EQ(saved(j, false), 2048 * std::int64_t{37'952 / 2 + 8192 / 2});
}

// Attention that swaps heads keeps the projection's input beside the attention output: 2048 more.
TEST(Activations, HeadAllToAllKeepsTwoOutputs) {
  job::Job j = job_of(dense_model(), 4);
  j.layout.cp = 2;
  EXPECT_EQ(saved(j, false), 1024 * std::int64_t{37'952});
  j.techniques.cp_comm = job::CpComm::a2a;
  EXPECT_EQ(saved(j, false), 1024 * std::int64_t{37'952 + 2048});
}

// Plain modules: the view of v keeps the fused qkv output, 2 x (16 + 4) x 64 = 2560 a token, and
// four rotary tables of 2 x 64 bytes a position.
TEST(Activations, LocalModules) {
  job::Job j = job_of(dense_model(), 4);
  j.techniques.implementation = job::Implementation::local;
  EXPECT_EQ(saved(j, false), 2048 * std::int64_t{37'952 + 2560 + 4 * 2 * 64});
}

// MoE: the dense layer's 24,576 goes; 2 rows a token: fc1 input 2 x 2 x 1024, fc1 output
// 2 x 2 x 2 x 512, activation 2 x 2 x 512, probabilities 2 x 4; router 17 x 16.
TEST(Activations, MoeLayer) {
  job::Job j = job_of(moe_model(), 8);
  j.layout.ep = 4;
  const std::int64_t expected = 37'952 - 24'576 + 4096 + 4096 + 2048 + 8 + 272;
  EXPECT_EQ(saved(j, true), 2048 * expected);
  j.techniques.memory_efficient_permutation = false;  // expert output: 2 x 2 x 1024
  EXPECT_EQ(saved(j, true), 2048 * (expected + 4096));
  j.techniques.memory_efficient_permutation = true;
  j.techniques.recompute = {Recompute::moe_act};
  EXPECT_EQ(saved(j, true), 2048 * (expected - 2048));
  j.techniques.recompute = {Recompute::moe};  // the second norm's output is its input
  EXPECT_EQ(saved(j, true), 2048 * (expected - 4096 - 4096 - 2048 - 8 - 272));
  j.techniques.recompute = {Recompute::full};
  EXPECT_EQ(saved(j, true), 2048 * std::int64_t{2 * 1024});
}

// MLA: latents 2 x (256 + 128 + 32) and normed 2 x 384; q, k, v 2 x 16 x (96 + 96 + 64) = 8192;
// output 2048; log-sum-exp 64; h-wide 8192.
TEST(Activations, MlaRecompute) {
  job::Job j = job_of(mla_model(), 8);
  const std::int64_t base = saved(j, true);
  j.techniques.recompute = {Recompute::mla_up_proj};
  EXPECT_EQ(base - saved(j, true), 2048 * std::int64_t{8192 + 768});
  j.techniques.recompute = {Recompute::layernorm};  // two h-wide outputs and the latents'
  EXPECT_EQ(base - saved(j, true), 2048 * std::int64_t{4096 + 768});
}

// 1F1B with 8 stages of a layer: stage r keeps 8 - r micro-batches.
TEST(Activations, InFlight) {
  job::Job j = job_of(dense_model(), 8);
  j.layout.pp = 8;
  const memory::Memory m = evaluate(j);
  for (int r = 0; r < 7; ++r)
    EXPECT_EQ(m.stages[static_cast<std::size_t>(r)].activations.value(),
              (8 - r) * 2048 * std::int64_t{37'952});
}

// Interleaved, 2 stages of 2 chunks: 3 + 2 = 2(2-0-1) + 2 + 1 = 5 units of 2 layers on stage 0, all
// alike.
TEST(Activations, Interleaved) {
  job::Job j = job_of(dense_model(), 2);
  j.layout.pp = 2, j.layout.vpp = 2;
  j.schedule.kind = layout::ScheduleKind::interleaved;
  EXPECT_EQ(evaluate(j).stages[0].activations.value(), 5 * 2 * 2048 * std::int64_t{37'952});
}

// Uneven chunks: with a heavy second chunk the mix moves. pp 2, vpp 2, chunks of stage 0: one dense
// layer (chunk 0) and three (chunk 1). First peak, 5 units: chunk 0 has 2 + 1, chunk 1 has 2 -> 3 +
// 6 layer-units. Two forwards and backwards later chunk 0 has 4, chunk 1 0 + 0... the search may
// only raise the sum: at 2 steps forward (one of chunk 0, one of chunk 1) against 2 backward of
// chunk 1.
TEST(Activations, HeaviestMixIsNotBelowTheFirstPeak) {
  job::Job j = job_of(dense_model(), 2);
  j.layout.pp = 2, j.layout.vpp = 2;
  j.layout.pipeline_layout = "Et|t|ttt|tttL";
  j.schedule.kind = layout::ScheduleKind::interleaved;
  const std::int64_t layer = 2048 * std::int64_t{37'952};
  const std::int64_t units = evaluate(j).stages[0].activations.value() / layer;
  // Forward order 0 0 1 1 | 0 0 1 1, backward 1 1 0 0 | 1 1 0 0, five forwards before the first
  // backward. In flight after k more of each: k = 0: (3, 2); 1: (4, 1); 2: (4, 1 + 1 - 1 = 1);
  // 3: (3, 2); 4: (2 + 1, 2): the first mix, 3 + 3 x 2 = 9 layer-units, is the heaviest.
  EXPECT_EQ(units, 9);
  j.layout.pipeline_layout = "Ettt|ttt|t|tL";
  // Heavy first chunk: (4, 1) weighs 3 x 4 + 1 = 13.
  EXPECT_EQ(evaluate(j).stages[0].activations.value() / layer, 13);
}

// Offloading the experts' inputs moves 4096 B a token and layer-unit, but for one layer.
TEST(Activations, FineGrainedOffload) {
  job::Job j = job_of(moe_model(), 8);
  const std::int64_t before = evaluate(j).stages[0].activations.value();
  j.techniques.offload.activation_modules = {job::OffloadModule::expert_fc1};
  EXPECT_EQ(before - evaluate(j).stages[0].activations.value(),
            (8 - 1) * 2048 * std::int64_t{4096});
  j.techniques.offload.fraction = 0.5;
  EXPECT_EQ(before - evaluate(j).stages[0].activations.value(),
            (4 - 1) * 2048 * std::int64_t{4096});
}

// MegaScale's SAR: (2kf + 4 + 2/m) h elements a token with f = 1/2, k = 2, m = 4.
TEST(Activations, SelectiveRematerialisation) {
  job::Job j = job_of(moe_model(), 8);
  j.techniques.overlap = {job::Overlap::inter_op};
  EXPECT_EQ(saved(j, true), 2048 * std::int64_t{2 * 1024 * (2 * 2 + 8 + 1) / 2});
}

}  // namespace
}  // namespace trifold::memory_test

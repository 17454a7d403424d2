// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include "layer/block.h"
#include "layer/expert_load.h"
#include "layer/shape.h"
#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::layer {
namespace {

job::Job make_job(const char* model, const char* cluster, int gpus) {
  job::Job job;
  job.model = model::load_model(model, TRIFOLD_SOURCE_DIR).value();
  job.cluster = hardware::load_cluster(cluster, TRIFOLD_SOURCE_DIR).value();
  job.gpus = gpus;
  job.training.global_batch_size = gpus;
  return job;
}

double flops(const Block& block, Pass pass, bool attention) {
  double sum = 0;
  for (const Operator& op : block.operators)
    if (op.pass == pass && op.dtype != hardware::Dtype::tf32 &&
        (op.family == Family::attention) == attention)
      sum += op.flops;
  return sum;
}

// A layer's executed GEMM FLOPs are the model's: forward once, backward twice. Attention runs (qk +
// v) forward and (3 qk + 2 v) backward per pair, 2.6 times with 192 and 128; Megatron's formula
// counts twice. The router's GEMM is not counted there, nor the norms' "+1" terms (under 0.1 %).
TEST(Block, ExecutesTheModelsFlops) {
  job::Job job = make_job("deepseek-v3", "dgx-h100", 8);
  job.layout.ep = 8;
  Block block;
  build_block(job, BlockRole::layer, model::LayerKind{true, false}, block);
  const double forward = flops(block, Pass::forward, false);
  EXPECT_DOUBLE_EQ(flops(block, Pass::dgrad, false), forward);
  EXPECT_DOUBLE_EQ(flops(block, Pass::wgrad, false), forward);
  EXPECT_NEAR(flops(block, Pass::dgrad, true) / flops(block, Pass::forward, true), 832.0 / 320.0,
              1e-9);
  model::Model shorter = job.model;
  shorter.layers.pop_back();
  const double per_token =
      model::train_flops_per_token(job.model, 4096) - model::train_flops_per_token(shorter, 4096);
  EXPECT_NEAR(3 * (forward + flops(block, Pass::forward, true)) / 4096, per_token,
              1e-3 * per_token);
}

TEST(Block, TensorParallelismDividesGemmsAndAddsCollectives) {
  job::Job job = make_job("llama3-70b", "dgx-h100", 8);
  Block whole, split;
  build_block(job, BlockRole::layer, {}, whole);
  job.layout.tp = 8;
  job.techniques.sequence_parallel = true;
  build_block(job, BlockRole::layer, {}, split);
  EXPECT_NEAR(flops(whole, Pass::forward, false), 8 * flops(split, Pass::forward, false), 1);
  int collectives = 0;
  for (const Operator& op : split.operators)
    collectives += op.family == Family::tp_comm && op.pass == Pass::forward;
  EXPECT_EQ(collectives, 4);  // gather and scatter around attention and around the feed-forward
  for (const Operator& op : whole.operators) EXPECT_NE(op.family, Family::tp_comm);
}

TEST(Block, RecomputeOnlyAddsOperators) {
  job::Job job = make_job("deepseek-v3", "dgx-h100", 64);
  job.layout.ep = 64;
  Block plain, full;
  build_block(job, BlockRole::layer, model::LayerKind{true, false}, plain);
  job.techniques.recompute = {job::Recompute::full};
  build_block(job, BlockRole::layer, model::LayerKind{true, false}, full);
  std::size_t forward = 0;
  for (const Operator& op : plain.operators) forward += op.pass == Pass::forward;
  EXPECT_EQ(full.operators.size(), plain.operators.size() + forward);
  EXPECT_EQ(full.edge_begin.size(), full.operators.size() + 1);
}

TEST(ExpertLoad, BalancedForcedAndCapacity) {
  job::Job job = make_job("deepseek-v3", "dgx-h100", 64);
  job.layout.ep = 64;
  job.techniques.routing.balance = job::Balance::forced;
  ExpertLoad load = expert_load(job);
  EXPECT_DOUBLE_EQ(load.imbalance, 1);
  EXPECT_DOUBLE_EQ(load.tokens_per_rank, 4096 * 8);  // tokens x top-k, whatever ep is
  job.techniques.routing.distribution = job::LoadDistribution::zipf;
  job.techniques.routing.parameters = {1.0};
  const double skewed = expert_load(job).imbalance;
  EXPECT_GT(skewed, 1.5);
  job.techniques.routing.capacity_factor = 1.25;
  load = expert_load(job);
  EXPECT_LE(load.imbalance, 1.25 + 1e-9);
  EXPECT_GT(load.dropped_share, 0);
  job.techniques.routing.capacity_factor = 0;
  job.techniques.routing.echo_spare_experts = 2;
  EXPECT_LT(expert_load(job).imbalance, skewed);
}

// 256 experts in 8 groups of which a token may use 4: over 8 nodes at most 4 are hit; without the
// limit 8 picks over 8 equal parts hit 8 (1 - C(224, 8)/C(256, 8)) = 5.3 of them.
TEST(Exchange, GroupLimitsCapTheDestinations) {
  const model::Moe limited = model::load_model("deepseek-v3", TRIFOLD_SOURCE_DIR)->moe;
  EXPECT_LE(distinct_targets(limited, 8), 4.0);
  EXPECT_GT(distinct_targets(limited, 8), 3.5);
  model::Moe free = limited;
  free.groups = free.top_groups = 1;
  EXPECT_NEAR(distinct_targets(free, 8), 5.3, 0.05);
}

TEST(Exchange, AnExpertGroupInsideADomainSendsNothingOutside) {
  job::Job job = make_job("deepseek-v3", "gb200-nvl72", 64);
  job.layout.ep = 64;
  job.techniques.dispatcher = job::Dispatcher::hybridep;
  EXPECT_EQ(exchange_of(job, expert_load(job)).scaleout_tokens, 0);
  job.cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  const Exchange out = exchange_of(job, expert_load(job));
  EXPECT_EQ(out.domains, 8);
  EXPECT_GT(out.scaleout_tokens, 0);
  job.techniques.dispatcher = job::Dispatcher::alltoall;  // k copies instead of one a node
  EXPECT_GT(exchange_of(job, expert_load(job)).scaleout_tokens, 2 * out.scaleout_tokens);
}

}  // namespace
}  // namespace trifold::layer

// SPDX-License-Identifier: Apache-2.0
// Runs that people have: scripts and YAMLs as they write them, whole and broken.

#include "launch/import.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "job/legality.h"
#include "launch/script.h"
#include "tests/unit/launch/jobs.h"

namespace trifold::launch {
namespace {

ImportOptions on(const char* cluster, int gpus) {
  ImportOptions options;
  options.file = "run.sh";
  options.gpus = gpus;
  options.cluster = *hardware::load_cluster(cluster, TRIFOLD_SOURCE_DIR);
  for (const char* name : {"mixtral-8x7b", "deepseek-v3"})
    options.known_models.push_back(*model::load_model(name, TRIFOLD_SOURCE_DIR));
  return options;
}

Result<Imported> from_shell(const std::string& text, int gpus = 32) {
  TRIFOLD_ASSIGN(script, parse_launch_script(text, "run.sh", Format::shell));
  return import_arguments(script.arguments, on("dgx-h100", gpus));
}

bool any(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& l) { return l.find(part) != std::string::npos; });
}

// Megatron-LM's own example for Mixtral 8x7B, in its shape: arrays, a torchrun line, data paths.
const char* const kMixtral = R"(#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-"4"}
CHECKPOINT_PATH=$1
MODEL_ARGS=(
    --use-mcore-models
    --disable-bias-linear
    --seq-length 4096
    --max-position-embeddings 32768
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --init-method-std 0.02
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --normalization RMSNorm
    --norm-epsilon 1e-5
    --position-embedding-type rope
    --swiglu
    --untie-embeddings-and-output-weights
    --group-query-attention
    --num-query-groups 8
    --no-masked-softmax-fusion
    --no-position-embedding
    --rotary-base 1000000
)
MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 2e-2   # the coefficient
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
    --overlap-param-gather
    --overlap-grad-reduce
)
TRAINING_ARGS="--micro-batch-size 1 --global-batch-size 256 --bf16 --lr 1e-4"
PARALLEL_ARGS="
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 8 \
    --expert-model-parallel-size 8 \
    --use-distributed-optimizer \
    --sequence-parallel
"
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    "${MOE_ARGS[@]}" \
    ${TRAINING_ARGS} ${PARALLEL_ARGS} \
    --load $CHECKPOINT_PATH
)";

TEST(ImportRun, AnExampleScriptBecomesAJob) {
  const Result<LaunchScript> script = parse_launch_script(kMixtral, "run.sh", Format::shell);
  ASSERT_TRUE(script) << script.error().to_string();
  EXPECT_EQ(script->gpus, 32);
  EXPECT_EQ(script->environment.at("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  const Result<Imported> imported = import_script(*script, on("dgx-h100", 32));
  ASSERT_TRUE(imported) << imported.error().to_string();
  const job::Job& job = imported->job;
  EXPECT_EQ(job.layout.pp, 4);
  EXPECT_EQ(job.layout.ep, 8);
  EXPECT_EQ(job.layout.etp, 1);
  EXPECT_EQ(job.layout.vpp, 1);  // 32 / 4 = 8 layers a stage are one virtual stage
  EXPECT_EQ(job.training.global_batch_size, 256);
  EXPECT_TRUE(job.techniques.has(job::Overlap::grad_reduce));
  EXPECT_FALSE(job.techniques.sequence_parallel);  // Megatron switches it off with tp 1
  EXPECT_EQ(job.model.moe.expert_ffn, 14336);
  EXPECT_EQ(job.model.vocab, 32000);  // Mixtral's, lent
  EXPECT_TRUE(any(imported->assumed, "vocabulary 32000: mixtral-8x7b's"));
  EXPECT_TRUE(job::check(job).legal()) << job::explain(job::check(job));
  EXPECT_TRUE(any(imported->no_effect, "line 39: --lr 1e-4"));
  EXPECT_TRUE(any(imported->no_effect, "line 52: --load $1: known only when the script runs"));
  EXPECT_TRUE(any(imported->not_understood, "line 26: --no-position-embedding"));
}

struct Broken {
  const char* was;
  const char* becomes;
  int line;
  const char* says;
};

TEST(ImportRun, OneClearErrorWithItsLine) {
  const Broken rows[] = {
      {"--num-layers 32", "--num-layer 32", 11, "did you mean --num-layers?"},
      {"--num-layers 32", "--num-layers", 11, "--num-layers takes 1 value, 0 given"},
      {"--num-layers 32", "--num-layers thirty", 11, "not a number"},
      {"--swiglu", "--swiglu on", 21, "takes no value"},
      {"--normalization RMSNorm", "--normalization Batch", 18, "RMSNorm"},
      {"--tensor-model-parallel-size 1", "--tensor-model-parallel-size 0", 40, "outside 1.."},
      {"--bf16", "--bf16 --fp16", 39, "--fp16 contradicts --bf16"},
      {"--swiglu", "--swiglu --multi-latent-attention", 23,
       "--group-query-attention contradicts --multi-latent-attention (line 21)"},
      {"--num-layers 32", "--pipeline-model-parallel-layout 'E|t*32|L'", 40,
       "--num-layers-per-virtual-pipeline-stage contradicts --pipeline-model-parallel-layout"},
      {"pretrain_gpt.py", "pretrain_gpt.py stray", 48, "'stray' belongs to no flag"},
  };
  for (const Broken& row : rows) {
    std::string text = kMixtral;
    text.replace(text.find(row.was), std::string(row.was).size(), row.becomes);
    const Result<Imported> imported = from_shell(text);
    ASSERT_FALSE(imported) << row.becomes;
    EXPECT_EQ(imported.error().where, "run.sh:" + std::to_string(row.line)) << row.becomes;
    EXPECT_NE(imported.error().to_string().find(row.says), std::string::npos)
        << row.becomes << ": " << imported.error().to_string();
  }
}

TEST(ImportRun, AFlagOfAForkIsListedWithItsLine) {
  std::string text = kMixtral;
  text.replace(text.find("--swiglu"), 8, "--swiglu --our-own-secret-kernel 3");
  const Result<Imported> imported = from_shell(text);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_TRUE(
      any(imported->not_understood, "line 21: --our-own-secret-kernel 3: no flag of Megatron"));
}

TEST(ImportRun, AFlagGivenTwiceIsListedAndTheLastCounts) {
  std::string text = kMixtral;
  text.replace(text.find("--bf16"), 6, "--bf16 --global-batch-size 512");
  const Result<Imported> imported = from_shell(text);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_EQ(imported->job.training.global_batch_size, 512);
  EXPECT_TRUE(any(imported->not_understood, "--global-batch-size 256: given again"));
}

// In the words of the Megatron MoE ModelZoo's DeepSeek-V3.yaml.
const char* const kZoo = R"(ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 32
MODEL_ARGS:
  # Distributed args
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: 8
  --expert-model-parallel-size: 64
  --expert-tensor-parallel-size: 1
  --use-distributed-optimizer: true
  --sequence-parallel: true
  --pipeline-model-parallel-layout: Et*3|(tt|)*29m|L
  --micro-batch-size: 1
  --global-batch-size: 8192
  --cross-entropy-fusion-impl: native # te ce fusion is broken
  --seq-length: 4096
  --data-path: ${DATA_PATH}
  --num-layers: 61
  --hidden-size: 7168
  --ffn-hidden-size: 18432
  --num-attention-heads: 128
  --max-position-embeddings: 4096
  --position-embedding-type: rope
  --rotary-base: 10000
  --normalization: RMSNorm
  --norm-epsilon: 1e-6
  --swiglu: true
  --disable-bias-linear: true
  --untie-embeddings-and-output-weights: true
  --multi-latent-attention: true
  --qk-layernorm: true
  --num-experts: 256
  --moe-layer-freq: ([0]*3+[1]*58)
  --moe-ffn-hidden-size: 2048
  --moe-shared-expert-intermediate-size: 2048
  --moe-router-load-balancing-type: seq_aux_loss
  --moe-router-topk: 8
  --moe-grouped-gemm: true
  --moe-aux-loss-coeff: 1e-4
  --moe-router-group-topk: 4
  --moe-router-num-groups: 8
  --moe-router-topk-scaling-factor: 2.5
  --moe-router-score-function: sigmoid
  --moe-router-enable-expert-bias: true
  --moe-router-dtype: fp32
  --moe-token-dispatcher-type: flex
  --moe-enable-deepep: true
  --q-lora-rank: 1536
  --kv-lora-rank: 512
  --qk-head-dim: 128
  --qk-pos-emb-head-dim: 64
  --v-head-dim: 128
  --rotary-scaling-factor: 40
  --mscale: 1.0
  --mscale-all-dim: 1.0
  --recompute-granularity: selective
  --recompute-modules: mla_up_proj mlp
  --mtp-num-layers: 1
  --finetune: false
  --init-method-std: 0.02
  --bf16: true
)";

Result<Imported> from_yaml(const std::string& text) {
  TRIFOLD_ASSIGN(script, parse_launch_script(text, "zoo.yaml", Format::yaml, {{"TP", "2"}}));
  ImportOptions options = on("dgx-h100", 1024);
  options.file = "zoo.yaml";
  return import_arguments(script.arguments, options);
}

TEST(ImportRun, AModelZooYamlBecomesAJob) {
  const Result<Imported> imported = from_yaml(kZoo);
  ASSERT_TRUE(imported) << imported.error().to_string();
  const job::Job& job = imported->job;
  EXPECT_EQ(job.layout.tp, 2);
  EXPECT_EQ(job.layout.vpp, 4);  // 32 stages over 8 ranks
  EXPECT_EQ(job.model.vocab, 129280);
  EXPECT_EQ(job.techniques.dispatcher, job::Dispatcher::deepep);
  EXPECT_EQ(job.techniques.recompute, (EnumSet{job::Recompute::mla_up_proj, job::Recompute::mlp}));
  EXPECT_EQ(job.model.name, "deepseek-v3");
  EXPECT_EQ(guess_format(kZoo, "-"), Format::yaml);
  EXPECT_EQ(guess_format(kMixtral, "-"), Format::shell);
}

TEST(ImportRun, ATornYamlIsOneErrorWithItsLine) {
  const std::string whole = kZoo;
  const auto until = [&](const char* text) { return whole.substr(0, whole.find(text)); };
  struct Row {
    std::string text, where, says;
  };
  const Row rows[] = {
      {until("-size: 7168"), "zoo.yaml:18", "was the file cut off?"},
      {until(" 7168"), "zoo.yaml:18", "--hidden-size takes 1 value, 0 given"},
      {until("--moe-layer-freq") + "--recompute-modules: [moe_act, la", "zoo.yaml:32",
       "a list begins and does not end"},
      {until("--moe-layer-freq") + "--moe-layer-freq: \"([0]*3", "zoo.yaml:32",
       "a quote begins and does not end"},
      {until("${DATA_PATH}") + "${DATA", "zoo.yaml:16", "a variable begins and does not end"},
      {until("--hidden-size") + "\t--hidden-size: 7168", "zoo.yaml:18", "tabs"},
      {until("--num-attention-heads"), "zoo.yaml", "--num-attention-heads is missing"},
  };
  for (const Row& row : rows) {
    const Result<Imported> imported = from_yaml(row.text);
    ASSERT_FALSE(imported) << row.says;
    EXPECT_EQ(imported.error().where, row.where) << row.says;
    EXPECT_NE(imported.error().to_string().find(row.says), std::string::npos)
        << imported.error().to_string();
  }
}

}  // namespace
}  // namespace trifold::launch

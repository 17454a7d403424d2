// SPDX-License-Identifier: Apache-2.0
#include "launch/arguments.h"

#include <gtest/gtest.h>

#include "launch/script.h"

namespace trifold::launch {
namespace {

TEST(Arguments, TheLastOccurrenceCounts) {
  const Result<Arguments> a = parse_arguments(
      {"--num-layers", "8", "--swiglu", "--num-layers=16", "--window-size", "(-1,0)"});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->value("--num-layers"), "16");
  EXPECT_TRUE(a->has("--swiglu"));
  EXPECT_EQ(a->value("--window-size"), "(-1,0)");
  EXPECT_FALSE(parse_arguments({"16", "--num-layers"}));
}

TEST(Arguments, QuotesOnlyWhatAShellWouldChange) {
  EXPECT_EQ(shell_quote("61"), "61");
  EXPECT_EQ(shell_quote("([0]*3+[1]*58)"), "'([0]*3+[1]*58)'");
  EXPECT_EQ(shell_quote("Et|(tt|)*30mL"), "'Et|(tt|)*30mL'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quote(""), "''");
}

TEST(Arguments, NumbersAreShortAndExact) {
  EXPECT_EQ(number(2.5), "2.5");
  EXPECT_EQ(number(1e-4), "0.0001");
  EXPECT_EQ(number(1e-6), "1e-06");
  EXPECT_EQ(number(10000), "10000");
  EXPECT_EQ(std::stod(number(2.827)), 2.827);
}

TEST(Script, WhatIsPrintedReadsBack) {
  Arguments a;
  a.add("--moe-layer-freq", std::string("([0]*3+[1]*58)"));
  a.add("--swiglu");
  a.add("--recompute-modules", std::vector<std::string>{"moe_act", "layernorm"});
  const Result<LaunchScript> script = parse_shell(print_arguments(a), "megatron.args");
  ASSERT_TRUE(script) << script.error().to_string();
  EXPECT_EQ(script->arguments.items, a.items);
  EXPECT_TRUE(script->not_understood.empty());
}

TEST(Script, AnArrayWithVariablesAndATorchrunLine) {
  const char* text = R"(#!/bin/bash
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1   # a comment
export NCCL_IB_SL=${NCCL_IB_SL:-0}
LAYERS=16; HIDDEN="1024"
MODEL_ARGS=(
    --num-layers ${LAYERS}
    --hidden-size $HIDDEN          # width
    --moe-layer-freq '([0]*3+[1]*13)'
    --swiglu
)
MORE="--bf16 --seq-length 4096"
OMP_NUM_THREADS=1 torchrun --nnodes 4 --nproc-per-node=8 --rdzv-id 7 \
    pretrain_gpt.py "${MODEL_ARGS[@]}" $MORE \
    --data-path $DATA/text --lr 1e-4 ${EXTRA_ARGS:-} "$@"
)";
  const Result<LaunchScript> script = parse_shell(text, "run.sh");
  ASSERT_TRUE(script) << script.error().to_string();
  EXPECT_EQ(script->arguments.words(),
            (std::vector<std::string>{"--num-layers", "16", "--hidden-size", "1024",
                                      "--moe-layer-freq", "([0]*3+[1]*13)", "--swiglu", "--bf16",
                                      "--seq-length", "4096", "--lr", "1e-4"}));
  EXPECT_EQ(script->environment, (Environment{{"CUDA_DEVICE_MAX_CONNECTIONS", "1"},
                                              {"NCCL_IB_SL", "0"},
                                              {"OMP_NUM_THREADS", "1"}}));
  EXPECT_EQ(script->gpus, 32);
  EXPECT_TRUE(script->not_understood.empty());
  ASSERT_EQ(script->unresolved.size(), 1u);  // the data path is only known at run time
  EXPECT_EQ(script->unresolved[0], (Argument{"--data-path", {"$DATA/text"}, 0}));
  EXPECT_EQ(script->unresolved[0].line, 15);
}

TEST(Script, ABareBlockOfArgumentsIsEnough) {
  const Result<LaunchScript> script = parse_shell(
      "GPT_ARGS=\"--num-layers 4 \\\n --swiglu\"\nOTHER=(a b)\nDIST=(--bf16)\n", "x.sh");
  ASSERT_TRUE(script);
  EXPECT_EQ(script->arguments.words(),
            (std::vector<std::string>{"--num-layers", "4", "--swiglu", "--bf16"}));
}

TEST(Script, UnterminatedQuotesAreErrorsWithALine) {
  const Result<LaunchScript> script = parse_shell("A=1\nB='x\n", "run.sh");
  ASSERT_FALSE(script);
  EXPECT_EQ(script.error().where, "run.sh:2");
}

TEST(Script, ModelZooYaml) {
  const char* text = R"(ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  # parallel
  --tensor-model-parallel-size: ${TP}
  --sequence-parallel: true
  --overlap-grad-reduce: false
  --moe-layer-freq: ([0]*3+[1]*58)
  --recompute-modules: [mla_up_proj, moe_act]
  --data-path: ${DATA}
  --norm-epsilon: "1e-6"   # quoted
TEST_TYPE: regular
)";
  const Result<LaunchScript> script = parse_model_zoo_yaml(text, "m.yaml", {{"TP", "2"}});
  ASSERT_TRUE(script) << script.error().to_string();
  EXPECT_EQ(script->arguments.words(),
            (std::vector<std::string>{"--tensor-model-parallel-size", "2", "--sequence-parallel",
                                      "--moe-layer-freq", "([0]*3+[1]*58)", "--recompute-modules",
                                      "mla_up_proj", "moe_act", "--norm-epsilon", "1e-6"}));
  EXPECT_EQ(script->environment.at("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  EXPECT_EQ(script->not_understood.size(), 1u);  // TEST_TYPE
  ASSERT_EQ(script->unresolved.size(), 1u);
  EXPECT_EQ(script->unresolved[0].flag, "--data-path");
}

}  // namespace
}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
//
// Every config of shared/data/hf imports with the right total or is refused by name. Expected
// totals (billions, without MTP) are published ones: the weight files' own counts as quoted in
// INDEX.json (reference_b) or on the model cards; where a card rounds, the tolerance allows it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::model {
namespace {

namespace fs = std::filesystem;

struct Total {
  double billions;
  double rounding = 0;  // half a unit of the last published digit, in billions
};

const std::map<std::string, Total>& totals() {
  static const std::map<std::string, Total> kTotals = {
      {"CodeLlama-34B-Instruct-hf", {33.74}},
      {"DBRX-Base", {131.60}},
      {"DeepSeek-MoE-16B-base", {16.38}},
      {"DeepSeek-R1", {671.03}},
      {"DeepSeek-R1-0528", {671.03}},
      {"DeepSeek-V2", {235.74}},
      {"DeepSeek-V2-Lite", {15.71}},
      {"DeepSeek-V3", {671.03}},
      {"DeepSeek-V3.1", {671.03}},
      {"DeepSeek-V3.1-NVFP4", {671.03}},
      {"EXAONE-3.5-7.8B", {7.82}},
      {"GLM-4-9B", {9.40}},
      {"GLM-4.5", {352.80}},
      {"Gemma-2-2B", {2.61}},
      {"Gemma-2-9B", {9.24}},
      {"Gemma-3-1B", {0.99989}},
      // Gemma 3 report, Table 1: 25,600 M + 1,416 M embedding.
      {"Gemma-3-27B-it", {27.016}},
      {"Gemma-3-27B-it-full", {27.016}},
      {"Gemma-7B", {8.538}},
      {"Grok-1-sglang-dummy", {314, 0.5}},
      {"InternLM2-7B", {7.74}},
      {"Kimi-K2-Instruct", {1026.5}},
      {"Kimi-K2.5", {1026.5}},
      {"Kimi-K2.5-NVFP4", {1026.5}},
      {"Ling-lite", {16.8}},
      {"Ling-lite-base", {16.8}},
      {"Llama-2-13B-neuronx", {13.02}},
      {"Llama-2-70B-neuronx", {68.98}},
      {"Llama-2-7B-hf", {6.738}},
      {"Llama-3.1-70B-Instruct-FP8", {70.554}},
      {"Llama-3.2-1B", {1.2358}},
      {"Llama-3.2-3B", {3.2127}},
      {"Llama-4-Maverick-17B-128E-Instruct", {400.7}},
      {"Llama-4-Maverick-17B-128E-Instruct-FP8", {400.7}},
      {"Llama-4-Scout-17B-16E-Instruct", {107.77}},
      {"Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", {107.77}},
      {"Llama-4-Scout-17B-16E-Instruct-full", {107.77}},
      {"Meta-Llama-3-70B", {70.554}},
      {"Meta-Llama-3-8B-neuronx", {8.03}},
      {"Meta-Llama-3.1-405B", {405.85}},
      {"Meta-Llama-3.1-70B", {70.554}},
      {"Meta-Llama-3.1-8B", {8.03}},
      // Its weight files hold 7.83 B with one MTP depth of 0.21 B.
      {"MiMo-7B-Base", {7.62}},
      {"MiniCPM3-4B", {4.07}},
      {"MiniMax-M2", {228.7}},
      {"Mistral-7B-Instruct-v0.3", {7.25}},
      {"Mistral-7B-v0.1", {7.242}},
      {"Mistral-Nemo-Instruct-2407", {12.25}},
      {"Mixtral-8x22B-v0.1", {140.62}},
      {"Mixtral-8x7B-v0.1", {46.70}},
      {"Moonlight-16B-A3B", {15.96}},
      {"OLMoE-1B-7B-0125", {6.92}},
      {"OPT-125M", {0.1252}},
      {"Phi-3-mini-128k-or-4k-instruct", {3.82}},
      {"Phi-3.5-MoE-instruct", {41.87}},
      {"Phi-4", {14.66}},
      {"Phi-mini-MoE-instruct", {7.65}},
      {"Pythia-12B-deduped", {11.85}},
      {"Qwen-7B", {7.72}},
      {"Qwen1.5-MoE-A2.7B-Frontier", {14.32}},
      {"Qwen2-57B-A14B", {57.41}},
      {"Qwen2.5-0.5B", {0.494}},
      {"Qwen2.5-1.5B", {1.54}},
      {"Qwen2.5-14B", {14.77}},
      {"Qwen2.5-32B", {32.76}},
      {"Qwen2.5-3B", {3.09}},
      {"Qwen2.5-72B", {72.71}},
      {"Qwen2.5-7B", {7.616}},
      // The card's 0.44 B without embedding, and 151936 x 1024 of it.
      {"Qwen3-0.6B", {0.596}},
      // 1.4 B and 151936 x 2048.
      {"Qwen3-1.7B", {1.71, 0.05}},
      {"Qwen3-14B", {14.768}},
      {"Qwen3-235B-A22B", {235.09}},
      {"Qwen3-235B-A22B-FP8", {235.09}},
      {"Qwen3-235B-A22B-NVFP4", {235.09}},
      {"Qwen3-30B-A3B", {30.53}},
      {"Qwen3-30B-A3B-FP8", {30.53}},
      {"Qwen3-30B-A3B-Instruct-2507", {30.53}},
      {"Qwen3-32B", {32.76}},
      {"Qwen3-32B-FP8", {32.76}},
      {"Qwen3-32B-FP8-Static-PerTensor", {32.76}},
      {"Qwen3-4B", {4.022}},
      {"Qwen3-8B", {8.19}},
      {"Qwen3-Coder-480B-A35B-Instruct", {480.15}},
      // The language models of Qwen3-VL are those of Qwen3.
      {"Qwen3-VL-2B-Instruct", {1.71, 0.05}},
      {"Qwen3-VL-30B-A3B-Instruct", {30.53}},
      {"Qwen3-VL-32B-Instruct", {32.76}},
      {"Qwen3-VL-32B-Thinking", {32.76}},
      {"Qwen3-VL-4B-Instruct", {4.022}},
      {"Qwen3-VL-8B-Instruct", {8.19}},
      {"SmolLM-1.7B", {1.71}},
      {"Yi-34B", {34.39}},
      {"gpt-oss-120b", {116.83}},
      {"gpt-oss-20b", {20.91}},
  };
  return kTotals;
}

// What the one line must name, by the start of the file's name.
const std::map<std::string, std::string>& refusals() {
  static const std::map<std::string, std::string> kRefusals = {
      {"DeepSeek-V3.2", "sparse attention"}, {"DeepSeek-V4", "sparse attention"},
      {"Llama-3.2-11B", "cross-attention"},  {"Llama-3.2-90B", "cross-attention"},
      {"MiniMax-M1", "linear-attention"},    {"NVIDIA-Nemotron", "state-space"},
      {"Nemotron-H", "state-space"},         {"Phi-3-small", "sparse attention"},
      {"Qwen3-Next", "linear-attention"},    {"Step-3", "factorization attention"},
  };
  return kRefusals;
}

std::string folder() { return std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/hf"; }

std::string refusal_of(const std::string& stem) {
  for (const auto& [start, word] : refusals())
    if (stem.rfind(start, 0) == 0) return word;
  return {};
}

TEST(Corpus, EveryConfigImportsWithItsTotalOrIsRefusedByName) {
  if (!fs::exists(folder())) GTEST_SKIP() << "no " << folder();
  std::set<std::string> seen;
  for (const auto& entry : fs::directory_iterator(folder())) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".json" || stem == "INDEX") continue;
    seen.insert(stem);
    const Result<Model> model = load_model(entry.path().string(), TRIFOLD_SOURCE_DIR);
    const std::string refusal = refusal_of(stem);
    if (!refusal.empty()) {
      ASSERT_FALSE(model) << stem << " must be refused";
      const std::string text = model.error().to_string();
      EXPECT_NE(text.find(refusal), std::string::npos) << text;
      EXPECT_NE(text.find("cannot be priced"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      continue;
    }
    ASSERT_TRUE(model) << model.error().to_string();
    const auto total = totals().find(stem);
    ASSERT_NE(total, totals().end()) << stem << " has no published total in this test";
    const double expected = total->second.billions;
    EXPECT_NEAR(static_cast<double>(count_parameters(*model).total()) / 1e9, expected,
                0.005 * expected + total->second.rounding)
        << stem;
  }
  EXPECT_EQ(seen.size(), 113u);
  for (const auto& [stem, total] : totals()) EXPECT_EQ(seen.count(stem), 1u) << stem;
}

// A catalogue model is the publisher's config, but for the fields that the catalogue leaves out.
TEST(Corpus, CatalogueAgreesWithThePublishersConfigs) {
  if (!fs::exists(folder())) GTEST_SKIP() << "no " << folder();
  const std::map<std::string, std::string> pairs = {
      {"deepseek-v3", "DeepSeek-V3"},
      {"deepseek-v2", "DeepSeek-V2"},
      {"deepseek-v2-lite", "DeepSeek-V2-Lite"},
      {"kimi-k2", "Kimi-K2-Instruct"},
      {"moonlight-16b-a3b", "Moonlight-16B-A3B"},
      {"qwen3-235b-a22b", "Qwen3-235B-A22B"},
      {"qwen3-30b-a3b", "Qwen3-30B-A3B"},
      {"qwen3-8b", "Qwen3-8B"},
      {"qwen2-57b-a14b", "Qwen2-57B-A14B"},
      {"mixtral-8x7b", "Mixtral-8x7B-v0.1"},
      {"gpt-oss-120b", "gpt-oss-120b"},
      {"gpt-oss-20b", "gpt-oss-20b"},
      {"glm-4.5", "GLM-4.5"},
      {"llama3-70b", "Meta-Llama-3-70B"},
      {"llama3.1-405b", "Meta-Llama-3.1-405B"},
      {"phi-3.5-moe", "Phi-3.5-MoE-instruct"},
      {"minimax-m2", "MiniMax-M2"},
      {"llama4-maverick", "Llama-4-Maverick-17B-128E-Instruct"},
      {"llama4-scout", "Llama-4-Scout-17B-16E-Instruct"},
      {"dbrx", "DBRX-Base"},
      {"olmoe-1b-7b", "OLMoE-1B-7B-0125"},
      {"grok-1", "Grok-1-sglang-dummy"},
  };
  for (const auto& [name, file] : pairs) {
    Result<Model> ours = load_model(name, TRIFOLD_SOURCE_DIR);
    const Result<Model> theirs = load_model(folder() + "/" + file + ".json", TRIFOLD_SOURCE_DIR);
    ASSERT_TRUE(ours) << ours.error().to_string();
    ASSERT_TRUE(theirs) << theirs.error().to_string();
    EXPECT_FALSE(ours->source.empty()) << name;
    EXPECT_EQ(ours->attention, theirs->attention) << name;
    Moe moe = ours->moe;
    moe.aux_loss = theirs->moe.aux_loss;
    EXPECT_EQ(moe, theirs->moe) << name;
    EXPECT_EQ(ours->layers, theirs->layers) << name;
    EXPECT_EQ(ours->mtp_layers, theirs->mtp_layers) << name;
    EXPECT_EQ(ours->tied_embeddings, theirs->tied_embeddings) << name;
    EXPECT_EQ(ours->activation, theirs->activation) << name;
    EXPECT_EQ(ours->rope.base, theirs->rope.base) << name;
    EXPECT_EQ(ours->rope.percent, theirs->rope.percent) << name;
    EXPECT_EQ(count_parameters(*ours).total(), count_parameters(*theirs).total()) << name;
    EXPECT_EQ(train_flops_per_token(*ours, 4096), train_flops_per_token(*theirs, 4096)) << name;
  }
}

}  // namespace
}  // namespace trifold::model

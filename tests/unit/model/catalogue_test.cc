// SPDX-License-Identifier: Apache-2.0
#include "model/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "model/size.h"

namespace trifold::model {
namespace {

Model load(const std::string& name) {
  Result<Model> model = load_model(name, TRIFOLD_SOURCE_DIR);
  EXPECT_TRUE(model) << model.error().to_string();
  return model ? *model : Model{};
}

std::string error_of(const std::string& name) {
  const Result<Model> model = load_model(name, TRIFOLD_SOURCE_DIR);
  EXPECT_FALSE(model) << name;
  return model ? std::string() : model.error().to_string();
}

TEST(Catalogue, HoldsTheNamesThatTheWorldUses) {
  const std::vector<std::string> names = list_models(TRIFOLD_SOURCE_DIR);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const char* name : {"deepseek-v3",
                           "deepseek-v2",
                           "deepseek-v2-lite",
                           "kimi-k2",
                           "moonlight-16b-a3b",
                           "qwen3-235b-a22b",
                           "qwen3-30b-a3b",
                           "qwen3-8b",
                           "qwen2-57b-a14b",
                           "mixtral-8x7b",
                           "mixtral-8x22b",
                           "mixtral-8x22b-g8t8",
                           "llama3-8x70b",
                           "gpt-oss-120b",
                           "gpt-oss-20b",
                           "glm-4.5",
                           "grok-1",
                           "llama3-8b",
                           "llama3-70b",
                           "llama3.1-405b",
                           "megascale-352b"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
    EXPECT_EQ(load(name).name, name);
    EXPECT_FALSE(load(name).source.empty()) << name;
  }
}

TEST(Catalogue, EveryModelSurvivesExportAndImport) {
  for (const std::string& name : list_models(TRIFOLD_SOURCE_DIR)) {
    const Model model = load(name);
    const Result<Json> text = parse_json(to_hf_config(model).dump(), name);
    ASSERT_TRUE(text);
    const Result<Model> again = import_hf_config(*text, "plan.json#/job/model");
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_EQ(*again, model) << name;
  }
}

TEST(Catalogue, OverriddenModelsSurviveExportAndImport) {
  const Json changes[] = {{{"num_layers", 5}},
                          {{"window", 0}},
                          {{"experts", 0}, {"dense_ffn", 512}},
                          {{"window", 64}, {"max_position", 4096}},
                          {{"tied_embeddings", true}, {"vocab", 1024}},
                          {{"mtp_layers", 2}, {"linear_bias", true}},
                          {{"post_norms", true}, {"norm", "layernorm"}, {"activation", "geglu"}}};
  for (const std::string& name : list_models(TRIFOLD_SOURCE_DIR))
    for (const Json& change : changes) {
      Model model = load(name);
      const Result<void> changed = apply_overrides(model, change, "set");
      ASSERT_TRUE(changed) << name << ": " << changed.error().to_string();
      const Result<Model> again = import_hf_config(to_hf_config(model), name + ".json");
      ASSERT_TRUE(again) << again.error().to_string();
      EXPECT_EQ(*again, model) << name << change;
    }
}

TEST(Catalogue, UnknownNames) {
  EXPECT_NE(error_of("deepseek-v33").find("did you mean 'deepseek-v3'"), std::string::npos);
  EXPECT_NE(error_of("zzz").find("not in the catalogue"), std::string::npos);
  for (const char* name : {"nemotron-3-super-120b-a12b", "nemotron-3-nano-30b-a3b",
                           "nemotron-3-ultra-550b-a55b", "nemotron-3.5-lightning-30b-a3b"})
    EXPECT_NE(error_of(name).find("state-space hybrid architecture cannot be priced"),
              std::string::npos)
        << error_of(name);
  EXPECT_NE(error_of("deepseek-v4-flash").find("cannot be priced"), std::string::npos);
  EXPECT_NE(error_of("deepseek-v4-flash").find("not in the catalogue"), std::string::npos);
}

TEST(Catalogue, PathsAndPythonNumbers) {
  EXPECT_NE(error_of("/no/such/config.json").find("cannot open"), std::string::npos);
  const std::string path = testing::TempDir() + "trifold_python_numbers.json";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  std::fputs("{\"a\": [0.0, Infinity, -Infinity, NaN], \"b\": \"Infinity \\\" NaN\"}", file);
  std::fclose(file);
  const Result<Json> json = read_hf_config(path);
  ASSERT_TRUE(json) << json.error().to_string();
  EXPECT_TRUE((*json)["a"][1].is_null());
  EXPECT_EQ((*json)["b"], "Infinity \" NaN");
  std::remove(path.c_str());
}

std::string kinds(const Model& m) {
  std::string text;
  for (LayerKind kind : m.layers) text += "dMwW"[kind.index()];
  return text;
}

Model changed(const std::string& name, const Json& overrides) {
  Model model = load(name);
  const Result<void> result = apply_overrides(model, overrides, "job.json#/model_overrides");
  EXPECT_TRUE(result) << result.error().to_string();
  return model;
}

TEST(Overrides, DepthKeepsThePrefixAndRepeatsThePattern) {
  EXPECT_EQ(kinds(changed("deepseek-v3", {{"num_layers", 6}})), "dddMMM");
  EXPECT_EQ(kinds(changed("deepseek-v3", {{"num_layers", 4}, {"dense_prefix_layers", 1}})), "dMMM");
  EXPECT_EQ(changed("deepseek-v3", {{"dense_prefix_layers", 1}}).num_layers(), 61);
  EXPECT_EQ(changed("deepseek-v3", {{"dense_prefix_layers", 1}}).moe_layers(), 60);
  EXPECT_EQ(kinds(changed("gpt-oss-20b", {{"num_layers", 5}})), "WMWMW");
  EXPECT_EQ(kinds(changed("llama4-maverick", {{"num_layers", 4}})), "wWwM");
  EXPECT_EQ(kinds(changed("llama3-8b", {{"num_hidden_layers", 3}})), "ddd");
  EXPECT_EQ(kinds(changed("qwen3-30b-a3b", {{"num_layers", 60}})), std::string(60, 'M'));
}

TEST(Overrides, FieldsByEitherName) {
  EXPECT_EQ(changed("deepseek-v3", {{"mtp_layers", 0}}).mtp_layers, 0);
  EXPECT_EQ(changed("deepseek-v3", {{"vocab_size", 256000}}).vocab, 256000);
  EXPECT_EQ(changed("deepseek-v3", {{"experts", 64}}).moe.experts, 64);
  EXPECT_EQ(changed("deepseek-v3", {{"num_experts", 64}}).moe.experts, 64);
  EXPECT_EQ(changed("deepseek-v3", {{"heads", 64}}).attention.kv_heads, 64);
  EXPECT_EQ(changed("gpt-oss-120b", {{"window", 0}}).count(LayerKind{true, true}), 0);
  EXPECT_EQ(changed("llama3-8b", {{"window", 1024}}).count(LayerKind{false, true}), 32);
}

TEST(Overrides, MistakesLeaveTheModelAlone) {
  const Model before = load("deepseek-v3");
  const auto error = [&](const Json& overrides) {
    Model model = before;
    const Result<void> result = apply_overrides(model, overrides, "job.json#/model_overrides");
    EXPECT_FALSE(result) << overrides;
    EXPECT_EQ(model, before);
    return result ? std::string() : result.error().to_string();
  };
  EXPECT_NE(error({{"num_layer", 4}}).find("did you mean 'num_layers'"), std::string::npos);
  EXPECT_NE(error({{"num_layers", 3}}).find("leave no MoE layer"), std::string::npos);
  EXPECT_NE(error({{"num_layers", -1}}).find("outside"), std::string::npos);
  EXPECT_NE(error({{"num_layers", "many"}}).find("an integer"), std::string::npos);
  EXPECT_NE(error({{"top_k", 300}}).find("top-300"), std::string::npos);
  EXPECT_NE(error({{"experts", 100}}).find("divisible"), std::string::npos);
  EXPECT_NE(error({{"hidden", 0}}).find("job.json#/model_overrides/hidden:"), std::string::npos);
  EXPECT_NE(error(Json::array()).find("object"), std::string::npos);
}

}  // namespace
}  // namespace trifold::model

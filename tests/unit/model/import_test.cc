// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/random.h"
#include "model/catalogue.h"
#include "model/size.h"

namespace trifold::model {
namespace {

Json llama() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 4},         {"hidden_size", 64},
          {"intermediate_size", 256}, {"num_attention_heads", 8},       {"num_key_value_heads", 2},
          {"vocab_size", 1000},       {"max_position_embeddings", 4096}};
}

Json moe() {
  return {{"model_type", "qwen3_moe"},
          {"num_hidden_layers", 6},
          {"hidden_size", 64},
          {"intermediate_size", 256},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"vocab_size", 1000},
          {"num_experts", 16},
          {"num_experts_per_tok", 4},
          {"moe_intermediate_size", 32}};
}

Json deepseek() {
  return {{"model_type", "deepseek_v3"},
          {"num_hidden_layers", 6},
          {"hidden_size", 64},
          {"intermediate_size", 256},
          {"num_attention_heads", 8},
          {"q_lora_rank", 32},
          {"kv_lora_rank", 16},
          {"qk_nope_head_dim", 8},
          {"qk_rope_head_dim", 4},
          {"v_head_dim", 8},
          {"vocab_size", 1000},
          {"n_routed_experts", 16},
          {"num_experts_per_tok", 4},
          {"moe_intermediate_size", 32},
          {"n_shared_experts", 2},
          {"first_k_dense_replace", 2},
          {"n_group", 4},
          {"topk_group", 2},
          {"topk_method", "noaux_tc"}};
}

Json with(Json base, const Json& changes) {
  for (const auto& item : changes.items()) base[item.key()] = item.value();
  return base;
}

Json without(Json base, const char* key) {
  base.erase(key);
  return base;
}

Model import(const Json& config) {
  Result<Model> model = import_hf_config(config, "config.json");
  EXPECT_TRUE(model) << model.error().to_string() << config;
  return model ? *model : Model{};
}

std::string refusal(const Json& config) {
  const Result<Model> model = import_hf_config(config, "config.json");
  EXPECT_FALSE(model) << config;
  return model ? std::string() : model.error().to_string();
}

std::string kinds(const Model& m) {
  std::string text;
  for (LayerKind kind : m.layers) text += "dMwW"[kind.index()];
  return text;
}

void expect_contains(const std::string& text, std::initializer_list<const char*> words) {
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_NE(text.find("config.json"), std::string::npos) << text;
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(Import, LayersOfEachFamily) {
  EXPECT_EQ(kinds(import(llama())), "dddd");
  EXPECT_EQ(kinds(import(deepseek())), "ddMMMM");
  EXPECT_EQ(kinds(import(moe())), "MMMMMM");
  EXPECT_EQ(import(moe()).dense_ffn, 0);
  EXPECT_EQ(kinds(import(with(moe(), {{"decoder_sparse_step", 2}}))), "dMdMdM");
  EXPECT_EQ(kinds(import(with(moe(), {{"mlp_only_layers", {0, 5}}}))), "dMMMMd");
  EXPECT_EQ(kinds(import(with(deepseek(), {{"moe_layer_freq", 2}}))), "ddMdMd");
  EXPECT_EQ(kinds(import(with(deepseek(), {{"first_k_dense_replace", 0},
                                           {"moe_layer_freq", {0, 1, 1, 0, 1, 1}}}))),
            "dMMdMM");
  EXPECT_EQ(
      kinds(import(with(moe(), {{"mlp_layer_types",
                                 {"dense", "sparse", "sparse", "sparse", "dense", "sparse"}}}))),
      "dMMMdM");
}

TEST(Import, Llama4InterleavesAndChunks) {
  const Json config = {{"model_type", "llama4_text"},
                       {"num_hidden_layers", 8},
                       {"hidden_size", 64},
                       {"intermediate_size", 32},
                       {"intermediate_size_mlp", 96},
                       {"num_attention_heads", 8},
                       {"head_dim", 8},
                       {"num_key_value_heads", 2},
                       {"vocab_size", 1000},
                       {"num_local_experts", 4},
                       {"num_experts_per_tok", 1},
                       {"interleave_moe_layer_step", 2},
                       {"attention_chunk_size", 128},
                       {"max_position_embeddings", 4096}};
  const Model m = import(config);
  EXPECT_EQ(kinds(m), "wWwMwWwM");
  EXPECT_TRUE(m.attention.chunked);
  EXPECT_EQ(m.attention.window, 128);
  EXPECT_EQ(m.dense_ffn, 96);
  EXPECT_EQ(m.moe.expert_ffn, 32);
  EXPECT_EQ(m.moe.shared_ffn, 32);
  EXPECT_EQ(m.moe.score, RouterScore::sigmoid);
  EXPECT_EQ(kinds(import(with(config, {{"no_rope_layers", {1, 0, 1, 1, 1, 1, 1, 1}}}))),
            "wMwWwWwW");
}

TEST(Import, Windows) {
  const Json window = {{"sliding_window", 128}};
  EXPECT_EQ(kinds(import(with(llama(), with(window, {{"model_type", "mistral"}})))), "wwww");
  EXPECT_EQ(kinds(import(with(llama(), {{"model_type", "mistral"}, {"sliding_window", nullptr}}))),
            "dddd");
  EXPECT_EQ(kinds(import(with(llama(), with(window, {{"model_type", "gemma2"}})))), "wdwd");
  EXPECT_EQ(kinds(import(with(llama(), with(window, {{"model_type", "gemma3_text"},
                                                     {"sliding_window_pattern", 3}})))),
            "wwdw");
  // Qwen2 writes a window that it does not use.
  const Json qwen = with(llama(), with(window, {{"model_type", "qwen2"}}));
  EXPECT_EQ(kinds(import(with(qwen, {{"use_sliding_window", false}}))), "dddd");
  EXPECT_EQ(import(with(qwen, {{"use_sliding_window", false}})).attention.window, 0);
  EXPECT_EQ(kinds(import(with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 3}}))),
            "dddw");
  // Phi-3 writes a window wider than its longest sequence.
  EXPECT_EQ(kinds(import(with(llama(), {{"model_type", "phi3"}, {"sliding_window", 262144}}))),
            "dddd");
  EXPECT_EQ(kinds(import(with(qwen, {{"layer_types",
                                      {"full_attention", "sliding_attention", "sliding_attention",
                                       "full_attention"}}}))),
            "dwwd");
}

TEST(Import, RoutingOfEachFamily) {
  const Moe v3 = import(deepseek()).moe;
  EXPECT_EQ(v3.shared_ffn, 64);  // two of 32
  EXPECT_EQ(v3.groups, 4);
  EXPECT_EQ(v3.top_groups, 2);
  EXPECT_TRUE(v3.group_limited());
  EXPECT_TRUE(v3.expert_bias);
  EXPECT_EQ(v3.score, RouterScore::sigmoid);
  EXPECT_DOUBLE_EQ(v3.aux_loss, 1e-4);
  EXPECT_FALSE(import(with(deepseek(), {{"topk_method", "greedy"}})).moe.group_limited());

  const Moe qwen2 =
      import(with(moe(), {{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 96}}))
          .moe;
  EXPECT_EQ(qwen2.shared_ffn, 96);  // the total width
  EXPECT_TRUE(qwen2.shared_gate);
  EXPECT_FALSE(qwen2.normalize_top_k);
  EXPECT_TRUE(import(with(moe(), {{"norm_topk_prob", true}})).moe.normalize_top_k);

  const Json mixtral = with(without(without(moe(), "moe_intermediate_size"), "num_experts"),
                            {{"model_type", "mixtral"}, {"num_local_experts", 8}});
  EXPECT_EQ(import(mixtral).moe.expert_ffn, 256);  // intermediate_size
  EXPECT_EQ(import(mixtral).moe.experts, 8);
}

TEST(Import, TiedEmbeddingsByLibraryDefault) {
  EXPECT_FALSE(import(llama()).tied_embeddings);
  EXPECT_TRUE(import(with(llama(), {{"model_type", "gemma2"}})).tied_embeddings);
  EXPECT_FALSE(import(with(llama(), {{"model_type", "gemma2"}, {"tie_word_embeddings", false}}))
                   .tied_embeddings);
  EXPECT_TRUE(import({{"model_type", "qwen3_vl"},
                      {"tie_word_embeddings", true},
                      {"text_config", with(llama(), {{"model_type", "qwen3_vl_text"}})}})
                  .tied_embeddings);
}

TEST(Import, NestedConfigAndOldAndNewNames) {
  const Json nested = {{"model_type", "kimi_k25"}, {"text_config", deepseek()}};
  EXPECT_EQ(import(nested).family, "deepseek_v3");
  EXPECT_EQ(import(nested).hidden, 64);
  // DBRX hides half of it in two objects.
  const Json dbrx = {
      {"model_type", "dbrx"},
      {"n_layers", 2},
      {"d_model", 64},
      {"n_heads", 8},
      {"vocab_size", 1000},
      {"attn_config", {{"kv_n_heads", 2}, {"rope_theta", 5e5}}},
      {"ffn_config", {{"ffn_hidden_size", 96}, {"moe_num_experts", 4}, {"moe_top_k", 2}}}};
  EXPECT_EQ(import(dbrx).attention.kv_heads, 2);
  EXPECT_EQ(import(dbrx).moe.expert_ffn, 96);
  EXPECT_DOUBLE_EQ(import(dbrx).rope.base, 5e5);
  const Json modern = with(
      llama(), {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 7e4}}}});
  EXPECT_EQ(import(modern).rope.scaling, "yarn");
  EXPECT_DOUBLE_EQ(import(modern).rope.factor, 4);
  EXPECT_DOUBLE_EQ(import(modern).rope.base, 7e4);
}

TEST(Import, MultiTokenPrediction) {
  EXPECT_EQ(import(with(deepseek(), {{"num_nextn_predict_layers", 1}})).mtp_layers, 1);
  EXPECT_EQ(import(with(deepseek(), {{"mtp_num_hidden_layers", 2}})).mtp_layers, 2);
  EXPECT_EQ(import(with(deepseek(), {{"num_mtp_modules", 3}, {"use_mtp", false}})).mtp_layers, 0);
}

TEST(Import, NotesNameTheKeysUsed) {
  std::vector<ImportNote> notes;
  ASSERT_TRUE(import_hf_config(deepseek(), "config.json", &notes));
  const auto uses = [&](const char* field, const char* key) {
    for (const ImportNote& note : notes)
      if (note.field == field && note.key == key) return true;
    return false;
  };
  EXPECT_TRUE(uses("experts", "n_routed_experts"));
  EXPECT_TRUE(uses("hidden", "hidden_size"));
}

TEST(Import, RefusesWhatItCannotPriceWhateverTheNameSays) {
  expect_contains(refusal(with(llama(), {{"model_type", "mamba2"}})), {"state-space", "mamba2"});
  expect_contains(refusal(with(llama(), {{"hybrid_override_pattern", "M*M*"}})), {"state-space"});
  expect_contains(refusal(with(llama(), {{"attn_type_list", {0, 1, 0, 1}}})), {"linear-attention"});
  expect_contains(refusal(with(llama(), {{"layer_types",
                                          {"linear_attention", "full_attention", "linear_attention",
                                           "full_attention"}}})),
                  {"linear-attention"});
  expect_contains(refusal(with(llama(), {{"is_encoder_decoder", true}})), {"encoder-decoder"});
  expect_contains(refusal(with(deepseek(), {{"index_topk", 2048}})), {"sparse attention"});
  expect_contains(refusal(with(moe(), {{"moe_latent_size", 1024}})), {"latent"});
  expect_contains(refusal({{"model_type", "mllama"}, {"text_config", llama()}}),
                  {"cross-attention"});
}

TEST(Import, OneClearErrorForEachBadConfig) {
  expect_contains(refusal(without(llama(), "hidden_size")),
                  {"missing key 'hidden_size'", "d_model"});
  expect_contains(refusal(without(llama(), "vocab_size")), {"missing key 'vocab_size'"});
  expect_contains(refusal(without(moe(), "num_experts")), {"missing key", "n_routed_experts"});
  expect_contains(refusal(without(moe(), "num_experts_per_tok")), {"num_experts_per_tok"});
  expect_contains(refusal(with(llama(), {{"hidden_size", -64}})), {"#/hidden_size", "-64"});
  expect_contains(refusal(with(llama(), {{"hidden_size", 0}})), {"#/hidden_size", "outside"});
  expect_contains(refusal(with(llama(), {{"hidden_size", 1e15}})), {"#/hidden_size"});
  expect_contains(refusal(with(llama(), {{"hidden_size", "big"}})), {"an integer", "big"});
  expect_contains(refusal(with(llama(), {{"num_hidden_layers", 1000000000}})), {"outside"});
  expect_contains(refusal(with(llama(), {{"num_key_value_heads", 3}})), {"8", "3", "divisible"});
  expect_contains(refusal(with(moe(), {{"num_experts_per_tok", 17}})), {"top-17 of 16 experts"});
  expect_contains(refusal(with(deepseek(), {{"n_group", 5}, {"topk_group", 1}})),
                  {"16 experts", "divisible", "5"});
  expect_contains(refusal(with(deepseek(), {{"topk_group", 5}})), {"topk_group 5"});
  expect_contains(refusal(with(deepseek(), {{"first_k_dense_replace", 6}})), {"no layer is MoE"});
  expect_contains(refusal(with(moe(), {{"layer_types", {"full_attention"}}})),
                  {"1 entries for 6 layers"});
  expect_contains(refusal(with(moe(), {{"mlp_only_layers", {6}}})), {"layer 6 of 6"});
  expect_contains(refusal(with(moe(), {{"n_routed_experts", 8}})), {"num_experts", "16", "8"});
  expect_contains(refusal(with(llama(), {{"hidden_act", "sliu"}})), {"sliu", "silu"});
  expect_contains(refusal(with(llama(), {{"model_type", "lama"}})),
                  {"lama", "did you mean 'llama'"});
  expect_contains(refusal(with(deepseek(), {{"scoring_func", "sqrtsoftplus"}})), {"sqrtsoftplus"});
  expect_contains(refusal(with(moe(), {{"intermediate_size", 0}, {"mlp_only_layers", {0}}})),
                  {"dense", "intermediate_size"});
  // Widths legal one by one, absurd together: 10000 layers of 65536 experts of 2^24.
  expect_contains(refusal(with(moe(), {{"num_hidden_layers", 10000},
                                       {"num_experts", 65536},
                                       {"hidden_size", 1 << 24},
                                       {"moe_intermediate_size", 1 << 24}})),
                  {"parameters"});
  expect_contains(refusal(Json::array()), {"object"});
  expect_contains(refusal(Json("x")), {"object"});
}

TEST(Import, PointersContinueThoseOfTheJob) {
  const Result<Model> bad =
      import_hf_config(with(llama(), {{"hidden_size", 0}}), "job.json#/model");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().where, "job.json#/model/hidden_size");
  const Result<Model> good = import_hf_config(llama(), "job.json#/model");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->name, "inline");
}

// An inline shape has no library behind it: a key that nobody reads is a typing error.
TEST(Import, InlineShapesAreReadStrictly) {
  const Json shape = without(moe(), "model_type");
  EXPECT_EQ(kinds(import(shape)), "MMMMMM");
  EXPECT_FALSE(import(shape).attention.qk_norm);
  EXPECT_EQ(import(shape).norm, Norm::rmsnorm);
  EXPECT_EQ(import(shape).activation, Activation::swiglu);
  expect_contains(refusal(with(shape, {{"num_expert", 4}})),
                  {"unknown key 'num_expert'", "did you mean 'num_experts'"});
}

// Any value of the wrong kind in any place: an error or a model, never a crash.
TEST(Import, SurvivesMutatedConfigs) {
  const Json values[] = {nullptr,
                         true,
                         -1,
                         0,
                         1,
                         3,
                         1e300,
                         -0.5,
                         "x",
                         "",
                         Json::array(),
                         {1, "a", nullptr},
                         Json::object(),
                         {{"type", 3}},
                         std::int64_t{1} << 62,
                         std::uint64_t{1} << 63,
                         65536,
                         1 << 24};
  int imported = 0, refused = 0;
  for (const Json& base : {llama(), moe(), deepseek(), without(moe(), "model_type")}) {
    Json rich = with(base, {{"rope_scaling", {{"type", "yarn"}, {"factor", 4}}},
                            {"sliding_window", 64},
                            {"layer_types", Json::array()},
                            {"text_config", nullptr},
                            {"moe_layer_freq", 1}});
    for (const auto& item : rich.items())
      for (const Json& value : values) {
        const Result<Model> model = import_hf_config(with(rich, {{item.key(), value}}), "c.json");
        model ? ++imported : ++refused;
        if (!model) continue;
        EXPECT_GT(count_parameters(*model).total(), 0);
        EXPECT_GT(train_flops_per_token(*model, 4096), 0);
      }
  }
  EXPECT_GT(imported, 100);
  EXPECT_GT(refused, 100);
  Random random(7);
  const Json base = with(deepseek(), {{"model_type", "deepseek_v3"}});
  std::vector<std::string> keys;
  for (const auto& item : base.items()) keys.push_back(item.key());
  for (int i = 0; i < 5000; ++i) {
    Json config = base;
    for (int j = 0; j < 3; ++j)
      config[keys[random.below(keys.size())]] = values[random.below(std::size(values))];
    const Result<Model> model = import_hf_config(config, "c.json");
    if (model)
      EXPECT_GT(count_parameters(*model).total(), 0);
    else
      EXPECT_FALSE(model.error().message.empty());
  }
}

}  // namespace
}  // namespace trifold::model

// SPDX-License-Identifier: Apache-2.0
#include "layout/pipeline.h"

#include <gtest/gtest.h>

#include <chrono>

namespace trifold::layout {
namespace {

model::Model model_of(int dense, int moe, int mtp = 0) {
  model::Model m;
  m.layers.assign(static_cast<std::size_t>(dense), model::LayerKind{false, false});
  m.layers.insert(m.layers.end(), static_cast<std::size_t>(moe), model::LayerKind{true, false});
  m.mtp_layers = mtp;
  return m;
}

Layout cut(int pp, int vpp) {
  Layout layout;
  layout.pp = pp;
  layout.vpp = vpp;
  return layout;
}

std::string error_of(const model::Model& m, const Layout& layout) {
  Result<Pipeline> p = build_pipeline(m, layout);
  return p ? "" : p.error().message;
}

// megatron.md 4.1: 94 layers + embedding + loss = 96 slots, 3 a chunk over 32; first and last
// hold 2.
TEST(Pipeline, Qwen3WithBothAccounted) {
  Layout layout = cut(8, 4);
  layout.account_for_embedding = layout.account_for_loss = true;
  const Pipeline p = build_pipeline(model_of(0, 94), layout).value();
  EXPECT_EQ(p.at(0, 0).layers, 2);
  EXPECT_EQ(p.at(7, 3).layers, 2);
  EXPECT_EQ(p.at(1, 0).layers, 3);
  EXPECT_EQ(p.at(1, 0).first_layer, 2);   // slot 3, minus one: the embedding took a slot
  EXPECT_EQ(p.at(0, 1).first_layer, 23);  // k*(L+acc)/v = 24, minus one
  EXPECT_TRUE(p.at(0, 0).embedding);
  EXPECT_TRUE(p.at(7, 3).loss);
  EXPECT_FALSE(p.at(7, 0).loss);
  EXPECT_NE(error_of(model_of(0, 94), cut(8, 4)).find("divisible by pipeline_model"),
            std::string::npos);
}

TEST(Pipeline, EvenInterleavedOrder) {
  const Pipeline p = build_pipeline(model_of(2, 14), cut(4, 2)).value();  // 2 layers a chunk
  EXPECT_EQ(p.at(0, 0).first_layer, 0);
  EXPECT_EQ(p.at(3, 0).first_layer, 6);
  EXPECT_EQ(p.at(0, 1).first_layer, 8);
  EXPECT_EQ(p.at(0, 0).of_kind[0], 2);  // dense
  EXPECT_EQ(p.at(1, 0).of_kind[1], 2);  // MoE
}

TEST(Pipeline, VeePlacementReturnsToRankZero) {
  const Pipeline p = build_pipeline(model_of(0, 16), cut(4, 2), Placement::vee).value();
  EXPECT_EQ(p.at(0, 0).first_layer, 0);
  EXPECT_EQ(p.at(3, 0).first_layer, 6);
  EXPECT_EQ(p.at(3, 1).first_layer, 8);
  EXPECT_EQ(p.at(0, 1).first_layer, 14);
  EXPECT_TRUE(p.at(0, 1).loss);
  EXPECT_EQ(print_pipeline_layout(p), "Ett|(tt|)*6ttL");
}

TEST(Pipeline, UnevenStages) {
  Layout layout = cut(4, 2);
  layout.first_stage_layers = 2;
  layout.last_stage_layers = 4;  // middle: (22 - 6) / 2 = 8
  const Pipeline p = build_pipeline(model_of(0, 22), layout).value();
  // T = 1 + 4 + 4 + 2 = 11 layers a virtual round
  EXPECT_EQ(p.at(0, 0).layers, 1);
  EXPECT_EQ(p.at(1, 0).first_layer, 1);
  EXPECT_EQ(p.at(3, 0).first_layer, 9);
  EXPECT_EQ(p.at(0, 1).first_layer, 11);
  EXPECT_EQ(p.at(3, 1).layers, 2);

  layout.vpp = 4;
  EXPECT_NE(error_of(model_of(0, 22), layout).find("virtual pipeline parallel degree"),
            std::string::npos);
  layout.vpp = 1;
  EXPECT_NE(error_of(model_of(0, 23), layout).find("middle stage"), std::string::npos);
  layout.account_for_loss = true;
  EXPECT_NE(error_of(model_of(0, 22), layout).find("cannot be set at the same time"),
            std::string::npos);
}

// Kimi-K2 on PP 8 with an uneven first stage only: 61 = 5 + 7 * 8.
TEST(Pipeline, UnevenFirstOnly) {
  Layout layout = cut(8, 1);
  layout.first_stage_layers = 5;
  const Pipeline p = build_pipeline(model_of(1, 60), layout).value();
  EXPECT_EQ(p.at(0, 0).of_kind[0], 1);
  EXPECT_EQ(p.at(7, 0).first_layer, 5 + 6 * 8);
}

TEST(Pipeline, DeepSeekLayoutString) {
  Layout layout = cut(8, 4);
  layout.pipeline_layout = "Et|(tt|)*30mL";
  const Pipeline p = build_pipeline(model_of(3, 58, 1), layout).value();
  ASSERT_EQ(p.vpp, 4);  // 32 stages over 8 ranks
  EXPECT_TRUE(p.at(0, 0).embedding);
  EXPECT_EQ(p.at(0, 0).layers, 1);
  EXPECT_EQ(p.at(1, 0).of_kind[0], 2);  // layers 1, 2 are dense
  EXPECT_EQ(p.at(2, 0).of_kind[1], 2);
  EXPECT_EQ(p.at(7, 3), (Chunk{61, 0, {}, false, 1, true}));
  EXPECT_EQ(print_pipeline_layout(p), layout.pipeline_layout);
}

TEST(Pipeline, StandaloneMtpAndLoss) {
  Layout layout = cut(16, 2);
  layout.pipeline_layout = "Et*3|(tt|)*29m|L";
  const Pipeline p = build_pipeline(model_of(3, 58, 1), layout).value();
  EXPECT_EQ(p.at(14, 1).mtp, 1);
  EXPECT_EQ(p.at(14, 1).layers, 0);
  EXPECT_TRUE(p.at(15, 1).loss);
}

TEST(Pipeline, MtpDefaultsToTheLastStage) {
  const Pipeline p = build_pipeline(model_of(0, 16, 2), cut(4, 2)).value();
  EXPECT_EQ(p.at(3, 1).mtp, 2);
  EXPECT_EQ(p.at(3, 0).mtp, 0);
}

CutFault fault_of(const model::Model& m, const Layout& layout) {
  Pipeline p;
  return cut_pipeline(m, layout, p).fault;
}

CutFault string_fault(const char* text, int pp, int layers, int mtp = 0) {
  Layout layout = cut(pp, 1);
  layout.pipeline_layout = text;
  return fault_of(model_of(0, layers, mtp), layout);
}

TEST(Pipeline, StringFaults) {
  EXPECT_EQ(string_fault("Et|t|tL", 3, 3), CutFault::none);
  EXPECT_EQ(string_fault("Et|t|tL", 2, 3), CutFault::layout_stages);
  EXPECT_EQ(string_fault("Et|t|xL", 3, 3), CutFault::layout_syntax);
  EXPECT_EQ(string_fault("tE|t|tL", 3, 3), CutFault::layout_ends);
  EXPECT_EQ(string_fault("t|Et|tL", 3, 3), CutFault::layout_ends);
  EXPECT_EQ(string_fault("EEt|t|tL", 3, 3), CutFault::layout_ends);
  EXPECT_EQ(string_fault("Et|t|Lt", 3, 3), CutFault::layout_ends);
  EXPECT_EQ(string_fault("Et|tL|t", 3, 3), CutFault::layout_ends);
  EXPECT_EQ(string_fault("Et|t|t", 3, 3), CutFault::layout_ends);
  EXPECT_EQ(string_fault("Et|t|tL", 3, 4), CutFault::layout_layers);
  EXPECT_EQ(string_fault("Et|t|tL", 3, 3, 1), CutFault::layout_mtp_count);
  EXPECT_EQ(string_fault("Et|tm|tL", 3, 3, 1), CutFault::layout_mtp_place);   // a t after m
  EXPECT_EQ(string_fault("Et|ttm|mL", 3, 3, 2), CutFault::layout_mtp_place);  // two stages
  EXPECT_EQ(string_fault("Et|ttm|L", 3, 3, 1), CutFault::none);
  // 4 stages on 2 ranks: m on flat stage 1 is chunk 0 of rank 1, not its last chunk.
  EXPECT_EQ(string_fault("Ett|tm||L", 2, 3, 1), CutFault::layout_mtp_place);
  EXPECT_EQ(string_fault("Ett|t|m|L", 2, 3, 1), CutFault::none);
}

TEST(Pipeline, StringExcludesOtherFields) {
  Layout layout = cut(2, 1);
  layout.pipeline_layout = "Et|tL";
  layout.account_for_loss = true;
  EXPECT_EQ(fault_of(model_of(0, 2), layout), CutFault::layout_and_fields);
  layout.account_for_loss = false;
  layout.vpp = 2;
  EXPECT_EQ(fault_of(model_of(0, 2), layout), CutFault::layout_vpp);
}

TEST(Pipeline, EvenFaults) {
  EXPECT_EQ(fault_of(model_of(0, 12), cut(4, 2)), CutFault::layers_over_chunks);
  EXPECT_EQ(fault_of(model_of(0, 12), cut(0, 2)), CutFault::size);
  Layout layout = cut(1, 1);
  layout.account_for_embedding = layout.account_for_loss = true;
  EXPECT_EQ(fault_of(model_of(0, 1), layout), CutFault::none);  // 3 slots, one is a layer
}

// DeepSeek-V3's published strings: 61 + 2 slots over 32 stages are 2 a stage, over 16 are 4.
TEST(Pipeline, FilledLayoutIsWhatPublishersWrite) {
  EXPECT_EQ(filled_pipeline_layout(model_of(3, 58, 1), 8, 4), "Et|(tt|)*30mL");
  EXPECT_EQ(filled_pipeline_layout(model_of(3, 58), 2, 8), "Et*3|(t*4|)*14ttL");
  EXPECT_EQ(filled_pipeline_layout(model_of(0, 8), 1, 1), "");
  // 10 layers over 8 stages: 2 slots a stage leave more than the last stage short.
  EXPECT_EQ(filled_pipeline_layout(model_of(0, 10), 8, 1), "");
}

TEST(Pipeline, CutIsFast) {
  Layout layout = cut(16, 8);
  const model::Model m = model_of(0, 128);
  Pipeline p;
  const auto per_call = [&] {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2000; ++i) ASSERT_TRUE(cut_pipeline(m, layout, p).ok());
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    RecordProperty("ns_a_cut", static_cast<int>(spent.count() / 2000 * 1e9));
    EXPECT_LT(spent.count() / 2000, 100e-6);  // ~1 us in Release; the bound holds under sanitizers
  };
  per_call();
  layout.vpp = 1;
  layout.pipeline_layout = "Et|(t|)*126tL";
  per_call();
}

}  // namespace
}  // namespace trifold::layout

// SPDX-License-Identifier: Apache-2.0

// Megatron's --pipeline-model-parallel-layout: refused with a message, or stages that print and
// read back as the same stages, and a pipeline whose chunks hold every layer once.

#include <numeric>

#include "fuzz.h"
#include "layout/pipeline.h"

using namespace trifold;

namespace {

model::Model eight_layers() {
  model::Model model;
  model.hidden = 64;
  model.vocab = 128;
  model.dense_ffn = 128;
  model.mtp_layers = 1;
  model.layers.assign(8, model::LayerKind{});
  return model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string text(fuzz::text_of(data + 2, size - 2));
  const auto stages = layout::parse_pipeline_layout(text);
  if (stages) {
    const auto again = layout::parse_pipeline_layout(layout::print_pipeline_layout(*stages));
    TRIFOLD_CHECK(again.has_value() && *again == *stages);
  } else {
    TRIFOLD_CHECK(!stages.error().message.empty());
  }
  static const model::Model model = eight_layers();
  layout::Layout layout;
  layout.pp = data[0] % 16;
  layout.vpp = data[1] % 8;
  layout.pipeline_layout = text;
  const auto pipeline = layout::build_pipeline(model, layout);
  if (!pipeline) return TRIFOLD_CHECK(!pipeline.error().message.empty()), 0;
  TRIFOLD_CHECK(pipeline->chunks.size() == static_cast<std::size_t>(pipeline->pp * pipeline->vpp));
  const int layers = std::accumulate(pipeline->chunks.begin(), pipeline->chunks.end(), 0,
                                     [](int sum, const auto& chunk) { return sum + chunk.layers; });
  TRIFOLD_CHECK(layers == model.num_layers());
  return 0;
}

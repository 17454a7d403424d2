// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which layers each (stage, chunk) holds; Megatron's pipeline-layout grammar; units in flight.
// Source: megatron.md sections 4.1, 4.2 and 5.4.

#include <array>
#include <string>
#include <vector>

#include "base/result.h"
#include "layout/layout.h"
#include "model/model.h"

namespace trifold::layout {

// What one virtual stage holds. Layers are consecutive: first_layer .. first_layer + layers - 1.
struct Chunk {
  int first_layer = 0;
  int layers = 0;
  std::array<int, model::kLayerKinds> of_kind{};  // decoder layers by kind; sums to `layers`
  bool embedding = false;
  int mtp = 0;
  bool loss = false;
  bool operator==(const Chunk&) const = default;
};

// chunks[k * pp + r] is virtual stage k of pipeline rank r.
struct Pipeline {
  int pp = 1;
  int vpp = 1;
  std::vector<Chunk> chunks;
  const Chunk& at(int stage, int chunk) const {
    return chunks[static_cast<std::size_t>(chunk * pp + stage)];
  }
};

// From the layout string, the uneven or accounted-for fields, or an even cut. Illegal cuts are
// errors whose text is Megatron's reason (job/legality turns them into verdicts).
Result<Pipeline> build_pipeline(const model::Model& model, const Layout& layout);

// "Et*3|(tt|)*29m|L" -> one string of E, t, m, L per stage; commas are cosmetic. And back, with
// repeats folded.
Result<std::vector<std::string>> parse_pipeline_layout(const std::string& text);
std::string print_pipeline_layout(const std::vector<std::string>& stages);
std::string print_pipeline_layout(const Pipeline& pipeline);  // as Megatron's string for this cut

}  // namespace trifold::layout

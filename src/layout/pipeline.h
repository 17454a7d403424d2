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
  int all_layers() const { return layers + mtp; }
  bool operator==(const Chunk&) const = default;
};

// How virtual stages are dealt to ranks. loop: position k * pp + r (interleaving). vee: odd chunks
// run back, position k * pp + (pp - 1 - r), so rank 0 holds the first and the last layers (ZB-V,
// DualPipeV).
enum class Placement : std::uint8_t { loop, vee };

// chunks[k * pp + r] is virtual stage k of pipeline rank r.
struct Pipeline {
  int pp = 1;
  int vpp = 1;
  Placement placement = Placement::loop;
  std::vector<Chunk> chunks;
  const Chunk& at(int stage, int chunk) const {
    return chunks[static_cast<std::size_t>(chunk * pp + stage)];
  }
};

// What is wrong with a cut, as data. Each is one of Megatron's rules (legality_rules.json).
enum class CutFault : std::uint8_t {
  none,
  size,                // pp or vpp below 1, or no layers
  layout_syntax,       // LAY-02
  layout_stages,       // LAY-01: stages, pp
  layout_ends,         // LAY-03
  layout_layers,       // LAY-04: count of t, layers
  layout_mtp_count,    // LAY-05: count of m, MTP depths
  layout_mtp_place,    // LAY-05
  layout_vpp,          // PP-02: vpp given, stages / pp
  layout_and_fields,   // LAY-06
  uneven_and_account,  // PP-09
  uneven_middle,       // PP-10: middle layers, middle stages
  uneven_vpp,          // PP-11: layers of a stage, vpp
  layers_over_stages,  // PP-01: layers and accounted slots, pp
  layers_over_chunks,  // PP-04: slots a stage, vpp
};
struct Cut {
  CutFault fault = CutFault::none;
  std::int64_t left = 0, right = 0;  // the two numbers that clash
  bool ok() const { return fault == CutFault::none; }
};
const char* cut_reason(CutFault fault);  // Megatron's words

// The cut of build_pipeline into `out`, whose storage it reuses: no allocation once it has held as
// many chunks (a layout string of more than a kilobyte excepted). On a fault `out` is unspecified.
Cut cut_pipeline(const model::Model& model, const Layout& layout, Pipeline& out,
                 Placement placement = Placement::loop);

// From the layout string, the uneven or accounted-for fields, or an even cut. Illegal cuts are
// errors whose text is Megatron's reason (job/legality turns them into verdicts).
Result<Pipeline> build_pipeline(const model::Model& model, const Layout& layout,
                                Placement placement = Placement::loop);

// The cut that publishers write by hand where layers do not divide: with the embedding and the loss
// counted as a slot each, ceil((L + 2) / (pp * vpp)) slots a stage, the last one short.
// DeepSeek-V3: "Et|(tt|)*30mL" over 32 stages, "Et*3|(t*4|)*14ttL" over 16. Empty where more than
// the last stage would be short.
std::string filled_pipeline_layout(const model::Model& model, int pp, int vpp);

// "Et*3|(tt|)*29m|L" -> one string of E, t, m, L per stage; commas are cosmetic. And back, with
// repeats folded.
Result<std::vector<std::string>> parse_pipeline_layout(const std::string& text);
std::string print_pipeline_layout(const std::vector<std::string>& stages);
std::string print_pipeline_layout(const Pipeline& pipeline);  // as Megatron's string for this cut

}  // namespace trifold::layout

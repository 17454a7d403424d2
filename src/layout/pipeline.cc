// SPDX-License-Identifier: Apache-2.0
#include "layout/pipeline.h"

// Layers per (stage, chunk), as Megatron's get_num_layers_to_build and PipelineParallelLayerLayout
// (megatron.md 4.1). Whatever the rule, layers are consecutive in position order k * pp + r, so a
// cut is a list of counts in that order and one prefix sum.
//
//   even     q = (L + acc) / (p v) slots a chunk; an accounted-for embedding takes a slot of the
//   first
//            chunk, an accounted-for loss one of the last
//            (PP-13 cannot break: every chunk has a slot).
//   uneven   the first and last stage as given, middle stages share the rest; each divides by v.
//   string   stages in position order; v = stages / p.
//
// MTP depths stand where the string puts m, else on the last chunk of the last stage.

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "layout/layout_string.h"

namespace trifold::layout {

namespace {

Cut fault(CutFault f, std::int64_t left = 0, std::int64_t right = 0) { return Cut{f, left, right}; }

void resize(Pipeline& out, int pp, int vpp) {
  out.pp = pp;
  out.vpp = vpp;
  out.chunks.assign(static_cast<std::size_t>(pp) * static_cast<std::size_t>(vpp), Chunk{});
}

// The counts of the string into chunks (in position order); checks everything but the totals.
Cut read_stages(const std::string& flat, Pipeline& out, int& layers, int& mtp) {
  std::size_t stage = 0;
  const std::size_t last = out.chunks.size() - 1;
  std::size_t mtp_stage = 0;
  bool ended = false;
  for (char c : flat) {
    Chunk& chunk = out.chunks[stage];
    if (ended) return fault(CutFault::layout_ends);
    switch (c) {
      case '|':
        ++stage;
        break;
      case 'E':
        if (stage != 0 || chunk.embedding || chunk.layers > 0 || chunk.mtp > 0)
          return fault(CutFault::layout_ends);
        chunk.embedding = true;
        break;
      case 't':
        if (mtp > 0) return fault(CutFault::layout_mtp_place);
        ++chunk.layers;
        ++layers;
        break;
      case 'm':
        if (mtp > 0 && stage != mtp_stage) return fault(CutFault::layout_mtp_place);
        mtp_stage = stage;
        ++chunk.mtp;
        ++mtp;
        break;
      case 'L':
        if (stage != last) return fault(CutFault::layout_ends);
        chunk.loss = ended = true;
        break;
    }
  }
  if (!out.chunks.front().embedding || !ended) return fault(CutFault::layout_ends);
  if (mtp > 0 && static_cast<int>(mtp_stage) / out.pp != out.vpp - 1)
    return fault(CutFault::layout_mtp_place);
  return {};
}

Cut from_string(const model::Model& model, const Layout& layout, Pipeline& out) {
  if (layout.account_for_embedding || layout.account_for_loss || layout.first_stage_layers > 0 ||
      layout.last_stage_layers > 0)
    return fault(CutFault::layout_and_fields);
  thread_local std::string flat;
  flat.clear();
  if (!expand_layout(layout.pipeline_layout, flat).ok) return fault(CutFault::layout_syntax);
  const auto stages = 1 + static_cast<int>(std::count(flat.begin(), flat.end(), '|'));
  if (stages % layout.pp != 0) return fault(CutFault::layout_stages, stages, layout.pp);
  const int vpp = stages / layout.pp;
  // 1 is the field's default: a Layout that only gives the string has the string's vpp.
  if (layout.vpp != 1 && layout.vpp != vpp) return fault(CutFault::layout_vpp, layout.vpp, vpp);
  resize(out, layout.pp, vpp);
  int layers = 0, mtp = 0;
  if (Cut cut = read_stages(flat, out, layers, mtp); !cut.ok()) return cut;
  if (layers != model.num_layers())
    return fault(CutFault::layout_layers, layers, model.num_layers());
  if (mtp != model.mtp_layers) return fault(CutFault::layout_mtp_count, mtp, model.mtp_layers);
  return {};
}

Cut uneven(const model::Model& model, const Layout& layout, Pipeline& out) {
  const std::int64_t pp = layout.pp, vpp = layout.vpp, layers = model.num_layers();
  const std::int64_t first = layout.first_stage_layers, last = layout.last_stage_layers;
  if (layout.account_for_embedding || layout.account_for_loss)
    return fault(CutFault::uneven_and_account);
  const std::int64_t middle_stages = pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const std::int64_t middle_layers = layers - first - last;
  const bool fits = middle_stages == 0 ? middle_layers == 0
                                       : middle_layers > 0 && middle_stages > 0 &&
                                             middle_layers % middle_stages == 0;
  if (!fits) return fault(CutFault::uneven_middle, middle_layers, middle_stages);
  const std::int64_t middle = middle_stages > 0 ? middle_layers / middle_stages : 0;
  resize(out, layout.pp, layout.vpp);
  for (int r = 0; r < pp; ++r) {
    const std::int64_t of_stage = r == 0 && first > 0       ? first
                                  : r == pp - 1 && last > 0 ? last
                                                            : middle;
    if (of_stage % vpp != 0) return fault(CutFault::uneven_vpp, of_stage, vpp);
    for (int k = 0; k < vpp; ++k)
      out.chunks[static_cast<std::size_t>(k * pp + r)].layers = static_cast<int>(of_stage / vpp);
  }
  return {};
}

Cut even(const model::Model& model, const Layout& layout, Pipeline& out) {
  const std::int64_t pp = layout.pp, vpp = layout.vpp;
  const std::int64_t slots = model.num_layers() + (layout.account_for_embedding ? 1 : 0) +
                             (layout.account_for_loss ? 1 : 0);
  if (slots % pp != 0) return fault(CutFault::layers_over_stages, slots, pp);
  if (slots / pp % vpp != 0) return fault(CutFault::layers_over_chunks, slots / pp, vpp);
  resize(out, layout.pp, layout.vpp);
  for (Chunk& chunk : out.chunks) chunk.layers = static_cast<int>(slots / pp / vpp);
  if (layout.account_for_embedding) --out.chunks.front().layers;
  if (layout.account_for_loss) --out.chunks.back().layers;
  return {};
}

// first_layer and of_kind from the counts.
void number_layers(const model::Model& model, Pipeline& out) {
  int next = 0;
  for (Chunk& chunk : out.chunks) {
    chunk.first_layer = next;
    for (int i = 0; i < chunk.layers; ++i, ++next)
      ++chunk.of_kind[static_cast<std::size_t>(
          model.layers[static_cast<std::size_t>(next)].index())];
  }
}

}  // namespace

const char* cut_reason(CutFault f) {
  switch (f) {
    case CutFault::none:
      return "";
    case CutFault::size:
      return "pipeline size and virtual pipeline size should be at least 1";
    case CutFault::layout_syntax:
      return "Invalid layer character in pipeline_model_parallel_layout";
    case CutFault::layout_stages:
      return "The length of pipeline_model_parallel_layout must be divisible by pipeline size";
    case CutFault::layout_ends:
      return "The first layer must be embedding and the last layer must be loss";
    case CutFault::layout_layers:
      return "Number of decoder layers in layout must match num_layers";
    case CutFault::layout_mtp_count:
      return "Number of mtp layers in layout must match mtp_num_layers";
    case CutFault::layout_mtp_place:
      return "All of the mtp layers must be in one stage, after the last decoder layer, in the "
             "last "
             "virtual pipeline rank";
    case CutFault::layout_vpp:
      return "No more than one of the virtual pipeline size and pipeline_model_parallel_layout can "
             "be set";
    case CutFault::layout_and_fields:
      return "pipeline_model_parallel_layout cannot be set with other pipeline layout arguments";
    case CutFault::uneven_and_account:
      return "num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage cannot be "
             "set "
             "at the same time with account_for_embedding_in_pipeline_split and "
             "account_for_loss_in_pipeline_split";
    case CutFault::uneven_middle:
      return "number of layers at middle stage must be divisible by the middle pipeline model "
             "parallel size";
    case CutFault::uneven_vpp:
      return "number of layers of a stage must be divisible by virtual pipeline parallel degree";
    case CutFault::layers_over_stages:
      return "num_layers should be divisible by pipeline_model_parallel_size";
    case CutFault::layers_over_chunks:
      return "num_layers_per_pipeline_rank should be divisible by vp_size";
  }
  return "";
}

Cut cut_pipeline(const model::Model& model, const Layout& layout, Pipeline& out,
                 Placement placement) {
  constexpr int kMostChunks = 1 << 20;
  if (layout.pp < 1 || layout.vpp < 1 || layout.first_stage_layers < 0 ||
      layout.last_stage_layers < 0 || model.layers.empty() ||
      std::int64_t{layout.pp} * layout.vpp > kMostChunks)
    return fault(CutFault::size, layout.pp, layout.vpp);
  out.placement = placement;
  const bool given = !layout.pipeline_layout.empty();
  const bool is_uneven = layout.first_stage_layers > 0 || layout.last_stage_layers > 0;
  const Cut cut = given       ? from_string(model, layout, out)
                  : is_uneven ? uneven(model, layout, out)
                              : even(model, layout, out);
  if (!cut.ok()) return cut;
  if (!given) {
    out.chunks.front().embedding = true;
    out.chunks.back().loss = true;
    out.chunks.back().mtp = static_cast<int>(model.mtp_layers);
  }
  number_layers(model, out);
  if (placement == Placement::vee) {
    for (int k = 1; k < out.vpp; k += 2)
      std::reverse(out.chunks.begin() + k * out.pp, out.chunks.begin() + (k + 1) * out.pp);
  }
  return {};
}

std::string filled_pipeline_layout(const model::Model& model, int pp, int vpp) {
  const std::int64_t stages = std::int64_t{pp} * vpp, layers = model.num_layers();
  if (stages < 2 || stages > layers + 2) return {};
  const std::int64_t slots = ceil_div(layers + 2, stages);
  const std::int64_t last = layers - (slots - 1) - slots * (stages - 2);
  if (last < 0) return {};
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  std::vector<std::string> text(count(stages), std::string(count(slots), 't'));
  text.front() = "E" + std::string(count(slots - 1), 't');
  text.back() = std::string(count(last), 't') + std::string(count(model.mtp_layers), 'm') + "L";
  return print_pipeline_layout(text);
}

Result<Pipeline> build_pipeline(const model::Model& model, const Layout& layout,
                                Placement placement) {
  Pipeline pipeline;
  const Cut cut = cut_pipeline(model, layout, pipeline, placement);
  if (cut.ok()) return pipeline;
  if (cut.fault == CutFault::layout_syntax) {
    Result<std::vector<std::string>> parsed = parse_pipeline_layout(layout.pipeline_layout);
    if (!parsed) return parsed.error();
  }
  std::string message = cut_reason(cut.fault);
  if (cut.left != 0 || cut.right != 0) message += fmt::format(" ({} and {})", cut.left, cut.right);
  return Error{ErrorCode::infeasible, message, "layout", ""};
}

}  // namespace trifold::layout

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cuts a model's layers into pp x vpp consecutive chunks so that the slowest pipeline rank is as
// fast as possible; among cuts as fast (within 0.1 %) the plainest: Megatron's even cut, then the
// one that publishers write by hand, then one with the slack where most units are in flight.

#include "layout/pipeline.h"

namespace trifold::planner {

// Seconds of one forward and backward, by what a chunk may hold.
struct ChunkCosts {
  std::array<double, model::kLayerKinds> layer{};
  double embedding = 0, mtp = 0, loss = 0;
};

// The best cut found: embedding in the first chunk, MTP and loss in the last; no chunk is empty.
// vpp 1: no cut has a smaller maximum. vpp > 1: the smallest maximum of the ranks' sums that moving
// layers between ranks finds.
layout::Pipeline balanced_pipeline(const model::Model& model, int pp, int vpp,
                                   const ChunkCosts& costs,
                                   layout::Placement placement = layout::Placement::loop);

// Seconds of the slowest rank.
double slowest_rank(const layout::Pipeline& pipeline, const ChunkCosts& costs);

}  // namespace trifold::planner

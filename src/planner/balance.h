// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cuts a model's layers into pp x vpp consecutive chunks so that the slowest pipeline rank is as
// fast as possible.

#include "layout/pipeline.h"

namespace trifold::planner {

// Seconds of one forward and backward, by what a chunk may hold.
struct ChunkCosts {
  std::array<double, model::kLayerKinds> layer{};
  double embedding = 0, mtp = 0, loss = 0;
};

// The best cut found: consecutive chunks, embedding in the first, MTP and loss in the last. Chunks
// may be empty of decoder layers only at the end. vpp 1: exact (smallest possible maximum). vpp >
// 1: the smallest maximum over chunks, then the surplus spread so that the ranks' sums stay even.
layout::Pipeline balanced_pipeline(const model::Model& model, int pp, int vpp,
                                   const ChunkCosts& costs);

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
// Activations on the host: a layer's offloaded tensors leave on the copy stream when its forward
// ends, and come back before its backward, one layer ahead. Bytes are memory/'s. Copies run on the
// copy engines at the host link's rate; a copy that is late shows as a wait.
#include <algorithm>

#include "memory/stage.h"
#include "schedule/lowering.h"

namespace trifold::schedule {

namespace {

constexpr TimedOp kOffload{"offload", 0, Stream::copy, Category::copy};
constexpr TimedOp kReload{"reload", 0, Stream::copy, Category::copy};

}  // namespace

double Lowering::copy_seconds(const layout::Chunk& chunk, int layer) const {
  if (layer < 0 || layer >= chunk.layers || layer_copy_s_.empty()) return 0;
  const job::Offload& o = job_.techniques.offload;
  if (o.activation_layers > 0 && layer >= o.activation_layers) return 0;
  const bool moe = job_.model.layers[static_cast<std::size_t>(chunk.first_layer + layer)].moe;
  return layer_copy_s_[moe ? 1 : 0];
}

void Lowering::offload_layer(const Unit& u, int layer, sim::Index after) {
  const double seconds = copy_seconds(chunk_of(u), layer);
  if (seconds <= 0) return;
  add(u, kOffload, sim::to_picoseconds(seconds), layer, Work::forward, after);
}

void Lowering::reload_layer(const Unit& u, int layer) {
  const double seconds = copy_seconds(chunk_of(u), layer);
  if (seconds <= 0) return;
  const sim::Index now = marker(u, Work::backward);
  // The copy may run while the layer above is in its backward; this layer waits for it.
  const sim::Index start = pending_reload_ >= 0 ? pending_reload_ : backward_in_[unit_index(u)];
  const sim::Index copy =
      add(u, kReload, sim::to_picoseconds(seconds), layer, Work::backward, start);
  depend(copy, marker(u, Work::backward));
  pending_reload_ = layer > 0 ? now : kNone;
}

}  // namespace trifold::schedule

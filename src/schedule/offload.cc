// SPDX-License-Identifier: Apache-2.0
// Activations on the host: a layer's offloaded tensors leave when its forward ends, and come back
// before its backward, on one copy engine a direction. A reload starts with the backward of the
// layer before it on its stage, across units too (Megatron pre-reloads the last layer of the next
// backward chunk). Bytes are memory/'s, the rate the host link's; a copy that is late shows as a
// wait.
#include <algorithm>

#include "memory/stage.h"
#include "schedule/lowering.h"

namespace trifold::schedule {

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
  offload_end_[unit_index(u)] =
      add(u, out_.programs.offload, sim::to_picoseconds(seconds), layer, Work::forward, after);
}

void Lowering::reload_layer(const Unit& u, int layer) {
  if (layer_copy_s_.empty()) return;
  const double seconds = copy_seconds(chunk_of(u), layer);
  const sim::Index now = marker(u, Work::backward);
  if (seconds > 0) {
    const sim::Index start = pending_reload_ >= 0 ? pending_reload_ : backward_in_[unit_index(u)];
    const sim::Index copy =
        add(u, out_.programs.reload, sim::to_picoseconds(seconds), layer, Work::backward, start);
    depend(offload_end_[unit_index(u)], copy);
    depend(copy, marker(u, Work::backward));
  }
  pending_reload_ = now;
}

}  // namespace trifold::schedule

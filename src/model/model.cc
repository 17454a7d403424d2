// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <algorithm>

namespace trifold::model {

std::int64_t Model::count(LayerKind kind) const {
  return std::count(layers.begin(), layers.end(), kind);
}

std::int64_t Model::moe_layers() const {
  return std::count_if(layers.begin(), layers.end(), [](LayerKind k) { return k.moe; });
}

std::int64_t Model::dense_layers() const { return num_layers() - moe_layers(); }

std::int64_t Model::dense_prefix() const {
  return std::find_if(layers.begin(), layers.end(), [](LayerKind k) { return k.moe; }) -
         layers.begin();
}

}  // namespace trifold::model

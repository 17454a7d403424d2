// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which layers are MoE and which see a window.

#include "base/json.h"
#include "model/family.h"
#include "model/model.h"

namespace trifold::model {

// Fills model.layers, and model.attention.window and .chunked. Wrong lists fail the reader.
void read_layers(JsonReader& reader, const Family& family, std::int64_t layers, Model& model);

// The same pattern at another depth: `prefix` leading dense layers, then what follows the present
// prefix, continued with its own period.
std::vector<LayerKind> resize_layers(const Model& model, std::int64_t layers, std::int64_t prefix);

}  // namespace trifold::model

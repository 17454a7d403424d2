// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where models come from: models/*.json by short name, a person's file, or an inline object. All
// three are Hugging Face `config.json` in its own key names; the catalogue's files are rewritten by
// us and carry their source.

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/model.h"

namespace trifold::model {

// One line per key read: which Hugging Face key fed which field. For `trifold import`.
struct ImportNote {
  std::string field;
  std::string key;
};

// A Hugging Face config (nested under `text_config` when multimodal). Architectures that cannot be
// priced (state-space, linear attention, encoder-decoder) are refused by name.
Result<Model> import_hf_config(const Json& config, const std::string& file,
                               std::vector<ImportNote>* notes = nullptr);

// A config.json as Python writes them: Infinity and NaN are read as null.
Result<Json> read_hf_config(const std::string& path);

// A catalogue name, or a path to a config.json.
Result<Model> load_model(const std::string& name_or_path, const std::string& data_dir);

std::vector<std::string> list_models(const std::string& data_dir);

// Hugging Face keys again (what models/*.json hold); import_hf_config(export) is the same Model.
Json to_hf_config(const Model& model);

// Changes a Job may make: num_layers, dense_prefix_layers, mtp_layers, or any field by its name in
// Model (hidden, vocab, experts, top_k, expert_ffn, ...).
Result<void> apply_overrides(Model& model, const Json& overrides, const std::string& where);

// Is every width positive and consistent (heads divisible by groups, top_k <= experts, ...)?
Result<void> validate(const Model& model, const std::string& where);

}  // namespace trifold::model

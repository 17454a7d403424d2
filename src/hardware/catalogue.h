// SPDX-License-Identifier: Apache-2.0
#pragma once

// The catalogue folders: <data_dir>/hardware/{clusters,profiles}/<name>.json.

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace trifold::hardware {

// Names (file stems) in a folder, sorted; empty when the folder is absent.
std::vector<std::string> list_catalogue(const std::string& folder);

struct CatalogueFile {
  std::string path;
  Json json;
};

// A name of the catalogue, or a path (anything with a '/' or ending in ".json", and "-").
Result<CatalogueFile> read_catalogue(const std::string& name_or_path, const std::string& folder,
                                     const std::string& kind);

// An error unless json["schema"] == schema.
Result<void> check_schema(const Json& json, const std::string& schema, const std::string& file);

}  // namespace trifold::hardware

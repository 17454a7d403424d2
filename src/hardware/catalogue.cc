// SPDX-License-Identifier: Apache-2.0
#include "hardware/catalogue.h"

#include <algorithm>
#include <filesystem>

namespace trifold::hardware {

std::vector<std::string> list_catalogue(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (it->path().extension() == ".json") names.push_back(it->path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<CatalogueFile> read_catalogue(const std::string& name_or_path, const std::string& folder,
                                     const std::string& kind) {
  const std::string suffix = ".json";
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path == "-" ||
      (name_or_path.size() > suffix.size() &&
       name_or_path.compare(name_or_path.size() - suffix.size(), suffix.size(), suffix) == 0);
  if (!is_path) {
    const std::vector<std::string> names = list_catalogue(folder);
    if (!std::binary_search(names.begin(), names.end(), name_or_path)) {
      const std::vector<std::string_view> views(names.begin(), names.end());
      return input_error(
          "unknown " + kind + " '" + name_or_path + "'", folder,
          names.empty() ? "the catalogue folder is empty or absent" : suggest(name_or_path, views));
    }
  }
  const std::string path = is_path ? name_or_path : folder + "/" + name_or_path + suffix;
  TRIFOLD_ASSIGN(json, read_json(path));
  return CatalogueFile{path, std::move(json)};
}

Result<void> check_schema(const Json& json, const std::string& schema, const std::string& file) {
  if (!json.is_object()) return input_error("expected an object", file);
  const auto it = json.find("schema");
  if (it == json.end())
    return input_error("missing key 'schema'", file,
                       "a file of this kind starts with \"schema\": \"" + schema + "\"");
  if (!it->is_string() || it->get<std::string>() != schema)
    return input_error("schema is " + it->dump() + ", expected \"" + schema + "\"",
                       file + "#/schema");
  return {};
}

}  // namespace trifold::hardware

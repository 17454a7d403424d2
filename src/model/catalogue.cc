// SPDX-License-Identifier: Apache-2.0
#include "model/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/family.h"

namespace trifold::model {

namespace {

namespace fs = std::filesystem;

// Python's json writes Infinity, -Infinity and NaN, which JSON has not: null, outside of strings.
std::string without_python_numbers(const std::string& text) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!quoted) {
      const auto word = [&](std::string_view w) { return text.compare(i, w.size(), w) == 0; };
      const std::size_t length = word("-Infinity") ? 9 : word("Infinity") ? 8 : word("NaN") ? 3 : 0;
      if (length > 0) {
        out += "null";
        i += length;
        continue;
      }
    }
    if (quoted && text[i] == '\\' && i + 1 < text.size())
      out += text[i++];
    else if (text[i] == '"')
      quoted = !quoted;
    out += text[i++];
  }
  return out;
}

bool is_path(const std::string& word) {
  const bool json = word.size() > 5 && word.compare(word.size() - 5, 5, ".json") == 0;
  return json || word == "-" || word.find('/') != std::string::npos;
}

}  // namespace

Result<Json> read_hf_config(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  return parse_json(without_python_numbers(text), path);
}

std::vector<std::string> list_models(const std::string& data_dir) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator it(data_dir + "/models", ignored), end; it != end;
       it.increment(ignored)) {
    if (ignored) break;
    if (it->path().extension() == ".json") names.push_back(it->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Model> load_model(const std::string& name_or_path, const std::string& data_dir) {
  if (is_path(name_or_path)) {
    TRIFOLD_ASSIGN(config, read_hf_config(name_or_path));
    return import_hf_config(config, name_or_path);
  }
  const std::vector<std::string> names = list_models(data_dir);
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) {
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string kind = unpriceable_name(name_or_path);
    if (!kind.empty())
      return input_error(fmt::format("model '{}' is not in the catalogue: its {} architecture "
                                     "cannot be priced yet",
                                     name_or_path, kind),
                         {}, "decoders with full or sliding-window attention can be");
    return input_error(
        fmt::format("model '{}' is not in the catalogue", name_or_path), {},
        names.empty() ? "no models under " + data_dir + "/models" : suggest(name_or_path, views));
  }
  TRIFOLD_ASSIGN(config, read_hf_config(data_dir + "/models/" + name_or_path + ".json"));
  return import_hf_config(config, name_or_path + ".json");
}

}  // namespace trifold::model

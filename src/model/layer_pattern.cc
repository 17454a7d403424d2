// SPDX-License-Identifier: Apache-2.0
#include "model/layer_pattern.h"

#include <fmt/format.h>

#include <algorithm>

namespace trifold::model {

namespace {

std::int64_t integer(JsonReader& reader, const char* key, std::int64_t fallback, std::int64_t low,
                     std::int64_t high) {
  reader.get_in(key, fallback, low, high);
  return fallback;
}

bool right_length(JsonReader& reader, const char* key, std::size_t length, std::int64_t layers) {
  if (static_cast<std::int64_t>(length) == layers) return true;
  reader.fail(input_error(fmt::format("'{}' has {} entries for {} layers", key, length, layers),
                          reader.where(key), "one entry a layer"));
  return false;
}

// Indices of layers; those outside the model fail the reader.
std::vector<std::int64_t> indices(JsonReader& reader, const char* key, std::int64_t layers) {
  std::vector<std::int64_t> list;
  reader.get(key, list);
  for (std::int64_t i : list) {
    if (i >= 0 && i < layers) continue;
    reader.fail(
        input_error(fmt::format("'{}' names layer {} of {}", key, i, layers), reader.where(key)));
    return {};
  }
  return list;
}

void apply_frequency(JsonReader& reader, std::vector<bool>& moe) {
  const auto layers = static_cast<std::int64_t>(moe.size());
  const Json* raw = reader.raw("moe_layer_freq");
  if (raw != nullptr && raw->is_array()) {
    std::vector<std::int64_t> list;
    reader.get("moe_layer_freq", list);
    if (reader.failed() || !right_length(reader, "moe_layer_freq", list.size(), layers)) return;
    for (std::size_t i = 0; i < moe.size(); ++i) moe[i] = moe[i] && list[i] != 0;
    return;
  }
  const std::int64_t every = integer(reader, "moe_layer_freq", 1, 1, 10000);
  for (std::int64_t i = 0; i < layers; ++i)
    if (i % every != 0) moe[static_cast<std::size_t>(i)] = false;
}

// Keys of DeepSeek, Qwen and Llama-4 alike: each takes layers away.
std::vector<bool> moe_flags(JsonReader& reader, const Family& family, std::int64_t layers) {
  std::vector<bool> moe(static_cast<std::size_t>(layers), true);
  const std::int64_t prefix =
      integer(reader, "first_k_dense_replace", family.dense_prefix, 0, layers);
  std::fill(moe.begin(), moe.begin() + std::min(prefix, layers), false);
  apply_frequency(reader, moe);
  for (const char* key : {"decoder_sparse_step", "interleave_moe_layer_step"}) {
    const std::int64_t step = integer(reader, key, 1, 1, 10000);
    for (std::int64_t i = 0; i < layers; ++i)
      if ((i + 1) % step != 0) moe[static_cast<std::size_t>(i)] = false;
  }
  for (std::int64_t i : indices(reader, "mlp_only_layers", layers))
    moe[static_cast<std::size_t>(i)] = false;
  if (reader.has("moe_layers")) {
    std::fill(moe.begin(), moe.end(), false);
    for (std::int64_t i : indices(reader, "moe_layers", layers))
      moe[static_cast<std::size_t>(i)] = true;
  }
  reader.ignore("moe_layers");
  return moe;
}

void read_moe(JsonReader& reader, const Family& family, std::int64_t layers, Model& model) {
  std::vector<std::string> words;
  reader.get("mlp_layer_types", words);
  std::vector<bool> moe = moe_flags(reader, family, layers);
  if (!model.is_moe() || reader.failed()) return;
  if (!words.empty()) {
    if (!right_length(reader, "mlp_layer_types", words.size(), layers)) return;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] != "dense" && words[i] != "sparse")
        return reader.fail(input_error("unknown layer type '" + words[i] + "'",
                                       reader.where("mlp_layer_types"), "one of: dense sparse"));
      moe[i] = words[i] == "sparse";
    }
  }
  for (std::size_t i = 0; i < moe.size(); ++i) model.layers[i].moe = moe[i];
  if (model.dense_layers() == 0) model.dense_ffn = 0;
}

void windows_by_list(JsonReader& reader, const std::vector<std::string>& words, Model& model) {
  if (!right_length(reader, "layer_types", words.size(), model.num_layers())) return;
  static constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention",
                                    kChunked = "chunked_attention";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != kFull && words[i] != kSliding && words[i] != kChunked)
      return reader.fail(input_error("unknown layer type '" + words[i] + "'",
                                     reader.where("layer_types"),
                                     suggest(words[i], {kFull, kSliding, kChunked})));
    model.layers[i].windowed = words[i] != kFull;
    if (words[i] == kChunked) model.attention.chunked = true;
  }
}

struct WindowKeys {
  bool use_sliding_window = false;
  std::int64_t max_window_layers = 0;
  std::int64_t pattern = 6;
  std::vector<std::int64_t> no_rope_layers;  // Llama-4: 1 where rotary (and chunked), 0 where full
};

WindowKeys read_window_keys(JsonReader& reader, std::int64_t layers) {
  WindowKeys keys;
  reader.get("use_sliding_window", keys.use_sliding_window);
  keys.max_window_layers = integer(reader, "max_window_layers", layers, 0, 1000000);
  keys.pattern = integer(reader, "_sliding_window_pattern", 6, 1, 10000);
  keys.pattern = integer(reader, "sliding_window_pattern", keys.pattern, 1, 10000);
  reader.get("no_rope_layers", keys.no_rope_layers);
  if (!keys.no_rope_layers.empty())
    right_length(reader, "no_rope_layers", keys.no_rope_layers.size(), layers);
  return keys;
}

bool windowed_by_rule(WindowRule rule, const WindowKeys& keys, std::size_t layer) {
  const auto i = static_cast<std::int64_t>(layer);
  switch (rule) {
    case WindowRule::every_layer:
      return true;
    case WindowRule::qwen:
      return keys.use_sliding_window && i >= keys.max_window_layers;
    case WindowRule::alternate:
      return i % 2 == 0;
    case WindowRule::pattern:
      return (i + 1) % keys.pattern != 0;
    case WindowRule::chunk:
      return keys.no_rope_layers.empty() ? (i + 1) % 4 != 0 : keys.no_rope_layers[layer] != 0;
    case WindowRule::none:
      return false;
  }
  return false;
}

void read_windows(JsonReader& reader, const Family& family, Model& model) {
  constexpr std::int64_t kMaxWindow = std::int64_t{1} << 40;
  Attention& a = model.attention;
  const bool chunk = family.windows == WindowRule::chunk;
  const std::int64_t chunk_size = integer(reader, "attention_chunk_size", 0, 0, kMaxWindow);
  const std::int64_t sliding = integer(reader, "sliding_window", family.window, 0, kMaxWindow);
  const WindowKeys keys = read_window_keys(reader, model.num_layers());
  std::vector<std::string> words;
  reader.get("layer_types", words);
  if (reader.failed()) return;
  if (!words.empty()) {
    windows_by_list(reader, words, model);
  } else {
    a.chunked = chunk;
    for (std::size_t i = 0; i < model.layers.size(); ++i)
      model.layers[i].windowed = windowed_by_rule(family.windows, keys, i);
  }
  const bool any =
      std::any_of(model.layers.begin(), model.layers.end(), [](LayerKind k) { return k.windowed; });
  a.window = a.chunked ? chunk_size : sliding;
  if (any && a.window == 0 && !words.empty())
    return reader.fail(input_error("windowed layers without a window", reader.where("layer_types"),
                                   a.chunked ? "set attention_chunk_size" : "set sliding_window"));
  // A window at least as wide as the longest sequence never acts.
  const bool acts =
      any && a.window > 0 && (model.max_position == 0 || a.window < model.max_position);
  if (acts) return;
  a.window = 0;
  a.chunked = false;
  for (LayerKind& layer : model.layers) layer.windowed = false;
}

}  // namespace

void read_layers(JsonReader& reader, const Family& family, std::int64_t layers, Model& model) {
  model.layers.assign(static_cast<std::size_t>(layers), LayerKind{});
  read_moe(reader, family, layers, model);
  read_windows(reader, family, model);
}

std::vector<LayerKind> resize_layers(const Model& model, std::int64_t layers, std::int64_t prefix) {
  const std::vector<LayerKind>& old = model.layers;
  const auto start = static_cast<std::size_t>(model.is_moe() ? model.dense_prefix() : 0);
  const std::vector<LayerKind> rest(old.begin() + static_cast<std::ptrdiff_t>(start), old.end());
  std::size_t period = 1;
  const auto repeats = [&](std::size_t p) {
    return std::equal(rest.begin() + static_cast<std::ptrdiff_t>(p), rest.end(), rest.begin());
  };
  while (period < rest.size() && !repeats(period)) ++period;
  std::vector<LayerKind> result;
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    LayerKind kind;
    if (i < prefix)
      kind.windowed = old[at % old.size()].windowed;
    else if (!rest.empty())
      kind = rest[static_cast<std::size_t>(i - prefix) % period];
    result.push_back(kind);
  }
  return result;
}

}  // namespace trifold::model

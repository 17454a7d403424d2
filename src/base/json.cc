// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

namespace trifold {

namespace {

std::string brief(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 37) + "..." : text;
}

void round_numbers(Json& json) {
  if (json.is_number_float()) {
    const double value = json.get<double>();
    if (!std::isfinite(value))
      json = nullptr;
    else
      json = round_significant(value);
  } else if (json.is_structured()) {
    for (Json& item : json) round_numbers(item);
  }
}

std::string line_of(std::string_view text, std::size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return fmt::format("{}", 1 + std::count(text.begin(), end, '\n'));
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    return input_error(std::string("cannot open: ") + std::strerror(errno), path);
  std::string text;
  char buffer[1 << 16];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, got);
  const bool bad = std::ferror(file) != 0;
  if (file != stdin) std::fclose(file);
  if (bad) return input_error("cannot read (is it a directory?)", path);
  return text;
}

Result<Json> parse_json(std::string_view text, const std::string& name) {
  try {
    return Json::parse(text.begin(), text.end(), nullptr, true, true);
  } catch (const nlohmann::json::parse_error& e) {
    std::string message = e.what();
    if (const auto colon = message.find("; "); colon != std::string::npos)
      message = message.substr(colon + 2);
    const bool torn = e.byte >= text.size();
    return input_error(torn ? "JSON ends too early (truncated?)" : "not valid JSON: " + message,
                       name + ":" + line_of(text, e.byte),
                       torn ? "the file is not complete; write it again" : "");
  } catch (const nlohmann::json::exception& e) {  // a number like 1e999
    return input_error(e.what(), name);
  }
}

Result<Json> read_json(const std::string& path) {
  TRIFOLD_ASSIGN(text, read_text(path));
  return parse_json(text, path);
}

Result<void> write_text(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const auto failure = [&](const char* what) -> Error {
    Error error{ErrorCode::input, fmt::format("{}: {}", what, std::strerror(errno)), path,
                "the old file is untouched"};
    std::remove(temporary.c_str());
    return error;
  };
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return failure("cannot write");
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !wrote) return failure("cannot write");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return failure("cannot replace");
  return {};
}

double round_significant(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

std::string dump_json(const Json& json, int indent) {
  Json rounded = json;
  round_numbers(rounded);
  return rounded.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

JsonReader::JsonReader(const Json& json, std::string file, std::string pointer)
    : json_(&json), file_(std::move(file)), pointer_(std::move(pointer)) {
  if (!json.is_object()) fail(input_error("expected an object, found " + brief(json), where()));
}

std::string JsonReader::where(std::string_view key) const {
  std::string pointer = pointer_;
  if (!key.empty()) pointer += "/" + std::string(key);
  return pointer.empty() ? file_ : file_ + "#" + pointer;
}

const Json* JsonReader::find(std::string_view key) {
  used_.emplace(key);
  if (!json_->is_object()) return nullptr;
  const auto it = json_->find(std::string(key));
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

bool JsonReader::has(std::string_view key) const {
  if (!json_->is_object()) return false;
  const auto it = json_->find(std::string(key));
  return it != json_->end() && !it->is_null();
}

void JsonReader::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void JsonReader::wrong_type(std::string_view key, std::string_view expected, const Json& value) {
  fail(input_error(fmt::format("expected {}, found {}", expected, brief(value)), where(key)));
}

void JsonReader::get(std::string_view key, std::string& out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (value->is_string())
    out = value->get<std::string>();
  else
    wrong_type(key, "a string", *value);
}

void JsonReader::get(std::string_view key, bool& out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (value->is_boolean())
    out = value->get<bool>();
  else
    wrong_type(key, "true or false", *value);
}

void JsonReader::get(std::string_view key, double& out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (value->is_number())
    out = value->get<double>();
  else
    wrong_type(key, "a number", *value);
}

template <class I>
bool JsonReader::integer(std::string_view key, const Json& value, I& out) {
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<I>::max()}) {
    fail(input_error("integer too large: " + brief(value), where(key)));
    return false;
  }
  if (value.is_number_integer()) {
    const auto exact = value.get<std::int64_t>();
    if (exact < std::numeric_limits<I>::min() || exact > std::numeric_limits<I>::max()) {
      fail(input_error("integer out of range: " + brief(value), where(key)));
      return false;
    }
    out = static_cast<I>(exact);
    return true;
  }
  const double number = value.is_number_float() ? value.get<double>() : 0.5;
  if (number == std::floor(number) &&
      std::abs(number) <= static_cast<double>(std::numeric_limits<I>::max() / 2)) {
    out = static_cast<I>(number);
    return true;
  }
  wrong_type(key, "an integer", value);
  return false;
}

void JsonReader::get(std::string_view key, std::int64_t& out) {
  if (const Json* value = find(key)) integer(key, *value, out);
}

void JsonReader::get(std::string_view key, int& out) {
  if (const Json* value = find(key)) integer(key, *value, out);
}

void JsonReader::get(std::string_view key, std::optional<double>& out) {
  double value = 0;
  const bool present = has(key);
  get(key, value);
  if (present && !failed()) out = value;
}

void JsonReader::get(std::string_view key, std::optional<std::int64_t>& out) {
  std::int64_t value = 0;
  const bool present = has(key);
  get(key, value);
  if (present && !failed()) out = value;
}

void JsonReader::get(std::string_view key, std::vector<std::string>& out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong_type(key, "a list of strings", *value);
  out.clear();
  for (const Json& item : *value) {
    if (!item.is_string()) return wrong_type(key, "a list of strings", *value);
    out.push_back(item.get<std::string>());
  }
}

void JsonReader::get(std::string_view key, std::vector<double>& out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong_type(key, "a list of numbers", *value);
  out.clear();
  for (const Json& item : *value) {
    if (!item.is_number()) return wrong_type(key, "a list of numbers", *value);
    out.push_back(item.get<double>());
  }
}

void JsonReader::get(std::string_view key, std::vector<std::int64_t>& out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong_type(key, "a list of integers", *value);
  out.clear();
  for (const Json& item : *value) {
    std::int64_t number = 0;
    if (!integer(key, item, number)) return;
    out.push_back(number);
  }
}

void JsonReader::get_in(std::string_view key, std::int64_t& out, std::int64_t low,
                        std::int64_t high) {
  const bool present = has(key);
  std::int64_t value = out;
  get(key, value);
  if (!present || failed()) return;
  if (value < low || value > high)
    return fail(input_error(fmt::format("{} is outside {}..{}", value, low, high), where(key)));
  out = value;
}

void JsonReader::get_in(std::string_view key, double& out, double low, double high) {
  const bool present = has(key);
  double value = out;
  get(key, value);
  if (!present || failed()) return;
  if (!(value >= low && value <= high))
    return fail(
        input_error(fmt::format("{:g} is outside {:g}..{:g}", value, low, high), where(key)));
  out = value;
}

const Json* JsonReader::raw(std::string_view key) { return find(key); }

JsonReader JsonReader::child(std::string_view key) {
  static const Json kEmpty = Json::object();
  const Json* value = find(key);
  return JsonReader(value == nullptr ? kEmpty : *value, file_, pointer_ + "/" + std::string(key));
}

void JsonReader::join(JsonReader& child) {
  Result<void> result = child.finish();
  if (!result) fail(result.error());
}

void JsonReader::require(std::string_view key) {
  if (!has(key)) fail(input_error(fmt::format("missing key '{}'", key), where()));
}

void JsonReader::ignore(std::string_view key) { used_.emplace(key); }

void JsonReader::ignore_rest() {
  if (!json_->is_object()) return;
  for (const auto& item : json_->items()) used_.insert(item.key());
}

Result<void> JsonReader::finish() {
  if (!error_ && json_->is_object()) {
    for (const auto& item : json_->items()) {
      if (used_.count(item.key()) != 0 || item.key() == "source") continue;
      std::vector<std::string_view> known(used_.begin(), used_.end());
      fail(input_error(fmt::format("unknown key '{}'", item.key()), where(item.key()),
                       suggest(item.key(), known)));
      break;
    }
  }
  if (error_) return *error_;
  return {};
}

}  // namespace trifold

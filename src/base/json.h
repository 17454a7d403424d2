// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON in and out. Reading goes through JsonReader, which knows where it stands (file and JSON
// pointer), which keys it has used, and turns an unknown key into an error with the nearest match.
// Writing keeps key order, rounds numbers to nine significant digits (so that diffs stay small) and
// replaces a file atomically.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tokens.h"

namespace trifold {

using Json = nlohmann::ordered_json;

Result<std::string> read_text(const std::string& path);  // "-" is standard input
Result<Json> parse_json(std::string_view text, const std::string& name);
Result<Json> read_json(const std::string& path);

// Writes beside the target and renames over it: a failed write leaves the old file.
Result<void> write_text(const std::string& path, std::string_view text);

// Two-space indentation, numbers rounded, NaN and infinities as null.
std::string dump_json(const Json& json, int indent = 2);
double round_significant(double value, int digits = 9);

// A view of one JSON object that tracks used keys. All getters leave the default when the key is
// absent or null, and report a wrong type or range with the JSON pointer. Errors accumulate: the
// first one is kept, read at finish().
class JsonReader {
 public:
  // `json` must outlive the reader. `file` names the source in messages.
  JsonReader(const Json& json, std::string file, std::string pointer = {});

  bool has(std::string_view key) const;  // present and not null; does not mark the key as used
  std::string where(std::string_view key = {}) const;

  void get(std::string_view key, std::string& out);
  void get(std::string_view key, bool& out);
  void get(std::string_view key, double& out);
  void get(std::string_view key, std::int64_t& out);
  void get(std::string_view key, int& out);
  void get(std::string_view key, std::optional<double>& out);
  void get(std::string_view key, std::optional<std::int64_t>& out);
  void get(std::string_view key, std::vector<std::string>& out);
  void get(std::string_view key, std::vector<double>& out);
  void get(std::string_view key, std::vector<std::int64_t>& out);

  // Numbers outside [low, high] are errors that name the range.
  void get_in(std::string_view key, std::int64_t& out, std::int64_t low, std::int64_t high);
  void get_in(std::string_view key, double& out, double low, double high);

  template <class E, std::size_t N>
  void get_token(std::string_view key, const Token<E> (&table)[N], E& out) {
    std::string word;
    get(key, word);
    if (word.empty()) return;
    Result<E> parsed = parse_token(table, word, key, where(key));
    if (parsed)
      out = *parsed;
    else
      fail(parsed.error());
  }

  template <class E, std::size_t N>
  void get_tokens(std::string_view key, const Token<E> (&table)[N], EnumSet<E>& out) {
    std::vector<std::string> words;
    if (!has(key)) {
      ignore(key);
      return;
    }
    get(key, words);
    EnumSet<E> set;
    for (const std::string& word : words) {
      Result<E> parsed = parse_token(table, word, key, where(key));
      if (parsed)
        set.insert(*parsed);
      else
        fail(parsed.error());
    }
    out = set;
  }

  // The raw value (marked as used), or nullptr when absent or null.
  const Json* raw(std::string_view key);
  // A nested object; an absent key gives a reader over an empty object.
  JsonReader child(std::string_view key);
  // Fold a child's errors into this reader. Call after reading the child.
  void join(JsonReader& child);

  void require(std::string_view key);  // an error when the key is absent or null
  void ignore(std::string_view key);   // mark as used without reading
  void ignore_rest();                  // accept any other key
  void fail(Error error);
  bool failed() const { return error_.has_value(); }

  // Unknown keys become an error here; otherwise the first error met, or success.
  Result<void> finish();

 private:
  const Json* find(std::string_view key);
  void wrong_type(std::string_view key, std::string_view expected, const Json& value);
  template <class I>
  bool integer(std::string_view key, const Json& value, I& out);

  const Json* json_;
  std::string file_;
  std::string pointer_;
  std::set<std::string, std::less<>> used_;
  std::optional<Error> error_;
};

}  // namespace trifold

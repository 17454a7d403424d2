// SPDX-License-Identifier: Apache-2.0
#pragma once

// Closed sets of words. An enum E has a table `constexpr TokenTable<E, N>` and is read strictly: an
// unknown word is an error with the nearest one (never the first enumerator).

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace trifold {

// Levenshtein distance, case-insensitive.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`; empty when none is near enough to be a typing error.
std::string nearest(std::string_view word, const std::vector<std::string_view>& candidates);

// "did you mean 'x'?" or, when nothing is near, "one of: a, b, c".
std::string suggest(std::string_view word, const std::vector<std::string_view>& candidates);

template <class E>
struct Token {
  E value;
  std::string_view name;
};

template <class E, std::size_t N>
std::string_view token_name(const Token<E> (&table)[N], E value) {
  for (const Token<E>& t : table)
    if (t.value == value) return t.name;
  return "?";
}

template <class E, std::size_t N>
Result<E> parse_token(const Token<E> (&table)[N], std::string_view word, std::string_view what,
                      const std::string& where = {}) {
  std::vector<std::string_view> names;
  for (const Token<E>& t : table) {
    if (t.name == word) return t.value;
    names.push_back(t.name);
  }
  return input_error("unknown " + std::string(what) + " '" + std::string(word) + "'", where,
                     suggest(word, names));
}

// A set of enumerators (at most 64) as a bit mask.
template <class E>
class EnumSet {
 public:
  constexpr EnumSet() = default;
  constexpr EnumSet(std::initializer_list<E> values) {
    for (E v : values) insert(v);
  }
  constexpr bool contains(E v) const { return (bits_ >> static_cast<unsigned>(v)) & 1u; }
  constexpr void insert(E v) { bits_ |= std::uint64_t{1} << static_cast<unsigned>(v); }
  constexpr void erase(E v) { bits_ &= ~(std::uint64_t{1} << static_cast<unsigned>(v)); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr std::uint64_t bits() const { return bits_; }
  constexpr bool operator==(const EnumSet&) const = default;

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace trifold

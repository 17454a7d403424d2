// SPDX-License-Identifier: Apache-2.0
#pragma once

// A reader for the small part of shell that launch scripts are made of.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trifold::launch {

struct ShellWord {
  std::string text;
  bool quoted = false;
  int line = 0;
};

// What `$name` stands for: no words, one, or (for an array or an unquoted variable) several; each
// keeps the line on which it was written. Returns false when it is not known: the reference is then
// kept as it is written.
using ShellLookup = std::function<bool(const std::string& name, std::vector<ShellWord>& words)>;

// Reads statements one by one: words up to a newline, `;`, `&`, `|`. A `NAME=( ... )` comes back as
// the word "NAME=(" followed by its elements and ")". Comments are dropped.
class ShellReader {
 public:
  ShellReader(std::string_view text, std::string file, ShellLookup lookup);
  bool done() const { return at_ >= text_.size(); }
  Result<std::vector<ShellWord>> next_statement();

 private:
  Result<bool> read_word(std::vector<ShellWord>& out);
  Result<bool> read_double_quotes(std::string& word, std::vector<ShellWord>& out);
  void expand(bool quoted, std::string& word, std::vector<ShellWord>& out);
  bool skip_blanks();
  Error unterminated(const char* what, int line) const;

  std::string_view text_;
  std::string file_;
  ShellLookup lookup_;
  std::size_t at_ = 0;
  int line_ = 1, word_line_ = 1, array_line_ = 1;
  bool in_array_ = false;
  bool vanished_ = false;  // "${NONE[@]}" leaves no word behind
};

}  // namespace trifold::launch

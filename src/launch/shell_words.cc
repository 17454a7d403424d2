// SPDX-License-Identifier: Apache-2.0
#include "launch/shell_words.h"

#include <algorithm>
#include <cctype>

namespace trifold::launch {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void split_blanks(const ShellWord& whole, std::vector<ShellWord>& words) {
  std::string word;
  for (char c : whole.text + " ") {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      word += c;
    } else if (!word.empty()) {
      words.push_back({std::move(word), false, whole.line});
      word.clear();
    }
  }
}

// "NAME[@]", "NAME:-default", "NAME" -> name and default.
void cut_reference(const std::string& inside, std::string& name, std::string& otherwise,
                   bool& has_default) {
  std::size_t end = 0;
  while (end < inside.size() && is_name(inside[end])) ++end;
  name = inside.substr(0, end);
  std::string rest = inside.substr(end);
  has_default = rest.substr(0, 2) == ":-" || rest.substr(0, 1) == "-";
  if (has_default) otherwise = rest.substr(rest[0] == ':' ? 2 : 1);
}

std::size_t closing(std::string_view text, std::size_t from, char open, char close) {
  int depth = 1;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (text[i] == open) ++depth;
    if (text[i] == close && --depth == 0) return i;
  }
  return text.size();
}

}  // namespace

ShellReader::ShellReader(std::string_view text, std::string file, ShellLookup lookup)
    : text_(text), file_(std::move(file)), lookup_(std::move(lookup)) {}

Error ShellReader::unterminated(const char* what, int line) const {
  return input_error(std::string("unterminated ") + what, file_ + ":" + std::to_string(line));
}

// Blanks, continuation lines and comments; inside an array newlines are blanks too. False at the
// end of a statement.
bool ShellReader::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r')) {
      at_ += text_.substr(at_ + 1, 2) == "\r\n" ? 3 : 2;
      ++line_;
    } else if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '\n') {
      if (!in_array_) return false;
      ++line_, ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      return true;
    }
  }
  return false;
}

void ShellReader::expand(bool quoted, std::string& word, std::vector<ShellWord>& out) {
  const std::size_t start = at_++;  // at the dollar
  std::string name, otherwise;
  bool has_default = false, computed = false;
  if (at_ < text_.size() && text_[at_] == '{') {
    const std::size_t end = closing(text_, at_ + 1, '{', '}');
    cut_reference(std::string(text_.substr(at_ + 1, end - at_ - 1)), name, otherwise, has_default);
    at_ = std::min(text_.size(), end + 1);
  } else if (at_ < text_.size() && text_[at_] == '(') {
    at_ = std::min(text_.size(), closing(text_, at_ + 1, '(', ')') + 1);
    computed = true;
  } else if (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '@')) {
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '@') {
      name = text_[at_++];
    } else {
      while (at_ < text_.size() && is_name(text_[at_])) name += text_[at_++];
    }
  } else {
    word += '$';
    return;
  }
  const std::string shown(text_.substr(start, at_ - start));
  line_ += static_cast<int>(std::count(shown.begin(), shown.end(), '\n'));
  std::vector<ShellWord> words;
  if (computed || !lookup_(name, words)) {
    if (computed || !has_default) {
      word += shown;
      return;
    }
    if (otherwise.size() >= 2 && otherwise.front() == '"' && otherwise.back() == '"')
      otherwise = otherwise.substr(1, otherwise.size() - 2);
    words = {{otherwise, false, line_}};
  }
  const bool whole = name == "@" || shown.find("[@]") != std::string::npos ||
                     shown.find("[*]") != std::string::npos;
  if (!quoted) {
    std::vector<ShellWord> split;
    for (const ShellWord& w : words) split_blanks(w, split);
    if (!whole) words = std::move(split);
  } else if (!whole && words.size() > 1) {
    words.resize(1);  // "$ARRAY" is its first element
  }
  vanished_ = vanished_ || (whole && words.empty());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) {
      out.push_back({word, true, word_line_});
      word.clear();
    }
    if (word.empty() && words[i].line > 0) word_line_ = words[i].line;
    word += words[i].text;
  }
}

Result<bool> ShellReader::read_double_quotes(std::string& word, std::vector<ShellWord>& out) {
  const int start = line_;
  ++at_;
  while (at_ < text_.size() && text_[at_] != '"') {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == '\\' && at_ + 1 < text_.size()) {
      const char next = text_[at_ + 1];
      if (next == '\n')
        ++line_;
      else if (next == '"' || next == '\\' || next == '$' || next == '`')
        word += next;
      else
        word += {'\\', next};
      at_ += 2;
    } else if (c == '$') {
      expand(true, word, out);
    } else {
      word += c;
      ++at_;
    }
  }
  if (at_ >= text_.size()) return unterminated("double quote", start);
  ++at_;
  return true;
}

// One word; an expansion may add several. False when an unquoted expansion left nothing.
Result<bool> ShellReader::read_word(std::vector<ShellWord>& out) {
  std::string word;
  bool quoted = false;
  word_line_ = line_;
  const std::size_t had = out.size();
  vanished_ = false;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (std::string_view(" \t\r\n;&|<>()").find(c) != std::string_view::npos) break;
    if (c == '\'') {
      const std::size_t end = text_.find('\'', at_ + 1);
      if (end == std::string_view::npos) return unterminated("single quote", line_);
      const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
      line_ += static_cast<int>(std::count(inside.begin(), inside.end(), '\n'));
      word += inside;
      at_ = end + 1;
      quoted = true;
    } else if (c == '"') {
      TRIFOLD_TRY(read_double_quotes(word, out));
      quoted = true;
    } else if (c == '\\' && at_ + 1 < text_.size()) {
      if (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r') break;
      word += text_[at_ + 1];
      at_ += 2;
    } else if (c == '$') {
      expand(false, word, out);
    } else {
      word += c;
      ++at_;
    }
  }
  if (word.empty() && (!quoted || vanished_)) return out.size() > had;
  out.push_back({std::move(word), quoted, word_line_});
  return true;
}

Result<std::vector<ShellWord>> ShellReader::next_statement() {
  std::vector<ShellWord> out;
  while (skip_blanks()) {
    const char c = text_[at_];
    if (c == '(' && !out.empty() && !out.back().quoted && !out.back().text.empty() &&
        out.back().text.back() == '=') {
      out.back().text += '(';
      in_array_ = true;
      array_line_ = line_;
      ++at_;
    } else if (c == ')' && in_array_) {
      out.push_back({")", false, line_});
      in_array_ = false;
      ++at_;
    } else if (c == ';' || c == '&' || c == '|') {
      ++at_;
      return out;
    } else if (std::string_view("()<>").find(c) != std::string_view::npos) {
      out.push_back({std::string(1, c), false, line_});
      ++at_;
    } else {
      TRIFOLD_TRY(read_word(out));
    }
  }
  if (in_array_) return unterminated("array", array_line_);
  if (at_ < text_.size()) ++at_, ++line_;  // the newline
  return out;
}

}  // namespace trifold::launch

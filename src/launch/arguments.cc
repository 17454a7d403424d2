// SPDX-License-Identifier: Apache-2.0
#include "launch/arguments.h"

#include <cctype>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace trifold::launch {
namespace {

bool is_flag(std::string_view word) {
  return word.size() > 2 && word.substr(0, 2) == "--" && std::isalpha(word[2]) != 0;
}

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_-./:=+@%").find(c) != std::string_view::npos;
}

}  // namespace

const Argument* Arguments::find(std::string_view flag) const {
  for (auto it = items.rbegin(); it != items.rend(); ++it)
    if (it->flag == flag) return &*it;
  return nullptr;
}

std::string Arguments::value(std::string_view flag, std::string_view otherwise) const {
  const Argument* argument = find(flag);
  return argument != nullptr && !argument->values.empty() ? argument->values.front()
                                                          : std::string(otherwise);
}

std::vector<std::string> Arguments::words() const {
  std::vector<std::string> words;
  for (const Argument& argument : items) {
    words.push_back(argument.flag);
    words.insert(words.end(), argument.values.begin(), argument.values.end());
  }
  return words;
}

std::string shell_quote(std::string_view word) {
  bool plain = !word.empty();
  for (char c : word) plain = plain && is_plain(c);
  if (plain) return std::string(word);
  std::string quoted = "'";
  for (char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string number(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15)
    return std::to_string(static_cast<std::int64_t>(value));
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = fmt::format("{:.{}g}", value, digits);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return fmt::format("{:.17g}", value);
}

std::string print_arguments(const Arguments& arguments) {
  std::string text;
  for (const Argument& argument : arguments.items) {
    text += argument.flag;
    for (const std::string& value : argument.values) text += " " + shell_quote(value);
    text += "\n";
  }
  return text;
}

std::string place(const std::string& file, int line) {
  return line > 0 ? file + ":" + std::to_string(line) : file;
}

Result<Arguments> parse_arguments(const std::vector<std::string>& words, const std::string& file,
                                  const std::vector<int>& lines) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const int line = i < lines.size() ? lines[i] : 0;
    if (is_flag(word)) {
      const std::size_t equals = word.find('=');
      Argument argument{word.substr(0, equals), {}, line};
      if (equals != std::string::npos) argument.values = {word.substr(equals + 1)};
      arguments.items.push_back(std::move(argument));
      continue;
    }
    if (arguments.items.empty())
      return input_error("'" + word + "' belongs to no flag", place(file, line),
                         "arguments start with a flag such as --num-layers");
    arguments.items.back().values.push_back(word);
  }
  return arguments;
}

}  // namespace trifold::launch

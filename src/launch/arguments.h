// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arguments: an ordered list of Megatron flags with their values, and how one is written and read.
// The textual form (megatron.args) is shell syntax: one flag with its values a line.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace trifold::launch {

struct Argument {
  std::string flag;  // with its dashes
  std::vector<std::string> values;
  int line = 0;  // where it was read; 0: nowhere
  bool operator==(const Argument& other) const {
    return flag == other.flag && values == other.values;
  }
};

class Arguments {
 public:
  std::vector<Argument> items;

  void add(std::string flag) { items.push_back({std::move(flag), {}, 0}); }
  void add(std::string flag, std::string value) {
    items.push_back({std::move(flag), {std::move(value)}, 0});
  }
  void add(std::string flag, std::int64_t value) { add(std::move(flag), std::to_string(value)); }
  void add(std::string flag, std::vector<std::string> values) {
    items.push_back({std::move(flag), std::move(values), 0});
  }

  // As argparse: the last occurrence counts.
  const Argument* find(std::string_view flag) const;
  bool has(std::string_view flag) const { return find(flag) != nullptr; }
  std::string value(std::string_view flag, std::string_view otherwise = {}) const;
  std::vector<std::string> words() const;
};

// Variables that the launched processes see.
using Environment = std::map<std::string, std::string>;

// What a launch script says: the arguments, the variables that it exports, and what was not
// understood.
struct LaunchScript {
  Arguments arguments;
  Environment environment;
  std::optional<std::int64_t> gpus;  // from --nnodes and --nproc-per-node, when they are literal
  std::vector<std::string> not_understood;
  std::vector<Argument> unresolved;  // arguments whose value only the running script knows
};

// Quoted only where a shell would change the word.
std::string shell_quote(std::string_view word);
// A number as Megatron's users write it: shortest text that reads back equal ("0.0001", "2.5").
std::string number(double value);

// One flag with its values a line.
std::string print_arguments(const Arguments& arguments);

// Words after a program name, as argparse cuts them: `--flag v1 v2`, `--flag=v`. A word that
// belongs to no flag is an error. `lines`: where each word stands, when known.
Result<Arguments> parse_arguments(const std::vector<std::string>& words,
                                  const std::string& file = {}, const std::vector<int>& lines = {});

// "run.sh:12", or the file alone.
std::string place(const std::string& file, int line);

}  // namespace trifold::launch

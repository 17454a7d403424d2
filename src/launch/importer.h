// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reading hand of import_arguments(): Settings that remember which flags were asked about.

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "launch/import.h"
#include "launch/settings.h"

namespace trifold::launch {

class Importer {
 public:
  Importer(const Arguments& arguments, const ImportOptions& options)
      : settings(arguments, options.gpus), options(options) {}

  Settings settings;
  const ImportOptions& options;
  Imported result;
  std::optional<Error> error;

  bool has(const char* flag) { return used.insert(flag), settings.has(flag); }
  std::string text(const char* flag) { return used.insert(flag), settings.text(flag); }
  std::int64_t integer(const char* flag, std::int64_t otherwise = 0);
  int size(const char* flag, std::int64_t otherwise = 1);  // a count of ranks or layers, from one
  double real(const char* flag, double otherwise = 0);
  std::vector<std::string> list(const char* flag) { return used.insert(flag), settings.list(flag); }
  void mark(const char* flag) { used.insert(flag); }
  std::int64_t need(const char* flag);  // an error when absent
  void lost(std::string text) { result.not_understood.push_back(std::move(text)); }
  void fail(std::string message, std::string hint = {});
  void fail_at(const Argument& argument, std::string message, std::string hint = {});
  static std::string line_of(const Argument& argument);  // "line 12: ", or nothing

  std::set<std::string, std::less<>> used;
};

// Flags whose value no prediction of time or memory uses.
bool has_no_effect(std::string_view flag);

void check_input(Importer& in);
void import_model(Importer& in);
void import_training(Importer& in);
void import_layout(Importer& in);
void import_techniques(Importer& in);

}  // namespace trifold::launch

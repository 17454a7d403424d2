// SPDX-License-Identifier: Apache-2.0
#pragma once

// The writing hand of emit(): every flag goes through `put`, which knows the Megatron version.

#include <optional>
#include <string>
#include <vector>

#include "launch/emit.h"

namespace trifold::launch {

class Emitter {
 public:
  Emitter(const job::Job& the_job, const EmitOptions& the_options)
      : job(the_job), options(the_options) {
    plan.version = options.version;
  }

  const job::Job& job;
  const EmitOptions& options;
  LaunchPlan plan;
  std::optional<Error> error;  // the first refusal

  bool has(std::string_view flag) const {
    const Flag* known = find_flag(flag);
    return known != nullptr && known->in(options.version);
  }
  void put(const char* flag) { put_values(flag, {}); }
  void put(const char* flag, std::string value) { put_values(flag, {std::move(value)}); }
  void put(const char* flag, const char* value) { put_values(flag, {value}); }
  void put(const char* flag, std::int64_t value) { put(flag, std::to_string(value)); }
  void put(const char* flag, int value) { put(flag, std::to_string(value)); }
  void put(const char* flag, double value) { put(flag, number(value)); }
  void put_values(const char* flag, std::vector<std::string> values);
  void note(std::string text) { plan.notes.push_back(std::move(text)); }
  // What no flag can say. `field` is the Job's.
  void refuse(const std::string& field, const std::string& reason, const std::string& hint = {});
};

void emit_model(Emitter& out);
void emit_moe_model(Emitter& out);
void emit_layout(Emitter& out);
void emit_training(Emitter& out);
void emit_techniques(Emitter& out);
void emit_run(Emitter& out);  // data, logging, checkpoint, housekeeping
void emit_environment(Emitter& out);

// Ranks that share one sequence as Megatron counts them: cp, with Ulysses folded in.
std::int64_t context_ranks(const job::Job& job);

// Static shapes for dropless MoE (full_iteration graphs, paged stash): tokens a rank is sized for,
// in units of the balanced load. Megatron's recipes use 1.5.
inline constexpr double kRankCapacity = 1.5;
bool needs_rank_capacity(const job::Job& job);

}  // namespace trifold::launch

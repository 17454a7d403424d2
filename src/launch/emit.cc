// SPDX-License-Identifier: Apache-2.0
#include "launch/emit.h"

#include <fmt/format.h>

#include "launch/emitter.h"

namespace trifold::launch {

void Emitter::put_values(const char* flag, std::vector<std::string> values) {
  const Flag* known = find_flag(flag);
  TRIFOLD_CHECK(known != nullptr);
  if (!known->in(options.version)) {
    refuse(
        flag,
        fmt::format("Megatron {} has no {}", token_name(kMegatronVersions, options.version), flag),
        "it exists in " + versions_with(*known));
    return;
  }
  plan.arguments.add(flag, std::move(values));
}

void Emitter::refuse(const std::string& field, const std::string& reason, const std::string& hint) {
  if (!error) error = Error{ErrorCode::infeasible, reason, field, hint};
}

std::int64_t context_ranks(const job::Job& job) { return job.layout.sequence_ranks(); }

bool needs_rank_capacity(const job::Job& job) {
  const job::Techniques& t = job.techniques;
  return t.paged_stash || (job.model.is_moe() && t.has(job::GraphScope::full_iteration) &&
                           !t.routing.pad_to_capacity);
}

Result<LaunchPlan> emit(const job::Job& job, const EmitOptions& options) {
  Emitter out(job, options);
  emit_model(out);
  if (job.model.is_moe()) emit_moe_model(out);
  emit_layout(out);
  emit_training(out);
  emit_techniques(out);
  emit_run(out);
  emit_environment(out);
  if (out.error) return *out.error;
  return std::move(out.plan);
}

}  // namespace trifold::launch

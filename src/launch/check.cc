// SPDX-License-Identifier: Apache-2.0
#include "launch/check.h"

#include <algorithm>

#include <fmt/format.h>

#include "launch/findings.h"
#include "launch/rules.h"

namespace trifold::launch {

void Findings::add(Severity severity, const char* id, std::string detail, std::string fix) {
  const job::Rule* rule = find_rule(id);
  TRIFOLD_CHECK(rule != nullptr);
  findings_.push_back({severity, rule->id, rule->reason, std::move(detail),
                       fix.empty() ? std::string(flag_fix(id)) : std::move(fix)});
}
void Findings::reject(const char* rule, std::string detail, std::string fix) {
  add(Severity::reject, rule, std::move(detail), std::move(fix));
}
void Findings::warn(const char* rule, std::string detail, std::string fix) {
  add(Severity::warning, rule, std::move(detail), std::move(fix));
}

std::vector<Finding> check_arguments(const Arguments& arguments, const Environment& environment,
                                     const CheckOptions& options) {
  const Settings settings(arguments, options.gpus);
  const Question question{settings, environment, options};
  Findings out;
  check_flags(question, out);
  check_grid(question, out);
  check_pipeline(question, out);
  check_precision(question, out);
  check_rest(question, out);
  check_moe(question, out);
  check_recompute(question, out);
  check_graphs(question, out);
  check_overlap(question, out);
  check_versions(question, out);
  std::vector<Finding> findings = out.take();
  std::stable_partition(findings.begin(), findings.end(),
                        [](const Finding& f) { return f.severity == Severity::reject; });
  return findings;
}

bool accepted(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.severity == Severity::reject; });
}

std::string explain(const Finding& finding) {
  std::string text = fmt::format("{}: {}", finding.rule, finding.reason);
  if (!finding.detail.empty()) text += " (" + finding.detail + ")";
  if (!finding.fix.empty()) text += "; fix: " + finding.fix;
  return text;
}

}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Is the Job one that Megatron would start? One table of rule ids
// (shared/data/megatron/legality_rules.json) serves this folder and launch/. Here: the rules that a
// Job's structure decides. A verdict is data, not an error.

#include <string>
#include <vector>

#include "job/job.h"
#include "layout/pipeline.h"

namespace trifold::job {

enum class RuleScope : std::uint8_t {
  structure,  // impossible for anyone: sizes do not divide, layers do not fit
  megatron    // Megatron refuses it; another runtime may not
};

struct Rule {
  const char* id;  // as in legality_rules.json, e.g. "GRID-01"; own rules start with "TRI-"
  RuleScope scope;
  const char* reason;  // Megatron's words
  const char* fix;     // the nearest change that would make it legal
};

struct Verdict {
  const Rule* rule = nullptr;        // nullptr: legal
  std::int64_t left = 0, right = 0;  // the two numbers that clash, where the rule has them
  bool legal() const { return rule == nullptr; }
};

enum class Runtime : std::uint8_t { megatron, any };
inline constexpr Token<Runtime> kRuntimes[] = {{Runtime::megatron, "megatron"},
                                               {Runtime::any, "any"}};

// The first rule broken, in the order Megatron objects. Allocates nothing. `pipeline` is the cut of
// job.layout.
Verdict check(const Job& job, const layout::Pipeline& pipeline,
              Runtime runtime = Runtime::megatron);

// Cuts the pipeline itself (an illegal cut is a verdict too) and collects every broken rule.
std::vector<Verdict> check_all(const Job& job, Runtime runtime = Runtime::megatron);
Verdict check(const Job& job, Runtime runtime = Runtime::megatron);

// Rules TRI-ULYSSES and TRI-CP alone: does Megatron share a sequence as the Job's layout does?
bool megatron_shares_sequence(const Job& job);

std::string explain(
    const Verdict& verdict);  // "GRID-01: world size (252) is not divisible by ... (8); fix: ..."
const std::vector<Rule>& rules();  // every rule this folder knows
const Rule* find_rule(const std::string& id);

}  // namespace trifold::job

// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rule groups behind check_arguments, and where they write what they find.

#include <string>
#include <vector>

#include "launch/check.h"
#include "launch/settings.h"

namespace trifold::launch {

class Findings {
 public:
  // `fix`: replaces the rule's own advice where the numbers say something better.
  void reject(const char* rule, std::string detail = {}, std::string fix = {});
  void warn(const char* rule, std::string detail = {}, std::string fix = {});
  std::vector<Finding> take() { return std::move(findings_); }

 private:
  void add(Severity severity, const char* rule, std::string detail, std::string fix);
  std::vector<Finding> findings_;
};

struct Question {
  const Settings& settings;
  const Environment& environment;
  const CheckOptions& options;

  std::string variable(const char* name) const {
    const auto at = environment.find(name);
    return at == environment.end() ? std::string() : at->second;
  }
};

void check_flags(const Question& q, Findings& out);      // parser: names, values, versions
void check_grid(const Question& q, Findings& out);       // world, batch, tensor, context, expert
void check_pipeline(const Question& q, Findings& out);   // stages, chunks, layouts, MTP
void check_moe(const Question& q, Findings& out);        // routing, capacity, dispatch
void check_overlap(const Question& q, Findings& out);    // EP overlap, delayed wgrad, DP overlap
void check_recompute(const Question& q, Findings& out);  // recompute and offload
void check_graphs(const Question& q, Findings& out);     // CUDA graphs
void check_precision(const Question& q, Findings& out);  // number formats, optimizer
void check_rest(const Question& q, Findings& out);       // FSDP, attention, loss, schedule, data

void check_versions(const Question& q, Findings& out);  // Transformer Engine, PyTorch
// "2.14.0" as 2014000, so that versions compare as numbers. 0: not told.
long version_number(const std::string& text);

}  // namespace trifold::launch

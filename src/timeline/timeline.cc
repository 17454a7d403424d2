// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "sim/check.h"
#include "timeline/readback.h"

namespace trifold::timeline {

double Parts::sum() const {
  double s = compute + recompute + bubble + host + optimizer;
  for (double e : exposed) s += e;
  return s;
}

double Timeline::communication_hidden_s() const {
  const StageTimeline& s = stages[static_cast<std::size_t>(slowest_stage)];
  double hidden = 0;
  for (std::size_t i = 0; i < kComms; ++i) hidden += s.communication[i] - s.time.exposed[i];
  return std::max(0.0, hidden);
}

void Simulator::run(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
                    const SimulateOptions& options, Timeline& out) {
  schedule::lower(job, pipeline, pricer, options.lowering, lowered_);
  const sim::LoadTable& loads = lowered_.programs.loads;
  outcome_ = &engine_.run(lowered_.step.graph, loads);
  out.completes = outcome_->complete;
  if (!out.completes) return;
  if (options.check) {
    const std::string wrong = sim::check_timeline(lowered_.step.graph, loads, *outcome_);
    if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
    TRIFOLD_CHECK(wrong.empty());
  }
  out.tasks = static_cast<std::size_t>(lowered_.step.graph.tasks());
  StageTasks tasks;
  sort_tasks(lowered_.step, tasks);
  read_time(lowered_.step, *outcome_, tasks, out);
  read_critical_path(lowered_.step, *outcome_, out);
  if (options.memory) read_memory(job, pipeline, lowered_, *outcome_, curves_, out);
}

void simulate(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
              const SimulateOptions& options, Timeline& out) {
  Simulator().run(job, pipeline, pricer, options, out);
}

}  // namespace trifold::timeline

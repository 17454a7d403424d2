// SPDX-License-Identifier: Apache-2.0
#include "timeline/timeline.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "schedule/unit_graph.h"
#include "sim/check.h"
#include "timeline/readback.h"

namespace trifold::timeline {

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
  if (!out.completes) {
    TRIFOLD_CHECK(!schedule::completes(lowered_.program));  // else the cycle is of our making
    return;
  }
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

estimate::Estimate as_estimate(const Timeline& t, const estimate::Estimate& closed_form) {
  estimate::Estimate e = closed_form;
  const double ratio = t.step_time_s / closed_form.step_time_s;
  e.step_time_s = t.step_time_s;
  e.low_s *= ratio, e.high_s *= ratio;
  e.tokens_per_s_per_gpu /= ratio, e.tflops_per_gpu /= ratio, e.mfu /= ratio;
  const StageTimeline& slowest = t.stages[static_cast<std::size_t>(t.slowest_stage)];
  e.time = slowest.time;
  for (std::size_t i = 0; i < kComms; ++i)
    e.communication[i] = {slowest.communication[i], slowest.time.exposed[i]};
  if (!t.simulated_memory.stages.empty()) e.memory = t.simulated_memory;
  return e;
}

void simulate(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
              const SimulateOptions& options, Timeline& out) {
  Simulator().run(job, pipeline, pricer, options, out);
}

}  // namespace trifold::timeline

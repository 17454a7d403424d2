// SPDX-License-Identifier: Apache-2.0
#include "report/timeline_text.h"

#include <fmt/format.h>

#include "base/table.h"
#include "report/estimate_text.h"

namespace trifold::report {

namespace {

using schedule::Category;

std::string walls_text(const timeline::Timeline& t) {
  Table table({"Time (slowest stage)", "seconds", "share"});
  const auto row = [&](const std::string& name, double seconds) {
    table.add({name, fmt::format("{:.4f}", seconds), percent(seconds / t.step_time_s)});
  };
  for (const auto& [name, seconds] : t.time().terms()) row(name, seconds);
  table.rule(), row("step", t.time().sum());
  return table.text("  ") +
         fmt::format("  hidden: {} of all communication, {} of expert-parallel\n",
                     percent(t.hidden_share), percent(t.ep_hidden_share));
}

// The chain of tasks, each the last that the next one waited for, that ends with the step.
std::string path_text(const timeline::Timeline& t) {
  Table table({"Critical path", "seconds", "share"});
  const auto row = [&](std::string name, double seconds) {
    if (seconds > 0)
      table.add(
          {std::move(name), fmt::format("{:.4f}", seconds), percent(seconds / t.step_time_s)});
  };
  const timeline::PathShare& path = t.critical_path;
  for (std::size_t i = 0; !layer::is_communication(static_cast<layer::Family>(i)); ++i)
    row(layer::kFamilyNames[i], path.by_family[i]);
  for (std::size_t i = static_cast<std::size_t>(Category::recompute) + 1;
       i < path.by_category.size(); ++i)
    row(schedule::kCategoryNames[i], path.by_category[i]);
  row("waiting", path.waiting_s);
  return table.text("  ");
}

std::string stages_text(const timeline::Timeline& t) {
  Table table({"Stage", "busy s", "bubble s", "peak GiB", "at s", "states GiB", "activations GiB",
               "buffers GiB", "units", "closed form GiB"});
  for (std::size_t i = 0; i < t.stages.size(); ++i) {
    const timeline::StageTimeline& s = t.stages[i];
    const memory::StageMemory& m = t.simulated_memory.stages[i];
    table.add({fmt::format("{}", i), fmt::format("{:.4f}", s.time.sum() - s.time.bubble),
               fmt::format("{:.4f}", s.time.bubble), fmt::format("{:.2f}", to_gib(s.peak)),
               fmt::format("{:.4f}", s.peak_s),
               fmt::format("{:.2f}", to_gib(m.weights + m.gradients + m.optimizer)),
               fmt::format("{:.2f}", to_gib(m.activations)),
               fmt::format("{:.2f}", to_gib(m.buffers)), fmt::format("{:.0f}", s.peak_units),
               fmt::format("{:.2f}", to_gib(t.memory.stages[i].peak))});
  }
  return table.text("  ");
}

}  // namespace

std::string timeline_text(const job::Job& job, const timeline::Timeline& t,
                          const estimate::Estimate& closed_form) {
  return fmt::format(
             "{} on {} x {}\n  {}\n  {}\n  step {} simulated ({} tasks); closed form {} ({:+.1f} "
             "%)\n\n",
             job.model.name, job.gpus, job.cluster.name, layout_text(job), techniques_text(job),
             human_seconds(t.step_time_s), thousands(static_cast<long long>(t.tasks)),
             human_seconds(closed_form.step_time_s),
             100 * (closed_form.step_time_s / t.step_time_s - 1)) +
         walls_text(t) + "\n" + path_text(t) + "\n" + stages_text(t);
}

}  // namespace trifold::report

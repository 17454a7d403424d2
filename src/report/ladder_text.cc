// SPDX-License-Identifier: Apache-2.0
#include "report/ladder_text.h"

#include <fmt/format.h>

#include "base/table.h"
#include "report/estimate_text.h"

namespace trifold::report {

namespace {

std::string wall_name(planner::Wall wall) { return std::string(token_name(planner::kWalls, wall)); }

Json walls_json(const estimate::Time& time) {
  double communication = 0;
  for (double s : time.exposed) communication += s;
  return {
      {"compute", time.compute}, {"recompute", time.recompute}, {"communication", communication},
      {"bubble", time.bubble},   {"host", time.host},           {"optimizer", time.optimizer}};
}

std::string next_text(const planner::Ladder& ladder) {
  const double now = ladder.steps.back().estimate.step_time_s;
  if (ladder.next.empty()) return "Beyond the plan: no single legal change that fits is faster.\n";
  Table table({"Beyond the plan", "change", "step s", "gain %", "peak GiB", "headroom"});
  table.align(1, Table::Align::left);
  for (const planner::NextStep& n : ladder.next)
    table.add({std::string(token_name(planner::kAttacks, n.attack)), n.name,
               fmt::format("{:.4g}", n.estimate.step_time_s),
               fmt::format("{:+.1f}", 100 * n.gain_s / now),
               fmt::format("{:.1f}", to_gib(n.estimate.memory.peak)),
               fmt::format("{:.1f}", to_gib(n.estimate.memory.headroom))});
  return table.text("  ");
}

}  // namespace

std::string ladder_text(const planner::Ladder& ladder) {
  const planner::LadderStep& plan = ladder.steps.back();
  const planner::LadderStep& first = ladder.steps.front();
  std::string text =
      fmt::format("{} on {} x {}: {}\n\n", plan.job.model.name, thousands(plan.job.gpus),
                  plan.job.cluster.name, layout_text(plan.job));
  Table table({"Order of attack", "step", "step s", "gain %", "TFLOP/s/GPU", "peak GiB", "freed",
               "headroom", "wall before", "wall after"});
  table.align(1, Table::Align::left), table.align(8, Table::Align::left);
  table.align(9, Table::Align::left);
  for (std::size_t i = 0; i < ladder.steps.size(); ++i) {
    const planner::LadderStep& s = ladder.steps[i];
    const double before = i > 0 ? ladder.steps[i - 1].estimate.step_time_s : 0;
    table.add({std::string(token_name(planner::kAttacks, s.attack)), s.name,
               fmt::format("{:.4g}", s.estimate.step_time_s),
               i > 0 ? fmt::format("{:+.1f}", 100 * s.gain_s / before) : "",
               fmt::format("{:.0f}", s.estimate.tflops_per_gpu),
               fmt::format("{:.1f}", to_gib(s.estimate.memory.peak)),
               i > 0 ? fmt::format("{:+.1f}", to_gib(s.freed)) : "",
               fmt::format("{:.1f}{}", to_gib(s.estimate.memory.headroom), s.fits ? "" : " !"),
               i > 0 ? wall_name(s.wall_before) : "", wall_name(s.wall)});
  }
  text += table.text("  ");
  text += fmt::format("  {:.2f} times the baseline; ! does not fit; closed-form estimates\n\n",
                      first.estimate.step_time_s / plan.estimate.step_time_s);
  return text + next_text(ladder);
}

Json ladder_json(const planner::Ladder& ladder) {
  Json steps = Json::array(), next = Json::array();
  for (std::size_t i = 0; i < ladder.steps.size(); ++i) {
    const planner::LadderStep& s = ladder.steps[i];
    const estimate::Estimate& e = s.estimate;
    const double before = i > 0 ? ladder.steps[i - 1].estimate.step_time_s : e.step_time_s;
    steps.push_back({{"attack", token_name(planner::kAttacks, s.attack)},
                     {"name", s.name},
                     {"wall_before", wall_name(s.wall_before)},
                     {"wall", wall_name(s.wall)},
                     {"step_time_s", e.step_time_s},
                     {"low_s", e.low_s},
                     {"high_s", e.high_s},
                     {"gain_s", s.gain_s},
                     {"gain_share", s.gain_s / before},
                     {"peak_bytes", e.memory.peak.value()},
                     {"freed_bytes", s.freed.value()},
                     {"headroom_bytes", e.memory.headroom.value()},
                     {"fits", s.fits},
                     {"tokens_per_s_per_gpu", e.tokens_per_s_per_gpu},
                     {"tflops_per_gpu", e.tflops_per_gpu},
                     {"mfu", e.mfu},
                     {"walls_s", walls_json(e.time)}});
  }
  const double now = ladder.steps.back().estimate.step_time_s;
  for (const planner::NextStep& n : ladder.next)
    next.push_back({{"attack", token_name(planner::kAttacks, n.attack)},
                    {"name", n.name},
                    {"step_time_s", n.estimate.step_time_s},
                    {"gain_s", n.gain_s},
                    {"gain_share", n.gain_s / now},
                    {"peak_bytes", n.estimate.memory.peak.value()},
                    {"freed_bytes", n.freed.value()},
                    {"headroom_bytes", n.estimate.memory.headroom.value()}});
  return {{"schema", "trifold.explain/1"},
          {"job", job::to_json(ladder.steps.back().job)},
          {"baseline", job::to_json(ladder.steps.front().job)},
          {"steps", steps},
          {"next", next},
          {"speed_up", ladder.steps.front().estimate.step_time_s / now}};
}

}  // namespace trifold::report

// SPDX-License-Identifier: Apache-2.0
#include "report/plan_answers.h"

#include <fmt/format.h>

#include "base/table.h"
#include "report/plan_text.h"

namespace trifold::report {

namespace {

using planner::Candidate;

std::string layout_cell(const Candidate& c) {
  const layout::Layout& l = c.job.layout;
  return fmt::format("mbs {} tp {} cp {} pp {} vp {} ep {} etp {}{}",
                     c.job.training.micro_batch_size, l.tp, l.sequence_ranks(), l.pp, l.vpp, l.ep,
                     l.etp, l.fsdp ? " fsdp" : "");
}

double tokens_per_s(const Candidate& c) { return c.estimate.tokens_per_s_per_gpu * c.job.gpus; }

std::string pareto_text(const std::vector<Candidate>& front) {
  Table table({"GPUs", "Step s", "Tokens/s", "headroom GiB", "GPU-s a step", "layout"});
  table.align(5, Table::Align::left);
  for (const Candidate& c : front)
    table.add({thousands(c.job.gpus), fmt::format("{:.3f}", c.estimate.step_time_s),
               thousands(static_cast<long long>(tokens_per_s(c))),
               fmt::format("{:.1f}", to_gib(c.estimate.memory.headroom)),
               thousands(static_cast<long long>(c.estimate.step_time_s * c.job.gpus)),
               layout_cell(c)});
  return "\nStep time, headroom and GPUs: nothing here is worse in all three than another plan\n" +
         table.text("  ");
}

std::string half_text(const PlanAnswers::Half& half, const Candidate& best) {
  if (!half.best) return fmt::format("\nOn {} GPUs nothing fits.\n", thousands(half.gpus));
  return fmt::format(
      "\nOn {} GPUs: {:.3f} s a step, {:.2f} times as long, {} tokens/s/GPU ({:+.1f} %); {}\n",
      thousands(half.gpus), half.best->estimate.step_time_s,
      half.best->estimate.step_time_s / best.estimate.step_time_s,
      thousands(static_cast<long long>(half.best->estimate.tokens_per_s_per_gpu)),
      100 * (half.best->estimate.tokens_per_s_per_gpu / best.estimate.tokens_per_s_per_gpu - 1),
      layout_cell(*half.best));
}

std::string named_text(const Candidate& named, const Candidate& best) {
  Table table({"Term", "named s", "best s", "lost s"});
  const auto row = [&](const std::string& term, double a, double b) {
    if (a > 0 || b > 0)
      table.add({term, fmt::format("{:.3f}", a), fmt::format("{:.3f}", b),
                 fmt::format("{:+.3f}", a - b)});
  };
  const auto mine = named.estimate.time.terms(), theirs = best.estimate.time.terms();
  for (std::size_t i = 0; i < mine.size(); ++i)
    row(mine[i].first, mine[i].second, theirs[i].second);
  row("step", named.estimate.step_time_s, best.estimate.step_time_s);
  std::string text =
      "\nThe named layout (" + layout_cell(named) + ") against the best\n" + table.text("  ");
  if (!named.verdict.legal())
    text += fmt::format("  It is not launchable: {}\n", job::explain(named.verdict));
  if (!named.estimate.memory.fits())
    text += fmt::format("  It does not fit: short of {:.1f} GiB a GPU.\n",
                        -to_gib(named.estimate.memory.headroom));
  return text;
}

}  // namespace

std::string answers_text(const PlanAnswers& a, const planner::PlanResult& result) {
  std::string text;
  const Candidate& best = result.plans.front();
  if (a.reranking)
    text += fmt::format(
        "\nSimulated {} of the plans: {}; simulation and estimate differ by up to {:.1f} %.\n",
        a.reranking->simulated,
        a.reranking->winner_changed ? "another one leads now" : "the same one leads",
        100 * a.reranking->largest_gap);
  if (!a.pareto.empty()) text += pareto_text(a.pareto);
  if (a.half) text += half_text(*a.half, best);
  if (a.tokens_per_s > 0)
    text += a.smallest
                ? fmt::format("\nSmallest cluster for {} tokens/s: {} GPUs ({} tokens/s); {}\n",
                              thousands(static_cast<long long>(a.tokens_per_s)),
                              thousands(a.smallest->job.gpus),
                              thousands(static_cast<long long>(tokens_per_s(*a.smallest))),
                              layout_cell(*a.smallest))
                : fmt::format("\nNo cluster of this kind trains {} tokens/s on this batch.\n",
                              thousands(static_cast<long long>(a.tokens_per_s)));
  if (a.named) text += named_text(*a.named, best);
  return text;
}

void add_answers(const PlanAnswers& a, Json& json) {
  if (a.reranking)
    json["simulation"] = {{"plans", a.reranking->simulated},
                          {"winner_changed", a.reranking->winner_changed},
                          {"largest_relative_gap", a.reranking->largest_gap}};
  if (!a.pareto.empty()) {
    Json front = Json::array();
    for (const Candidate& c : a.pareto) {
      Json entry = plan_file(c);
      entry["gpus"] = c.job.gpus;
      front.push_back(std::move(entry));
    }
    json["pareto"] = std::move(front);
  }
  if (a.half)
    json["half"] = {{"gpus", a.half->gpus},
                    {"plan", a.half->best ? plan_file(*a.half->best) : Json()}};
  if (a.tokens_per_s > 0)
    json["smallest_cluster"] = {{"tokens_per_s", a.tokens_per_s},
                                {"gpus", a.smallest ? Json(a.smallest->job.gpus) : Json()},
                                {"plan", a.smallest ? plan_file(*a.smallest) : Json()}};
  if (a.named) {
    json["compared"] = plan_file(*a.named);
    json["compared"]["fits"] = a.named->estimate.memory.fits();
  }
}

}  // namespace trifold::report

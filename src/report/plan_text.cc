// SPDX-License-Identifier: Apache-2.0
#include "report/plan_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/table.h"
#include "model/size.h"
#include "planner/explain.h"
#include "report/estimate_text.h"

namespace trifold::report {

namespace {

using planner::Candidate;

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

double communication_share(const estimate::Estimate& e) {
  double sum = 0;
  for (double s : e.time.exposed) sum += s;
  return sum / e.step_time_s;
}

std::string technique_summary(const job::Job& job) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
  if (job.model.is_moe() && job.layout.ep * job.layout.etp > 1)
    add(std::string(token_name(job::kDispatchers, job.techniques.dispatcher)) +
        (job.techniques.dispatcher_sms > 0 ? fmt::format(" {} SMs", job.techniques.dispatcher_sms)
                                           : ""));
  const layout::ScheduleKind kind = job.schedule.kind;
  if (kind != layout::ScheduleKind::one_f_one_b && kind != layout::ScheduleKind::interleaved)
    add(std::string(token_name(layout::kScheduleKinds, kind)));
  if (job.layout.order != layout::RankOrder::tp_cp_ep_dp_pp)
    add(std::string(token_name(layout::kRankOrders, job.layout.order)));
  if (job.techniques.has(job::Overlap::shared_expert)) add("shared-expert overlap");
  if (job.techniques.has(job::Overlap::inter_op)) add("operator overlap");
  if (job.techniques.has(job::Overlap::ep_a2a)) add("EP overlap");
  if (job.layout.fsdp) add("FSDP");
  if (!job.techniques.cuda_graph.empty()) add("graphs");
  std::string modules;
  for (const auto& token : job::kRecomputes)
    if (job.techniques.recompute.contains(token.value))
      modules += (modules.empty() ? "" : "+") + std::string(token.name);
  if (!modules.empty()) add("recompute " + modules);
  if (!job.techniques.offload.activation_modules.empty()) add("offload");
  if (job.training.optimizer.moments == job::StateType::bf16) add("bf16 moments");
  return text;
}

std::string tp_text(const layout::Layout& l) {
  return l.ulysses_sp > 1 ? fmt::format("sp{}", l.ulysses_sp) : fmt::format("{}", l.tp);
}

std::string candidates_table(const std::vector<Candidate>& plans) {
  const bool simulated =
      std::any_of(plans.begin(), plans.end(), [](const Candidate& c) { return c.simulated_s > 0; });
  std::vector<std::string> columns = {"#",  "MBS", "TP",  "PP", "CP",
                                      "VP", "EP",  "ETP", "DP", "Step s"};
  if (simulated) columns.push_back("simulated");
  columns.insert(columns.end(), {"80 % interval", "Tokens/s/GPU", "TFLOP/s/GPU", "MFU %", "comm %",
                                 "bubble %", "peak GiB", "headroom", "Techniques"});
  Table table(columns);
  table.align(columns.size() - 1, Table::Align::left);
  int rank = 0;
  for (const Candidate& c : plans) {
    ++rank;
    const layout::Layout& l = c.job.layout;
    const estimate::Estimate& e = c.estimate;
    std::vector<std::string> row = {fmt::format("{}{}", rank, rank > 1 && c.tie ? "=" : ""),
                                    fmt::format("{}", c.job.training.micro_batch_size),
                                    tp_text(l),
                                    fmt::format("{}", l.pp),
                                    fmt::format("{}", l.cp),
                                    fmt::format("{}", l.vpp),
                                    fmt::format("{}", l.ep),
                                    fmt::format("{}", l.etp),
                                    fmt::format("{}", c.job.dp()),
                                    fmt::format("{:.3f}", e.step_time_s)};
    if (simulated) row.push_back(c.simulated_s > 0 ? fmt::format("{:.3f}", c.simulated_s) : "");
    row.insert(
        row.end(),
        {fmt::format("{:.2f}-{:.2f}", e.low_s, e.high_s),
         thousands(static_cast<long long>(e.tokens_per_s_per_gpu)),
         fmt::format("{:.0f}", e.tflops_per_gpu), percent(e.mfu), percent(communication_share(e)),
         percent(e.time.bubble / e.step_time_s), fmt::format("{:.1f}", to_gib(e.memory.peak)),
         fmt::format("{:.1f}", to_gib(e.memory.headroom)), technique_summary(c.job)});
    table.add(std::move(row));
  }
  return table.text("  ");
}

std::string why(const std::vector<Candidate>& plans) {
  if (plans.size() < 2) return "";
  const Candidate& first = plans[0];
  const Candidate& second = plans[1];
  const planner::DecidingTerm term = planner::deciding_term(first.estimate, second.estimate);
  std::size_t ties = 0;
  for (const Candidate& plan : plans) ties += plan.tie;
  const double ahead = second.estimate.step_time_s - first.estimate.step_time_s;
  std::string text = "  Why the first: ";
  if (first.simulated_s > 0 && second.simulated_s > 0)
    text +=
        fmt::format("simulated, it is {} a step ahead of the runner-up ({:.1f} %); in closed form ",
                    human_seconds(second.simulated_s - first.simulated_s),
                    100 * (second.simulated_s / first.simulated_s - 1));
  if (ahead >= 0)
    text +=
        fmt::format("it is {} a step ahead of the runner-up ({:.1f} %); {} decides ({} of it).\n",
                    human_seconds(ahead), 100 * ahead / first.estimate.step_time_s, term.name,
                    human_seconds(term.seconds));
  else
    text += fmt::format("it is {} behind ({:.1f} %).\n", human_seconds(-ahead),
                        -100 * ahead / first.estimate.step_time_s);
  if (ties > 1)
    text += fmt::format(
        "  Plans marked = are ties: their intervals overlap the first's ({} of the {} listed).\n",
        ties - 1, plans.size() - 1);
  if (first.fastest_s > 0 && first.fastest_s < first.estimate.step_time_s * (1 - 1e-6))
    text += fmt::format(
        "  With every technique that helps it would take {:.3f} s ({:.1f} % less); --simplicity 0 "
        "shows it.\n",
        first.fastest_s, 100 * (1 - first.fastest_s / first.estimate.step_time_s));
  if (!first.job.layout.pipeline_layout.empty())
    text += fmt::format("  Its pipeline: {}\n", first.job.layout.pipeline_layout);
  text += fmt::format("  What binds it: {}.\n",
                      token_name(planner::kWalls, planner::binding_wall(first.estimate)));
  return text;
}

std::string geometries_table(const planner::PlanResult& result) {
  Table table({"Geometry", "layout", "Step s", "slower by", "Tokens/s/GPU", "exposed comm %",
               "bubble %", "peak GiB", "headroom", "wall"});
  table.align(1, Table::Align::left), table.align(9, Table::Align::left);
  double best = 0;
  for (const auto& [kind, c] : result.geometries)
    best = best == 0 ? c.estimate.step_time_s : std::min(best, c.estimate.step_time_s);
  for (const auto& token : planner::kGeometryClasses) {
    const auto at = result.geometries.find(token.value);
    if (at == result.geometries.end()) {
      if (token.value != planner::GeometryClass::dense &&
          result.geometries.count(planner::GeometryClass::dense) == 0)
        table.add({std::string(token.name), "nothing legal fits"});
      continue;
    }
    const Candidate& c = at->second;
    const layout::Layout& l = c.job.layout;
    table.add({std::string(token.name),
               fmt::format("mbs {} tp {} cp {} pp {} vp {} ep {} etp {}{}",
                           c.job.training.micro_batch_size, tp_text(l), l.cp, l.pp, l.vpp, l.ep,
                           l.etp, c.job.layout.fsdp ? " fsdp" : ""),
               fmt::format("{:.3f}", c.estimate.step_time_s),
               fmt::format("{:.1f} %", 100 * (c.estimate.step_time_s / best - 1)),
               thousands(static_cast<long long>(c.estimate.tokens_per_s_per_gpu)),
               percent(communication_share(c.estimate)),
               percent(c.estimate.time.bubble / c.estimate.step_time_s),
               fmt::format("{:.1f}", to_gib(c.estimate.memory.peak)),
               fmt::format("{:.1f}", to_gib(c.estimate.memory.headroom)),
               std::string(token_name(planner::kWalls, planner::binding_wall(c.estimate)))});
  }
  return table.text("  ");
}

std::string rejected_table(const planner::PlanResult& result) {
  std::vector<std::pair<std::string, double>> reasons(result.rejected.begin(),
                                                      result.rejected.end());
  std::sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  Table table({"Why the rest fell", "points", "share"});
  std::size_t shown = 0;
  double others = 0;
  for (const auto& [reason, points] : reasons) {
    if (shown++ < 12)
      table.add({reason, thousands(static_cast<long long>(points)),
                 percent(points / result.space) + " %"});
    else
      others += points;
  }
  if (others > 0)
    table.add({"other reasons", thousands(static_cast<long long>(others)),
               percent(others / result.space) + " %"});
  return table.text("  ");
}

// "4,869,190,000 points: tp 4 x Ulysses 4 x cp 2 x ...".
std::string space_text(const planner::Query& query) {
  const planner::Space s = planner::make_space(query);
  return fmt::format(
      "{} points: tp {} x Ulysses {} x cp {} x pp {} x ep {} x etp {} x micro-batch {} x FSDP {} x "
      "rank order {} x schedule and chunks {} x dispatcher, SMs and overlap {} x recompute, "
      "offload "
      "and optimizer precision {}",
      thousands(static_cast<long long>(s.size())), s.tp.size(), s.ulysses_sp.size(), s.cp.size(),
      s.pp.size(), s.ep.size(), s.etp.size(), s.micro_batch_size.size(), s.fsdp.size(),
      s.orders.size(), s.depths.size(), s.transports.size(), s.savings.size());
}

}  // namespace

std::string plan_text(const planner::Query& query, const planner::PlanResult& result) {
  const model::Parameters p = model::count_parameters(query.model);
  std::string text = fmt::format(
      "{} ({:.0f} B parameters, {:.0f} B active) on {} x {}: sequence {}, global batch {}, {}\n"
      "space: {}; {} step times computed\n\n",
      query.model.name, static_cast<double>(p.total()) * 1e-9,
      static_cast<double>(p.active()) * 1e-9, thousands(query.gpus), query.cluster.name,
      thousands(query.training.sequence_length), thousands(query.training.global_batch_size),
      token_name(job::kPrecisions, query.training.precision), space_text(query),
      thousands(result.evaluations));
  text += candidates_table(result.plans) + "\n" + why(result.plans) + "\n";
  if (!result.not_launchable.empty())
    text += "Faster, but Megatron cannot run it (--runtime any ranks these):\n" +
            candidates_table(result.not_launchable) +
            fmt::format("  {}\n\n", job::explain(result.not_launchable.front().verdict));
  text += "Geometries side by side, the best of each:\n" + geometries_table(result) + "\n";
  text += rejected_table(result) + "\nThe first plan in detail:\n";
  text += estimate_text(result.plans.front().job, result.plans.front().estimate);
  return text;
}

Json plan_file(const planner::Candidate& plan) {
  Json json = {
      {"schema", "trifold.plan/1"},
      {"id", job::job_id(plan.job)},
      {"job", job::to_json(plan.job)},
      {"estimate", estimate::to_json(plan.estimate, plan.job)},
      {"verdict", plan.verdict.legal() ? Json("launchable") : Json(job::explain(plan.verdict))}};
  if (plan.fastest_s > 0) json["fastest_step_time_s"] = plan.fastest_s;
  if (plan.simulated_s > 0) json["simulated_step_time_s"] = plan.simulated_s;
  return json;
}

Json plan_json(const planner::Query& query, const planner::PlanResult& result) {
  Json plans = Json::array(), other = Json::array(), geometries = Json::array(),
       rejected = Json::object();
  for (const Candidate& plan : result.plans) plans.push_back(plan_file(plan));
  for (const Candidate& plan : result.not_launchable) other.push_back(plan_file(plan));
  for (const auto& [kind, c] : result.geometries)
    geometries.push_back({{"name", token_name(planner::kGeometryClasses, kind)},
                          {"job", job::to_json(c.job)},
                          {"estimate", estimate::to_json(c.estimate, c.job)}});
  for (const auto& [reason, points] : result.rejected) rejected[reason] = points;
  Json json = {{"schema", "trifold.plans/1"},
               {"model", query.model.name},
               {"cluster", query.cluster.name},
               {"gpus", query.gpus},
               {"plans", plans},
               {"not_launchable", other},
               {"geometries", geometries},
               {"fastest_step_time_s", result.fastest_s},
               {"space", result.space},
               {"considered", result.considered},
               {"legal", result.legal},
               {"fits", result.fits},
               {"evaluations", result.evaluations},
               {"complete", result.complete},
               {"rejected", rejected}};
  return json;
}

}  // namespace trifold::report

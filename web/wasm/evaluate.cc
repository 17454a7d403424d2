// SPDX-License-Identifier: Apache-2.0
#include "web/wasm/evaluate.h"

#include "planner/explain.h"
#include "report/estimate_text.h"

namespace trifold::page {

namespace {

Json error_json(const Error& error) {
  return {{"message", error.message}, {"where", error.where}, {"hint", error.hint}};
}

Json terms_json(const job::Job& job, const layout::Pipeline& pipeline, int stage) {
  static constexpr const char* kParts[] = {"weights", "gradients", "optimizer", "activations",
                                           "buffers"};
  Json terms = Json::array();
  for (const memory::Term& term : memory::explain(job, pipeline, stage))
    terms.push_back({{"stage", stage},
                     {"part", kParts[static_cast<std::size_t>(term.part)]},
                     {"name", term.name},
                     {"formula", term.formula},
                     {"divisor", term.divisor},
                     {"bytes", term.bytes.value()}});
  return terms;
}

}  // namespace

Result<Json> Evaluator::evaluate(const Json& point) {
  if (!point.is_object()) return input_error("expected an object", "request#/points");
  if (!what_if_) return input_error("no job was given", "request#/job");
  std::vector<std::string> assignments;
  for (const Json& assignment : point.value("set", Json::array())) {
    if (!assignment.is_string()) return input_error("expected \"key=value\"", "request#/points");
    assignments.push_back(assignment.get<std::string>());
  }
  TRIFOLD_ASSIGN(job, what_if_->read(assignments));
  TRIFOLD_TRY(what_if_->evaluate(job, scratch_));
  Json out = {{"status", token_name(planner::kPointStatuses, scratch_.status)},
              {"reason", planner::reason_of(scratch_)},
              {"layout", report::layout_text(job)},
              {"techniques", report::techniques_text(job)},
              {"wall", nullptr},
              {"estimate", nullptr}};
  if (!scratch_.evaluated()) return out;
  const estimate::Estimate& estimate = scratch_.estimate;
  out["wall"] = token_name(planner::kWalls, planner::binding_wall(estimate));
  out["estimate"] = estimate::to_json(estimate, job);
  if (point.value("terms", false)) {
    TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
    out["terms"] = terms_json(job, pipeline, estimate.memory.worst_stage);
  }
  return out;
}

Result<Json> Evaluator::respond(const Json& request) {
  if (!request.is_object()) return input_error("expected an object", "request");
  for (const auto& item : request.items())
    if (item.key() != "profile" && item.key() != "job" && item.key() != "points")
      return input_error("unknown key '" + item.key() + "'", "request", "profile, job or points");
  if (request.contains("profile") != request.contains("job"))
    return input_error("profile and job come together", "request");
  if (request.contains("job")) {
    TRIFOLD_ASSIGN(profile, hardware::read_profile(request["profile"], "profile"));
    TRIFOLD_ASSIGN(made, planner::WhatIf::make(request["job"], "job", std::move(profile)));
    what_if_ = std::move(made);
  }
  Json points = Json::array();
  for (const Json& point : request.value("points", Json::array())) {
    Result<Json> result = evaluate(point);
    points.push_back(result ? std::move(*result) : Json{{"error", error_json(result.error())}});
  }
  return Json{{"points", std::move(points)}};
}

std::string Evaluator::answer(std::string_view request) {
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  try {
    Result<Json> json = parse_json(request, "request");
    if (json) json = respond(*json);
    return text(json ? *json : Json{{"error", error_json(json.error())}});
  } catch (const std::exception& e) {
    return text({{"error", {{"message", e.what()}, {"where", "request"}, {"hint", ""}}}});
  }
}

}  // namespace trifold::page

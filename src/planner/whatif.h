// SPDX-License-Identifier: Apache-2.0
#pragma once

// What if: one Job, some of its fields varied, each point priced and judged. Works on the Job's
// JSON, so that every field that `--set` reaches can vary.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "estimate/estimate.h"
#include "job/legality.h"
#include "planner/query.h"

namespace trifold::planner {

enum class PointStatus : std::uint8_t { fits, out_of_memory, not_launchable, illegal };
inline constexpr Token<PointStatus> kPointStatuses[] = {
    {PointStatus::fits, "fits"},
    {PointStatus::out_of_memory, "out_of_memory"},
    {PointStatus::not_launchable, "not_launchable"},  // fits, but Megatron refuses it
    {PointStatus::illegal, "illegal"}};

// One varied field. `key` is the full dotted key.
struct Axis {
  std::string key;
  std::vector<std::string> values;  // as a person writes them, units included
};

struct Point {
  std::vector<std::string> values;  // one an axis
  job::Job job;
  estimate::Estimate estimate;  // untouched where illegal
  PointStatus status = PointStatus::illegal;
  job::Verdict verdict;  // the rule that is broken, if any
  bool evaluated() const { return status != PointStatus::illegal; }
};

// Why a point is not simply fine: the broken rule, or what is short; empty where it fits.
std::string reason_of(const Point& point);

// The full dotted key that `--set word=...` would write; the error of set_field otherwise.
Result<std::string> resolve_key(const std::string& word);

// "key=v1,v2", "key=low..high:count" (evenly spaced, units allowed). Fields that hold a list join
// their words with '+': "recompute=none,moe_act,moe_act+layernorm".
Result<Axis> parse_axis(const std::string& text);

// Reads variants of one Job and prices them. Parts that a point shares with another (model,
// cluster, profile, priced blocks) are read and priced once.
class WhatIf {
 public:
  // `base_json` as load_job reads it; `file` names it in messages.
  static Result<WhatIf> make(Json base_json, std::string file, std::string data_dir);
  // The same where there are no files (the page's worker): model and cluster stand in the JSON.
  static Result<WhatIf> make(Json base_json, std::string file, hardware::Profile profile);

  const job::Job& base() const { return base_; }
  const hardware::Profile& profile() const { return *profile_; }

  // The base with assignments "key=value" applied. Where the pipeline's depth or the model's layers
  // change and the cut is not among the assignments, it is made anew: evenly, else with embedding
  // and loss counted, else filled.
  Result<job::Job> read(const std::vector<std::string>& assignments);
  // Prices and judges `job`: one that read() gave, or one with its cluster.
  Result<void> evaluate(const job::Job& job, Point& out);

  // The cartesian product, the last axis fastest. An unreadable value is an error.
  Result<std::vector<Point>> sweep(const std::vector<Axis>& axes);
  // Each point planned anew with the varied fields held: the best plan, or the verdict why none.
  Result<std::vector<Point>> replan(const std::vector<Axis>& axes);

 private:
  struct Assignment;  // a resolved key and its value as JSON
  struct Priced;      // a profile and the estimator that uses it
  static Result<Assignment> parse_assignment(const std::string& text);
  Result<job::Job> read(const std::vector<const Assignment*>& assignments);
  Result<const job::Job*> model_and_cluster(const Json& json);
  Result<Priced*> priced(const job::Job& job);
  Result<std::vector<Point>> each(const std::vector<Axis>& axes, bool replan);
  Result<Point> plan_point(const std::vector<Axis>& axes, const job::Job& job);

  Json json_;
  std::string file_, data_dir_;
  job::Job base_;
  double nominal_scaleup_ = 0;  // of the cluster that the profile describes
  std::shared_ptr<const hardware::Profile> profile_;
  std::map<std::string, std::shared_ptr<job::Job>> parts_;
  std::map<std::pair<std::uint64_t, std::string>, std::shared_ptr<Priced>> priced_;
};

// A Query that re-plans `job`: its model, cluster, training and routing, every axis free.
Query query_of(const job::Job& job);

}  // namespace trifold::planner

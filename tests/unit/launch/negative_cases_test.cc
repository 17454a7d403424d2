// SPDX-License-Identifier: Apache-2.0
// Every plan that Megatron itself judged (shared/data/megatron/negative_cases.json: one accepted
// base, 83 refused) gets the same verdict here, naming the rule that the case stands for.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "launch/check.h"

namespace trifold::launch {
namespace {

const std::string kShared = std::string(TRIFOLD_SOURCE_DIR) + "/../shared/data/megatron/";

struct Case {
  std::string name;
  bool accept = false;
  Arguments arguments;
  Environment environment;
  CheckOptions options;
  std::set<std::string> rules;  // any of them
};

// Cases that the rule table does not point back to: the rule by the case's own message.
const std::map<std::string, std::string> kUnmapped = {
    {"overlap_ep_full_recompute", "OVL-04"},
    {"group_topk_without_groups", "RT-01"},
    {"group_topk_gt_groups", "RT-01"},
    {"overlap_param_gather_without_grad_reduce", "DDP-01"}};

std::vector<Case> read_cases() {
  const Result<Json> cases = read_json(kShared + "negative_cases.json");
  const Result<Json> rules = read_json(kShared + "legality_rules.json");
  std::vector<Case> out;
  if (!cases || !rules) return out;
  for (const Json& json : *cases) {
    Case c;
    c.name = json.at("case").get<std::string>();
    c.accept = json.at("expect") == "ACCEPT";
    const Json& plan = json.at("plan");
    c.arguments = *parse_arguments(plan.at("args").get<std::vector<std::string>>());
    c.environment = plan.at("env").get<std::map<std::string, std::string>>();
    c.options.gpus = plan.at("world_size").get<std::int64_t>();
    EXPECT_EQ(plan.at("gpu"), "h100");
    for (const Json& rule : *rules)
      if (rule.at("negative_case") == c.name) c.rules.insert(rule.at("id").get<std::string>());
    if (kUnmapped.count(c.name) > 0) c.rules.insert(kUnmapped.at(c.name));
    out.push_back(std::move(c));
  }
  return out;
}

TEST(NegativeCases, EveryCaseGetsMegatronsVerdictAndItsRule) {
  const std::vector<Case> cases = read_cases();
  if (cases.empty()) GTEST_SKIP() << kShared << " is absent";
  ASSERT_EQ(cases.size(), 84u);
  for (const Case& c : cases) {
    const std::vector<Finding> findings = check_arguments(c.arguments, c.environment, c.options);
    std::string all;
    bool named = false;
    for (const Finding& f : findings) {
      all += explain(f) + "\n";
      named = named || (f.severity == Severity::reject && c.rules.count(f.rule) > 0);
      EXPECT_FALSE(f.reason.empty());
      EXPECT_FALSE(f.fix.empty()) << f.rule;
    }
    EXPECT_EQ(accepted(findings), c.accept) << c.name << "\n" << all;
    if (c.accept) continue;
    EXPECT_FALSE(c.rules.empty()) << c.name;
    EXPECT_TRUE(named) << c.name << ": its rule is not among\n" << all;
  }
}

// The fix that a numeric refusal proposes is one that passes.
TEST(NegativeCases, TheProposedBatchIsAccepted) {
  const std::vector<Case> cases = read_cases();
  if (cases.empty()) GTEST_SKIP() << kShared << " is absent";
  for (const Case& c : cases) {
    if (c.name != "gbs_not_divisible" && c.name != "vpp_microbatches_remainder" &&
        c.name != "vpp_microbatches_lt_pp")
      continue;
    const std::vector<Finding> findings = check_arguments(c.arguments, c.environment, c.options);
    ASSERT_FALSE(findings.empty());
    const Result<Arguments> fix =
        parse_arguments({findings[0].fix.substr(0, findings[0].fix.find(' ')),
                         findings[0].fix.substr(findings[0].fix.find(' ') + 1)});
    ASSERT_TRUE(fix);
    Arguments repaired = c.arguments;
    repaired.items.push_back(fix->items[0]);
    EXPECT_TRUE(accepted(check_arguments(repaired, c.environment, c.options))) << c.name;
  }
}

}  // namespace
}  // namespace trifold::launch

// SPDX-License-Identifier: Apache-2.0
// The checker accepts a finished timeline and refuses every tampered one.
#include "sim/check.h"

#include <gtest/gtest.h>

namespace trifold::sim {
namespace {

struct Case {
  Graph graph;
  LoadTable loads;
  Outcome outcome;
};

Case finished() {
  Case c;
  Load load;
  load.use[0] = 1;
  const std::uint8_t full = c.loads.add(load);
  const Index d = c.graph.add_domain(), a = c.graph.add_stream(d), b = c.graph.add_stream(d);
  const Index x = c.graph.add_task(a, 100, full);
  c.graph.add_task(a, 50, full);
  const Index y = c.graph.add_task(b, 80, full);
  c.graph.add_task(b, 30, full);
  c.graph.add_dependency(x, y + 1);
  Engine engine;
  c.outcome = engine.run(c.graph, c.loads);
  return c;
}

TEST(Check, AcceptsWhatTheEngineSays) {
  const Case c = finished();
  EXPECT_EQ(check_timeline(c.graph, c.loads, c.outcome), "");
}

TEST(Check, RefusesABrokenDependency) {
  Case c = finished();
  c.outcome.start[3] = c.outcome.end[0] - 1;
  c.outcome.end[3] = c.outcome.start[3] + 200;
  c.outcome.makespan += 1000;
  EXPECT_NE(check_timeline(c.graph, c.loads, c.outcome).find("starts before"), std::string::npos);
}

TEST(Check, RefusesAStreamThatOverlapsItself) {
  Case c = finished();
  c.outcome.start[1] = c.outcome.end[0] - 1;
  EXPECT_NE(check_timeline(c.graph, c.loads, c.outcome).find("overlaps"), std::string::npos);
}

TEST(Check, RefusesATaskFasterThanItsWork) {
  Case c = finished();
  c.outcome.end[1] = c.outcome.start[1] + 49;
  EXPECT_NE(check_timeline(c.graph, c.loads, c.outcome).find("faster"), std::string::npos);
}

TEST(Check, RefusesAResourceOverCapacity) {
  // Both streams at full speed side by side: 100 + 80 of work in 100 of time.
  Case c = finished();
  c.outcome.start = {0, 100, 0, 100};
  c.outcome.end = {100, 150, 80, 130};
  c.outcome.makespan = 150;
  EXPECT_NE(check_timeline(c.graph, c.loads, c.outcome).find("over capacity"), std::string::npos);
}

TEST(Check, RefusesAMissingTask) {
  Case c = finished();
  c.outcome.start[2] = -1;
  EXPECT_NE(check_timeline(c.graph, c.loads, c.outcome).find("never ran"), std::string::npos);
}

TEST(Check, LowerBounds) {
  const Case c = finished();
  EXPECT_EQ(critical_path(c.graph), 150);   // a: 100 + 50; a0 then b1: 130
  EXPECT_EQ(busiest_stream(c.graph), 150);  // 150 on a, 110 on b
}

}  // namespace
}  // namespace trifold::sim

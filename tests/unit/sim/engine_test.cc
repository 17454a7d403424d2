// SPDX-License-Identifier: Apache-2.0
#include "sim/engine.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "sim/check.h"

namespace trifold::sim {
namespace {

// Two streams that each want all of resource 0.
Load full_share() {
  Load load;
  load.use[0] = 1;
  return load;
}

TEST(Engine, StreamsRunInOrderAndDependenciesHold) {
  // a: 10 then 20; b: 5 then 7, and the 7 waits for the 10.
  Graph g;
  const Index d = g.add_domain(), a = g.add_stream(d), b = g.add_stream(d);
  const Index a0 = g.add_task(a, 10), a1 = g.add_task(a, 20);
  const Index b0 = g.add_task(b, 5), b1 = g.add_task(b, 7);
  g.add_dependency(a0, b1);
  Engine engine;
  const Outcome& o = engine.run(g, LoadTable());
  EXPECT_TRUE(o.complete);
  EXPECT_EQ(o.start[0], 0);
  EXPECT_EQ(o.start[static_cast<std::size_t>(a1)], 10);
  EXPECT_EQ(o.end[static_cast<std::size_t>(b0)], 5);
  EXPECT_EQ(o.start[static_cast<std::size_t>(b1)], 10);
  EXPECT_EQ(o.cause[static_cast<std::size_t>(b1)], a0);
  EXPECT_EQ(o.makespan, 30);
}

TEST(Engine, TwoEqualTasksShareOneResourceAndTakeTwice) {
  // Each at half speed until both end at 200; alone again, the third takes its 50.
  Graph g;
  LoadTable loads;
  const std::uint8_t load = loads.add(full_share());
  const Index d = g.add_domain(), a = g.add_stream(d), b = g.add_stream(d);
  g.add_task(a, 100, load);
  g.add_task(b, 100, load);
  g.add_task(b, 50, load);
  Engine engine;
  const Outcome& o = engine.run(g, loads);
  EXPECT_EQ(o.end[0], 200);
  EXPECT_EQ(o.end[1], 200);
  EXPECT_EQ(o.makespan, 250);
  EXPECT_EQ(check_timeline(g, loads, o), "");
}

TEST(Engine, ALateArrivalSlowsWhatIsLeft) {
  // a runs alone for 40; its last 60 and b's 60 then share, at half speed each: both end at 160.
  Graph g;
  LoadTable loads;
  const std::uint8_t load = loads.add(full_share());
  const Index d = g.add_domain(), a = g.add_stream(d), b = g.add_stream(d);
  g.add_task(a, 100, load);
  g.add_task(b, 40, 0);  // shares nothing: delays b's second task until 40
  g.add_task(b, 60, load);
  Engine engine;
  const Outcome& o = engine.run(g, loads);
  EXPECT_EQ(o.end[0], 160);
  EXPECT_EQ(o.end[2], 160);
}

TEST(Engine, DomainsDoNotContend) {
  Graph g;
  LoadTable loads;
  const std::uint8_t load = loads.add(full_share());
  for (int i = 0; i < 3; ++i) g.add_task(g.add_stream(g.add_domain()), 100, load);
  Engine engine;
  EXPECT_EQ(engine.run(g, loads).makespan, 100);
}

TEST(Engine, ATaskThatHoldsWaitsForWhatFills) {
  // The kernel on a (fill 1) runs 0..100; b becomes ready at 10 and needs 1/4 of the place: it is
  // admitted at 100, before a's second kernel. Together: a's second kernel has 3/4 of the place:
  // 100 / 0.75 = 133.33 -> until b ends at 200 it does 75; 25 left at full speed: 225.
  Graph g;
  LoadTable loads;
  Load kernel = full_share();
  kernel.fill = 1;
  Load held;
  held.hold[0] = 0.25;
  const std::uint8_t k = loads.add(kernel), h = loads.add(held);
  const Index d = g.add_domain(), a = g.add_stream(d), b = g.add_stream(d);
  g.add_task(a, 100, k);
  g.add_task(a, 100, k);
  g.add_task(b, 10, 0);
  g.add_task(b, 100, h);
  Engine engine;
  const Outcome& o = engine.run(g, loads);
  EXPECT_EQ(o.start[3], 100);
  EXPECT_EQ(o.end[3], 200);
  EXPECT_EQ(o.end[1], 225);
}

TEST(Engine, ACycleThroughStreamsIsNotComplete) {
  Graph g;
  const Index d = g.add_domain(), a = g.add_stream(d), b = g.add_stream(d);
  const Index a0 = g.add_task(a, 1), a1 = g.add_task(a, 1);
  const Index b0 = g.add_task(b, 1), b1 = g.add_task(b, 1);
  g.add_dependency(a1, b0);
  g.add_dependency(b1, a0);
  Engine engine;
  EXPECT_FALSE(engine.run(g, LoadTable()).complete);
}

// Random graphs: sound, above every lower bound, the same twice, and equal on both paths when
// nothing is shared.
Graph random_graph(Random& random, const std::vector<std::uint8_t>& loads) {
  Graph g;
  std::vector<Index> streams;
  for (int d = 0; d < 3; ++d) {
    const Index domain = g.add_domain();
    for (int s = 0; s < 4; ++s) streams.push_back(g.add_stream(domain));
  }
  for (int t = 0; t < 400; ++t) {
    const Index task =
        g.add_task(streams[random.below(streams.size())],
                   static_cast<Picoseconds>(random.below(1000)), loads[random.below(loads.size())]);
    for (std::uint64_t k = random.below(3); k > 0 && task > 0; --k)
      g.add_dependency(static_cast<Index>(random.below(static_cast<std::uint64_t>(task))), task);
  }
  return g;
}

TEST(Engine, RandomGraphsAreSoundAndDeterministic) {
  Random random(7);
  LoadTable loads;
  std::vector<std::uint8_t> indices = {0};
  for (int i = 0; i < 5; ++i) {
    Load load;
    load.use[0] = random.uniform();
    load.use[1] = random.uniform();
    load.hold[2] = 0.05 * random.uniform();
    load.sensitivity[1] = random.uniform();
    indices.push_back(loads.add(load));
  }
  Engine engine, other;
  for (int round = 0; round < 50; ++round) {
    const Graph g = random_graph(random, indices);
    const Outcome& o = engine.run(g, loads);
    ASSERT_TRUE(o.complete);
    ASSERT_EQ(check_timeline(g, loads, o), "");
    EXPECT_GE(o.makespan, critical_path(g));
    EXPECT_GE(o.makespan, busiest_stream(g));
    const Outcome& again = other.run(g, loads);
    EXPECT_EQ(o.start, again.start);
    EXPECT_EQ(o.end, again.end);
  }
}

TEST(Engine, BothPathsAgreeWhereNothingIsShared) {
  Random random(11);
  LoadTable free_loads, touched;
  Load lonely;  // makes the table contended, but no task of the graph uses it
  lonely.use[0] = 1;
  touched.add(lonely);
  Engine a, b;
  for (int round = 0; round < 50; ++round) {
    const Graph g = random_graph(random, {0});
    const Outcome& x = a.run(g, free_loads);
    const Outcome& y = b.run(g, touched);
    EXPECT_EQ(x.start, y.start);
    EXPECT_EQ(x.end, y.end);
  }
}

TEST(Engine, RelabellingStreamsChangesNothing) {
  // The same two chains, streams declared in the other order.
  const auto build = [](bool swapped) {
    Graph g;
    const Index d = g.add_domain();
    const Index first = g.add_stream(d), second = g.add_stream(d);
    const Index a = swapped ? second : first, b = swapped ? first : second;
    for (int i = 0; i < 10; ++i) {
      const Index x = g.add_task(a, 30 + i, 1), y = g.add_task(b, 40 - i, 2);
      if (i % 3 == 0) g.add_dependency(x, y);
    }
    return g;
  };
  LoadTable loads;
  Load one, two;
  one.use[0] = 0.9;
  two.use[0] = 0.7;
  two.hold[0] = 0.1;
  loads.add(one);
  loads.add(two);
  Engine engine;
  const Picoseconds first = engine.run(build(false), loads).makespan;
  EXPECT_EQ(first, engine.run(build(true), loads).makespan);
}

}  // namespace
}  // namespace trifold::sim

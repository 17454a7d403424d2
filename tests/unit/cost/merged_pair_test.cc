// SPDX-License-Identifier: Apache-2.0
#include "cost/merged_pair.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "sim/engine.h"

namespace trifold::cost {
namespace {

// Pairs in a row on two in-order streams, as TransformerLayerSchedulePlan.run launches them.
class TwoStreams {
 public:
  TwoStreams() {
    const sim::Index domain = graph_.add_domain();
    comm_ = graph_.add_stream(domain), compute_ = graph_.add_stream(domain);
  }

  void pair(const MergedPair& p, bool early) {
    const sim::Index c_bwd = task(comm_, p.combine_backward, backward_);
    const sim::Index a_fwd = task(compute_, p.attention_forward, forward_);
    sim::Index back = task(compute_, p.experts_backward, c_bwd);
    const sim::Index d_fwd = task(comm_, p.dispatch_forward, a_fwd);
    task(compute_, p.experts_wgrad, back);
    back = task(comm_, p.dispatch_backward, back);
    if (early) back = task(compute_, p.attention_backward, back);
    const sim::Index x_fwd = task(compute_, p.experts_forward, d_fwd);
    forward_ = task(comm_, p.combine_forward, x_fwd);
    backward_ = early ? back : task(compute_, p.attention_backward, back);
    task(compute_, p.attention_wgrad, backward_);
  }

  double seconds() {
    sim::Engine engine;
    const sim::Outcome& o = engine.run(graph_, sim::LoadTable());
    sim::Picoseconds last = 0;
    for (const sim::Picoseconds end : o.end) last = std::max(last, end);
    return sim::to_seconds(last);
  }

 private:
  sim::Index task(sim::Index stream, double seconds, sim::Index after) {
    const sim::Index t = graph_.add_task(stream, sim::to_picoseconds(seconds), 0);
    if (after >= 0 && after != graph_.previous_in_stream(t)) graph_.add_dependency(after, t);
    return t;
  }
  sim::Graph graph_;
  sim::Index comm_ = 0, compute_ = 0, forward_ = -1, backward_ = -1;
};

TEST(MergedPair, IsThePeriodOfTwoInOrderStreams) {
  Random random(7);
  const auto time = [&] { return random.uniform() < 0.2 ? 0.0 : 1e-3 * random.uniform(); };
  for (int i = 0; i < 400; ++i) {
    const MergedPair p = {time(), time(), time(), time(), time(),
                          time(), time(), time(), time(), time()};
    for (const bool early : {false, true}) {
      TwoStreams few, many;
      for (int k = 0; k < 4; ++k) few.pair(p, early);
      for (int k = 0; k < 12; ++k) many.pair(p, early);
      EXPECT_NEAR((many.seconds() - few.seconds()) / 8, p.seconds(early), 1e-9) << i;
    }
  }
}

TEST(MergedPair, TransfersHideBehindWhatRunsBesideThem) {
  const MergedPair p = {1, 2, 0, 1, 2, 0, 0.5, 0.5, 0.5, 0.5};
  EXPECT_DOUBLE_EQ(p.seconds(false), 6);                 // compute alone
  EXPECT_DOUBLE_EQ(p.slowed(1, 10).seconds(false), 20);  // four transfers of 5
  EXPECT_GT(p.slowed(1, 2).seconds(true), p.slowed(1, 2).seconds(false));
}

}  // namespace
}  // namespace trifold::cost

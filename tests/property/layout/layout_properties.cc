// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "layout/in_flight.h"
#include "layout/pipeline.h"
#include "layout/rank_grid.h"

namespace trifold::layout {
namespace {

int pick(std::initializer_list<int> values) {
  return *rc::gen::elementOf(std::vector<int>(values));
}

// A grid that fits by construction: the world is a multiple of both products.
Layout any_grid(int& gpus) {
  Layout layout;
  layout.tp = pick({1, 2, 3, 4});
  layout.cp = pick({1, 2, 4});
  layout.pp = pick({1, 2, 3, 4});
  layout.etp = pick({1, 2});
  layout.ep = pick({1, 2, 3, 8});
  const int dense = layout.tp * layout.cp, expert = layout.etp * layout.ep;
  gpus = std::lcm(dense, expert) * layout.pp * pick({1, 2});
  if (dense == expert && *rc::gen::arbitrary<bool>()) layout.order = RankOrder::tp_cp_ep_pp_dp;
  return layout;
}

model::Model any_model() {
  model::Model m;
  const int layers = *rc::gen::inRange(1, 130);
  for (int i = 0; i < layers; ++i)
    m.layers.push_back(model::LayerKind::from_index(*rc::gen::inRange(0, model::kLayerKinds)));
  m.mtp_layers = *rc::gen::inRange(0, 3);
  return m;
}

TEST(RankGridProperty, CoordinatesAreABijection) {
  EXPECT_TRUE(rc::check([] {
    int gpus = 0;
    const Layout layout = any_grid(gpus);
    const RankGrid grid(layout, gpus);
    for (int r = 0; r < gpus; ++r) {
      const Coordinates c = grid.coordinates(RankId(r));
      RC_ASSERT(grid.rank(c.tp, c.cp, c.dp, c.pp).value() == r);
      const int expert = c.etp + layout.etp * c.ep;
      RC_ASSERT(expert + c.edp * grid.axis(Axis::edp).stride + c.pp * grid.axis(Axis::pp).stride ==
                r);
    }
  }));
}

TEST(RankGridProperty, GroupsPartitionTheWorld) {
  EXPECT_TRUE(rc::check([] {
    int gpus = 0;
    const Layout layout = any_grid(gpus);
    const RankGrid grid(layout, gpus);
    const std::vector<std::vector<Axis>> choices = {
        {Axis::tp},           {Axis::pp},
        {Axis::cp, Axis::dp}, {Axis::tp, Axis::cp, Axis::dp, Axis::pp},
        {Axis::ep},           {Axis::etp, Axis::ep},
        {Axis::edp, Axis::pp}};
    const std::vector<Axis> axes = *rc::gen::elementOf(choices);
    std::size_t size = 1;
    for (Axis a : axes) size *= static_cast<std::size_t>(grid.axis(a).size);
    std::set<int> seen;
    int previous = -1;
    for (const auto& group : grid.groups(axes)) {
      RC_ASSERT(group.size() == size);
      RC_ASSERT(group.front().value() > previous);
      previous = group.front().value();
      for (RankId r : group) RC_ASSERT(seen.insert(r.value()).second);
      RC_ASSERT(grid.group(group.back(), axes) == group);
    }
    RC_ASSERT(static_cast<int>(seen.size()) == gpus);
  }));
}

// Whatever the rule, a legal cut holds every layer once and in order, one embedding, one loss and
// every MTP depth; and printed as a string it is the same cut.
TEST(PipelineProperty, CutsHoldEverythingOnce) {
  EXPECT_TRUE(rc::check([] {
    const model::Model m = any_model();
    Layout layout;
    layout.pp = *rc::gen::inRange(1, 9);
    layout.vpp = *rc::gen::inRange(1, 4);
    layout.account_for_embedding = *rc::gen::arbitrary<bool>();
    layout.account_for_loss = *rc::gen::arbitrary<bool>();
    if (pick({0, 1, 2}) == 0) {
      layout.account_for_embedding = layout.account_for_loss = false;
      layout.first_stage_layers = *rc::gen::inRange(0, 12);
      layout.last_stage_layers = *rc::gen::inRange(0, 12);
    }
    if (pick({0, 1, 2}) == 0) {
      layout.account_for_embedding = layout.account_for_loss = false;
      layout.first_stage_layers = layout.last_stage_layers = 0;
      layout.pipeline_layout = filled_pipeline_layout(m, layout.pp, layout.vpp);
    }
    const Result<Pipeline> p = build_pipeline(m, layout);
    if (!p) return;  // an illegal cut is an answer
    int layers = 0, mtp = 0, embeddings = 0, losses = 0;
    for (const Chunk& c : p->chunks) {
      RC_ASSERT(c.first_layer == layers);
      RC_ASSERT(std::accumulate(c.of_kind.begin(), c.of_kind.end(), 0) == c.layers);
      layers += c.layers;
      mtp += c.mtp;
      embeddings += c.embedding ? 1 : 0;
      losses += c.loss ? 1 : 0;
    }
    RC_ASSERT(layers == m.num_layers());
    RC_ASSERT(mtp == m.mtp_layers);
    RC_ASSERT(embeddings == 1);
    RC_ASSERT(losses == 1);
    Layout printed;
    printed.pp = layout.pp;
    printed.pipeline_layout = print_pipeline_layout(*p);
    const Result<Pipeline> again = build_pipeline(m, printed);
    RC_ASSERT(again.has_value());
    RC_ASSERT(again->chunks == p->chunks);
  }));
}

TEST(LayoutStringProperty, PrintThenParseIsIdentity) {
  EXPECT_TRUE(rc::check([] {
    std::vector<std::string> stages;
    const int blocks = *rc::gen::inRange(1, 6);
    for (int i = 0; i < blocks; ++i) {
      const auto stage =
          *rc::gen::container<std::string>(rc::gen::element('E', 't', 't', 't', 'm', 'L'));
      stages.insert(stages.end(), static_cast<std::size_t>(*rc::gen::inRange(1, 20)), stage);
    }
    const Result<std::vector<std::string>> again =
        parse_pipeline_layout(print_pipeline_layout(stages));
    RC_ASSERT(again.has_value());
    RC_ASSERT(*again == stages);
  }));
}

TEST(InFlightProperty, SumsAreTheWarmUpPlusOne) {
  EXPECT_TRUE(rc::check([] {
    ScheduleShape s;
    s.pp = *rc::gen::inRange(1, 17);
    s.vpp = *rc::gen::inRange(1, 9);
    s.kind = s.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
    s.microbatches = *rc::gen::inRange(1, 200);
    s.group_size = pick({0, s.pp, s.pp + 3});
    s.ep_overlap = *rc::gen::arbitrary<bool>();
    int previous = s.microbatches * s.vpp;
    for (int r = 0; r < s.pp; ++r) {
      int units[8] = {};
      in_flight_units(s, r, units);
      const int sum = std::accumulate(units, units + s.vpp, 0);
      const int next = s.ep_overlap ? 0 : 1;  // merged: it frees as it fills
      RC_ASSERT(sum == std::min(warmup_units(s, r) + next, s.microbatches * s.vpp));
      RC_ASSERT(*std::max_element(units, units + s.vpp) <= s.microbatches);
      RC_ASSERT(sum <= previous);  // later stages never hold more
      previous = sum;
    }
  }));
}

// The forward order visits every (chunk, micro-batch) once, and never a chunk before the one below.
TEST(UnitProperty, OrderIsAPermutation) {
  EXPECT_TRUE(rc::check([] {
    ScheduleShape s;
    s.kind = ScheduleKind::interleaved;
    s.pp = *rc::gen::inRange(1, 6);
    s.vpp = *rc::gen::inRange(1, 6);
    s.microbatches = *rc::gen::inRange(1, 40);
    std::set<std::pair<int, int>> seen;
    for (int i = 0; i < s.microbatches * s.vpp; ++i) {
      const Unit u = forward_unit(s, i);
      RC_ASSERT(u.chunk >= 0 && u.chunk < s.vpp && u.microbatch < s.microbatches);
      RC_ASSERT(u.chunk == 0 || seen.count({u.chunk - 1, u.microbatch}) == 1);
      RC_ASSERT(seen.insert({u.chunk, u.microbatch}).second);
    }
  }));
}

}  // namespace
}  // namespace trifold::layout

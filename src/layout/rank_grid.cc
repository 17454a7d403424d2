// SPDX-License-Identifier: Apache-2.0
#include "layout/rank_grid.h"

// Two grids over the same ranks (megatron.md section 3). Default order tp-cp-ep-dp-pp: dense
// strides tp 1, cp t, dp t*c, pp t*c*d; expert strides etp 1, ep ETP, edp ETP*e, pp ETP*e*EDP. Both
// pp strides are W/p. With tp-cp-ep-pp-dp, pp comes before dp and edp, so the pp strides are t*c
// and ETP*e, which must be equal (else the two grids would disagree about who is in a pipeline).

#include "base/check.h"
#include "base/math.h"

namespace trifold::layout {

namespace {

bool is_expert(Axis axis) { return axis == Axis::etp || axis == Axis::ep || axis == Axis::edp; }

}  // namespace

bool RankGrid::valid(const Layout& layout, int gpus) {
  const std::int64_t dense = std::int64_t{layout.tp} * layout.cp * layout.ulysses_sp;
  const std::int64_t expert = std::int64_t{layout.etp} * layout.ep;
  if (gpus < 1 || layout.pp < 1 || !divides(dense * layout.pp, gpus) ||
      !divides(expert * layout.pp, gpus))
    return false;
  return layout.order == RankOrder::tp_cp_ep_dp_pp || layout.pp == 1 || dense == expert;
}

RankGrid::RankGrid(const Layout& layout, int gpus) : gpus_(gpus) {
  TRIFOLD_CHECK(valid(layout, gpus));
  const int cp = layout.sequence_ranks();
  const int dense = layout.tp * cp;
  const int expert = layout.etp * layout.ep;
  const bool pp_last = layout.order == RankOrder::tp_cp_ep_dp_pp;
  const auto set = [this](Axis axis, int size, int stride) {
    axes_[static_cast<std::size_t>(axis)] = AxisShape{size, stride};
  };
  set(Axis::tp, layout.tp, 1);
  set(Axis::cp, cp, layout.tp);
  set(Axis::dp, layout.dp(gpus), pp_last ? dense : dense * layout.pp);
  set(Axis::pp, layout.pp, pp_last ? gpus / layout.pp : dense);
  set(Axis::etp, layout.etp, 1);
  set(Axis::ep, layout.ep, layout.etp);
  set(Axis::edp, layout.edp(gpus), pp_last ? expert : expert * layout.pp);
}

Coordinates RankGrid::coordinates(RankId rank) const {
  const auto at = [&](Axis a) { return rank.value() / axis(a).stride % axis(a).size; };
  return Coordinates{at(Axis::tp),  at(Axis::cp), at(Axis::dp), at(Axis::pp),
                     at(Axis::etp), at(Axis::ep), at(Axis::edp)};
}

RankId RankGrid::rank(int tp, int cp, int dp, int pp) const {
  return RankId(tp * axis(Axis::tp).stride + cp * axis(Axis::cp).stride +
                dp * axis(Axis::dp).stride + pp * axis(Axis::pp).stride);
}

std::vector<RankId> RankGrid::group(RankId rank, const std::vector<Axis>& axes) const {
  int base = rank.value();
  bool dense = false, expert = false;
  for (Axis a : axes) {
    base -= rank.value() / axis(a).stride % axis(a).size * axis(a).stride;
    expert |= is_expert(a);
    dense |= !is_expert(a) && a != Axis::pp;
  }
  TRIFOLD_CHECK(!(dense && expert));
  std::vector<RankId> members{RankId(base)};
  for (Axis a : axes) {
    const std::size_t inner = members.size();
    for (int i = 1; i < axis(a).size; ++i)
      for (std::size_t j = 0; j < inner; ++j)
        members.emplace_back(members[j].value() + i * axis(a).stride);
  }
  return members;
}

std::vector<std::vector<RankId>> RankGrid::groups(const std::vector<Axis>& axes) const {
  std::vector<std::vector<RankId>> all;
  for (int r = 0; r < gpus_; ++r) {
    bool first = true;
    for (Axis a : axes) first &= r / axis(a).stride % axis(a).size == 0;
    if (first) all.push_back(group(RankId(r), axes));
  }
  return all;
}

}  // namespace trifold::layout

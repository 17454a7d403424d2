// SPDX-License-Identifier: Apache-2.0
#pragma once

// Coordinates of ranks and members of groups, exactly Megatron's (megatron.md section 3).

#include <vector>

#include "base/ids.h"
#include "layout/layout.h"

namespace trifold::layout {

enum class Axis : std::uint8_t { tp, cp, dp, pp, etp, ep, edp };

struct Coordinates {
  int tp = 0, cp = 0, dp = 0, pp = 0;  // cp runs over cp * ulysses_sp
  int etp = 0, ep = 0, edp = 0;
  bool operator==(const Coordinates&) const = default;
};

struct AxisShape {
  int size = 1;
  int stride = 1;
};

class RankGrid {
 public:
  // Do both grids fill `gpus` ranks and agree about pipelines? (GRID-01, GRID-02, GRID-04.)
  static bool valid(const Layout& layout, int gpus);
  RankGrid(const Layout& layout, int gpus);  // CHECKs valid()
  AxisShape axis(Axis axis) const { return axes_[static_cast<std::size_t>(axis)]; }
  int gpus() const { return gpus_; }
  Coordinates coordinates(RankId rank) const;
  RankId rank(int tp, int cp, int dp, int pp) const;
  // The group of `rank` that varies `axes` (all dense or all expert), the first axis fastest.
  std::vector<RankId> group(RankId rank, const std::vector<Axis>& axes) const;
  // Every group over `axes`, in order of their first member.
  std::vector<std::vector<RankId>> groups(const std::vector<Axis>& axes) const;

 private:
  int gpus_;
  AxisShape axes_[7];
};

}  // namespace trifold::layout

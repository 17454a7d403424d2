// SPDX-License-Identifier: Apache-2.0
#pragma once

// Seconds that no variant of a geometry can beat, from sums over blocks that thousands of layouts
// share. The dearer a bound, the tighter: compute, then mean, then staged.

#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "estimate/data_parallel.h"
#include "estimate/lockstep.h"
#include "planner/cuts.h"
#include "planner/prices.h"

namespace trifold::planner {

// Data parallelism of one group of stages, with FP32 and with BF16 moments.
using GroupTails = std::array<cost::DataParallelTerms, 2>;

// What makes one variant of a depth slower than another.
struct Burden {
  int transport = 0, recompute = 0;
  bool bf16_moments = false;
  double host_copy_s = 0;  // offloaded tensors of one layer, one way
};

class Bounds {
 public:
  Bounds(const Query& query, const Space& space, cost::Pricer& pricer);
  // What follows is of this geometry.
  void enter(const Geometry& geometry);

  // Kernels alone on the mean stage, whatever moves the tokens: needs the fewest prices.
  double compute(const std::vector<Depth>& depths);
  // The mean stage under one transport, nothing recomputed.
  double mean(int transport, const Depth& depth);
  std::vector<GroupTails> tails(const CutEntry& cut, const Depth& depth);
  // The slowest group of stages of a cut, whose tails these are. What unequal chunks cost, which
  // alone may shrink with more recompute, is left out where the rest has reached `limit`.
  double staged(const CutEntry& cut, const std::vector<GroupTails>& tails, const Depth& depth,
                const Burden& burden, double limit = INFINITY);

  // Blocks under the transport with the least of them, nothing recomputed: what layers are cut by.
  const BlockTable& reference() { return prices_.table(geometry_, sums().reference, 0); }

 private:
  struct Sums {
    std::vector<BlockSeconds> by_transport;  // over the whole model, nothing recomputed
    int reference = 0;
  };
  const Sums& sums();
  bool merged(int transport) const;
  double tail(const BlockSeconds& sum) const;
  double step(double work, const BlockSeconds& sum, const Depth& depth) const;
  double sends(const Depth& depth) const;
  double group_seconds(const BlockSeconds& all, const BlockSeconds& here, const StageGroup& group,
                       const Depth& depth, bool merged, double paired) const;
  double slowest_group(const CutEntry& cut, const std::vector<GroupTails>& tails,
                       const Depth& depth, const Burden& burden, const BlockTable& table,
                       const std::vector<double>* paired) const;
  void unequal_chunks(const CutEntry& cut, const Depth& depth, const Burden& burden,
                      const BlockTable& table);

  const Query& query_;
  const Space& space_;
  const cost::Pricer& pricer_;
  const cost::Constants& constants_;
  Prices prices_;
  job::Job job_;
  std::array<int, kSlots> counts_;
  layout::Pipeline whole_;  // the model on one stage
  // By the part of a geometry that blocks depend on.
  std::map<Geometry, Sums> sums_;
  std::map<Geometry, BlockSeconds> kernels_;
  // Of the geometry entered.
  Geometry geometry_;
  const Sums* entered_ = nullptr;
  double microbatches_ = 1, send_s_ = 0;
  cost::DataParallelTerms mean_tail_;  // FSDP: of the mean stage
  std::vector<double> tails_;          // FSDP: exposed, by transport; negative: not known yet
  estimate::ChunkTimes chunks_;
  estimate::Lockstep lockstep_;
};

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
#pragma once

// One geometry at a time: a lower bound of its step time, its fastest variant that fits, and the
// simplest one that is about as fast.

#include <cmath>
#include <optional>

#include "estimate/estimate.h"
#include "planner/bounds.h"
#include "planner/tally.h"

namespace trifold::planner {

struct Candidate {
  job::Job job;
  estimate::Estimate estimate;
  Geometry geometry;
  bool launchable = true;  // Megatron can run it
  job::Verdict verdict;    // Megatron's, when it is not
  bool tie = false;        // its interval reaches the best's value
  double fastest_s = 0;    // the fastest variant of the geometry, whatever it takes
  double simulated_s = 0;  // 0: not simulated
  int complexity = 0;
};

// Orders by step time, then by content.
bool faster(const Candidate& a, const Candidate& b);

// Step times that a plan must beat: one that the query's runtime runs, and one that it does not.
struct Limits {
  double ranked = 0, other = 0;
  double either() const { return ranked > other ? ranked : other; }
};

// The least of the variants that the query's runtime may run, and of the others.
struct GeometryBound {
  double ranked = INFINITY, other = INFINITY;
  double least() const { return ranked < other ? ranked : other; }
  bool may_beat(const Limits& limits) const {
    return ranked < limits.either() || other < limits.other;
  }
};

struct Found {
  std::optional<Candidate> ranked, other;
  Tally tally;
  std::int64_t legal = 0, fits = 0, evaluations = 0;
  std::int64_t shortage = INT64_MAX;  // smallest seen
  std::string tightest;               // and by which layout
};

class Explorer {
 public:
  Explorer(const Query& query, const Space& space, const hardware::Profile& profile);

  // Seconds that no variant of the geometry can beat: cheap; dearer and tighter.
  double compute_bound(const Geometry& geometry);
  GeometryBound bound(const Geometry& geometry);
  // `simplest`: instead of the fastest below the limits, the one with the fewest techniques.
  Found explore(const Geometry& geometry, const Limits& limits, bool simplest = false);
  // The cut that every variant of this depth uses; no chunks: there is none.
  const CutEntry& cut(const Geometry& geometry, const Depth& depth);
  estimate::Estimator& estimator() { return estimator_; }

 private:
  struct Variant {
    double bound;
    int depth, transport;
    bool may_launch;  // false: no saving makes it one that the query's runtime runs
  };
  struct DepthState {
    bool possible = false, known = false;
    const CutEntry* cut = nullptr;
    std::vector<GroupTails> tails;  // of each group of stages
    // By dispatcher and SAR: whether any saving may fit; and by saving, each.
    enum Fit : std::int8_t { unknown, may, cannot };
    std::array<Fit, 8> any;
    std::vector<Fit> each;
  };
  void enter(const Geometry& geometry);
  bool depth_exists(const Depth& depth, Fall& fall) const;
  bool may_launch_with(const Transport& transport) const;
  bool launches(const Depth& depth, const Transport& transport);
  void list_variants(Found& found);
  bool states_fit(Found& found);
  DepthState& depth_state(int depth, Found& found);
  bool known_unfit(const DepthState& state, const Variant& variant, int saving) const;
  bool can_fit(DepthState& state, const Variant& variant, int saving, Found& found);
  bool any_can_fit(DepthState& state, const Variant& variant, Found& found);
  bool evaluate_fit(DepthState& state, const Variant& variant, int saving, Found& found);
  double host_copy(int saving);
  Burden burden_of(const Variant& variant, int saving);
  double equal_chunks_bound(const DepthState& state, const Variant& variant, const Burden& burden);
  double saving_bound(const DepthState& state, const Variant& variant, int saving);
  void explore_variant(const Variant& variant, Found& found);
  bool explore_plain(DepthState& state, const Variant& variant, Found& found);
  void explore_savings(DepthState& state, const Variant& variant, Found& found);
  bool try_saving(const Variant& variant, int saving, double bound, Found& found);
  void accept(const Variant& variant, int saving, bool launchable, const job::Verdict& verdict,
              Found& found);
  double limit(bool launchable) const { return launchable ? limits_.ranked : limits_.other; }
  double limit_of(const Variant& variant) const {
    return variant.may_launch ? limits_.either() : limits_.other;
  }
  void note_shortage(Found& found) const;
  bool fits() const { return estimate_.memory.headroom >= query_.min_headroom; }

  const Query& query_;
  const Space& space_;
  estimate::Estimator estimator_;
  Bounds bounds_;
  Cuts cuts_;
  job::Job job_;
  estimate::Estimate estimate_;
  // Of the geometry being explored.
  Geometry geometry_;
  Limits limits_;
  bool simplest_ = false;
  std::vector<Depth> existing_;
  std::vector<Variant> variants_;
  std::vector<DepthState> depths_;
  std::vector<double> host_copy_s_;  // by saving; negative: not known yet
  // Of the variant.
  std::vector<std::pair<double, int>> order_;
  std::vector<double> recompute_bounds_;  // by recompute set and moments; negative: not known yet
};

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0

// Memory: weights, gradients, optimizer and the activations of full recompute are in every saving's
// peak; a merged schedule or graphs only add to a dispatcher's plain peak. Savings only add time,
// and techniques and savings only add rules. So a variant is judged by its bounds first, by memory
// where they let it pass, and timed last.

#include "planner/explore.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trifold::planner {

namespace {

constexpr auto at(int i) { return static_cast<std::size_t>(i); }
constexpr double kRounding = 1 - 1e-9;
constexpr std::int64_t kPaddingSlack = std::int64_t{64} << 20;

std::string layout_words(const job::Job& job) {
  const layout::Layout& l = job.layout;
  return fmt::format("tp {} cp {} pp {} vpp {} ep {} etp {} micro-batch {}{}{}", l.tp,
                     l.sequence_ranks(), l.pp, l.vpp, l.ep, l.etp, job.training.micro_batch_size,
                     l.fsdp ? " FSDP" : "",
                     job.techniques.has(job::Recompute::full) ? ", everything recomputed" : "");
}

// Transports that differ in buffers alone (SMs, graphs, merging) share one.
std::size_t memory_class(const Transport& t) {
  return 2 * static_cast<std::size_t>(t.dispatcher) + (t.beside == Beside::operators ? 1 : 0);
}

}  // namespace

bool faster(const Candidate& a, const Candidate& b) {
  if (a.estimate.step_time_s != b.estimate.step_time_s)
    return a.estimate.step_time_s < b.estimate.step_time_s;
  return job::job_id(a.job) < job::job_id(b.job);
}

Explorer::Explorer(const Query& query, const Space& space, const hardware::Profile& profile)
    : query_(query),
      space_(space),
      estimator_(query.cluster, profile),
      bounds_(query, space, estimator_.pricer()),
      cuts_(query.model),
      job_(base_job(query)) {}

void Explorer::enter(const Geometry& geometry) {
  geometry_ = geometry;
  set_geometry(geometry, job_);
  bounds_.enter(geometry);
  host_copy_s_.assign(space_.savings.size(), -1);
}

bool Explorer::depth_exists(const Depth& depth, Fall& fall) const {
  fall = Fall::depth_single;
  if (geometry_.pp == 1) return depth.kind == layout::ScheduleKind::one_f_one_b;
  fall = Fall::depth_layers;
  return static_cast<std::int64_t>(geometry_.pp) * depth.vpp <= query_.model.num_layers() + 2;
}

bool Explorer::may_launch_with(const Transport& transport) const {
  return query_.runtime == job::Runtime::any || transport.beside != Beside::operators;
}

// What Megatron refuses without a saving it refuses with any.
bool Explorer::launches(const Depth& depth, const Transport& transport) {
  if (query_.runtime == job::Runtime::any) return true;
  if (!may_launch_with(transport)) return false;
  set_variant(query_, depth, transport, MemorySaving{}, job_);
  layout::Pipeline shape;
  shape.pp = geometry_.pp, shape.vpp = depth.vpp;
  return job::check(job_, shape, job::Runtime::megatron).legal();
}

double Explorer::compute_bound(const Geometry& geometry) {
  enter(geometry);
  existing_.clear();
  Fall fall;
  for (const Depth& depth : space_.depths)
    if (depth_exists(depth, fall)) existing_.push_back(depth);
  return bounds_.compute(existing_);
}

GeometryBound Explorer::bound(const Geometry& geometry) {
  enter(geometry);
  GeometryBound least;
  Fall fall;
  for (const Depth& depth : space_.depths) {
    if (!depth_exists(depth, fall)) continue;
    const bool may_launch = launches(depth, Transport{});
    for (int t = 0; t < static_cast<int>(space_.transports.size()); ++t) {
      const bool ranked = may_launch && may_launch_with(space_.transports[at(t)]);
      double& of = ranked ? least.ranked : least.other;
      of = std::min(of, bounds_.mean(t, depth));
    }
  }
  return least;
}

const CutEntry& Explorer::cut(const Geometry& geometry, const Depth& depth) {
  enter(geometry);
  return cuts_.get(geometry.pp, depth, bounds_.reference());
}

// The variants that could beat the limits, the most promising first; the others are counted.
void Explorer::list_variants(Found& found) {
  variants_.clear();
  const double savings = static_cast<double>(space_.savings.size());
  const double per_depth = savings * static_cast<double>(space_.transports.size());
  layout::Pipeline shape;
  shape.pp = geometry_.pp;
  for (int d = 0; d < static_cast<int>(space_.depths.size()); ++d) {
    const Depth& depth = space_.depths[at(d)];
    Fall fall;
    if (!depth_exists(depth, fall)) {
      found.tally.add(fall, per_depth);
      continue;
    }
    set_variant(query_, depth, Transport{}, MemorySaving{}, job_);
    shape.vpp = depth.vpp;
    const job::Verdict verdict = job::check(job_, shape, job::Runtime::any);
    if (!verdict.legal()) {
      found.tally.add(verdict, per_depth);
      continue;
    }
    const bool may_launch = launches(depth, Transport{});
    for (int t = 0; t < static_cast<int>(space_.transports.size()); ++t) {
      const Transport& transport = space_.transports[at(t)];
      Variant variant{bounds_.mean(t, depth), d, t, may_launch};
      if (variant.bound < limit_of(variant) && may_launch)
        variant.may_launch = launches(depth, transport);
      if (variant.bound < limit_of(variant))
        variants_.push_back(variant);
      else
        found.tally.add(Fall::bound_variant, savings);
    }
  }
  std::sort(variants_.begin(), variants_.end(), [](const Variant& a, const Variant& b) {
    if (a.bound != b.bound) return a.bound < b.bound;
    return a.depth != b.depth ? a.depth < b.depth : a.transport < b.transport;
  });
}

void Explorer::note_shortage(Found& found) const {
  const std::int64_t shortage = (query_.min_headroom - estimate_.memory.headroom).value();
  if (shortage >= found.shortage) return;
  found.shortage = shortage;
  found.tightest = layout_words(job_);
}

// The states of all stages over the number of stages are in every cut's fullest stage.
bool Explorer::states_fit(Found& found) {
  MemorySaving least{{job::Recompute::full}, {}, space_.savings.back().bf16_moments};
  const Depth depth;
  const CutEntry& cut = cuts_.get(geometry_.pp, depth, bounds_.reference());
  if (cut.pipeline.chunks.empty()) return true;
  set_variant(query_, depth, Transport{}, least, job_);
  memory::evaluate(job_, cut.pipeline, estimate_.memory);
  std::int64_t states = 0;
  for (const memory::StageMemory& s : estimate_.memory.stages)
    states += (s.weights + s.gradients + s.optimizer).value();
  const std::int64_t room = (estimate_.memory.capacity - query_.min_headroom).value();
  const bool fit = states / geometry_.pp - kPaddingSlack <= room;
  if (!fit) note_shortage(found);
  return fit;
}

Explorer::DepthState& Explorer::depth_state(int d, Found& found) {
  DepthState& state = depths_[at(d)];
  if (state.known) return state;
  state.known = true;
  const Depth& depth = space_.depths[at(d)];
  state.cut = &cuts_.get(geometry_.pp, depth, bounds_.reference());
  state.possible = false;
  if (state.cut->pipeline.chunks.empty()) return state;
  MemorySaving least{{job::Recompute::full}, {}, space_.savings.back().bf16_moments};
  set_variant(query_, depth, Transport{}, least, job_);
  memory::evaluate(job_, state.cut->pipeline, estimate_.memory);
  const std::int64_t room = (estimate_.memory.capacity - query_.min_headroom).value();
  state.possible = true;
  for (const memory::StageMemory& s : estimate_.memory.stages) {
    const double held =
        static_cast<double>((s.weights + s.gradients + s.optimizer + s.activations).value());
    const double grown =
        held * static_cast<double>(s.reserved.value()) / static_cast<double>(s.peak.value());
    state.possible &= grown * kRounding <= static_cast<double>(room);
  }
  if (!state.possible) note_shortage(found);
  state.tails = bounds_.tails(*state.cut, depth);
  state.any.fill(DepthState::unknown);
  state.each.assign(state.any.size() * space_.savings.size(), DepthState::unknown);
  return state;
}

// The dispatcher's plain peak, without its SMs' buffers: what merging, graphs and SMs only add to.
bool Explorer::evaluate_fit(DepthState& state, const Variant& variant, int saving, Found& found) {
  const Transport& transport = space_.transports[at(variant.transport)];
  DepthState::Fit& fit = state.each[memory_class(transport) * space_.savings.size() + at(saving)];
  if (fit == DepthState::unknown) {
    const Transport plain{
        transport.dispatcher, 1,
        transport.beside == Beside::operators ? Beside::operators : Beside::nothing, false};
    set_variant(query_, space_.depths[at(variant.depth)], plain, space_.savings[at(saving)], job_);
    memory::evaluate(job_, state.cut->pipeline, estimate_.memory);
    fit = fits() ? DepthState::may : DepthState::cannot;
    if (fit == DepthState::cannot) note_shortage(found);
  }
  return fit == DepthState::may;
}

bool Explorer::any_can_fit(DepthState& state, const Variant& variant, Found& found) {
  DepthState::Fit& any = state.any[memory_class(space_.transports[at(variant.transport)])];
  if (any == DepthState::unknown) {
    any = DepthState::cannot;
    for (int least : space_.least)
      if (evaluate_fit(state, variant, least, found)) any = DepthState::may;
  }
  return any == DepthState::may;
}

// After any_can_fit: a saving that an unfit one undercuts need not be evaluated.
bool Explorer::known_unfit(const DepthState& state, const Variant& variant, int saving) const {
  const std::size_t first =
      memory_class(space_.transports[at(variant.transport)]) * space_.savings.size();
  if (state.each[first + at(saving)] == DepthState::cannot) return true;
  for (std::size_t k = 0; k < space_.least.size(); ++k)
    if (((space_.undercut_by[at(saving)] >> k) & 1u) &&
        state.each[first + at(space_.least[k])] == DepthState::cannot)
      return true;
  return false;
}

bool Explorer::can_fit(DepthState& state, const Variant& variant, int saving, Found& found) {
  const bool fit =
      !known_unfit(state, variant, saving) && evaluate_fit(state, variant, saving, found);
  if (!fit) found.tally.add(Fall::memory, 1);
  return fit;
}

void Explorer::accept(const Variant& variant, int saving, bool launchable,
                      const job::Verdict& verdict, Found& found) {
  const int points =
      complexity(space_.depths[at(variant.depth)], space_.transports[at(variant.transport)],
                 space_.savings[at(saving)]);
  std::optional<Candidate>& best =
      launchable || query_.runtime == job::Runtime::any ? found.ranked : found.other;
  if (best && simplest_) {
    if (points > best->complexity) return;
    if (points == best->complexity && estimate_.step_time_s >= best->estimate.step_time_s) return;
  }
  if (!best) best.emplace();
  best->job = job_;
  best->estimate = estimate_;
  best->estimate.kernels = estimator_.kernels(job_);
  best->geometry = geometry_;
  best->launchable = launchable;
  best->verdict = verdict;
  best->complexity = points;
  best->fastest_s = estimate_.step_time_s;
  if (simplest_) return;
  (launchable || query_.runtime == job::Runtime::any ? limits_.ranked : limits_.other) =
      estimate_.step_time_s;
}

// Of one layer, the cheapest kind that the model has: what is rebuilt does not travel.
double Explorer::host_copy(int saving) {
  double& known = host_copy_s_[at(saving)];
  if (known >= 0) return known;
  set_variant(query_, Depth{}, Transport{}, space_.savings[at(saving)], job_);
  const auto copy = [&](bool moe) {
    return estimate::host_copy_seconds(job_, estimator_.pricer(), moe);
  };
  known = copy(job_.model.is_moe());
  for (const model::LayerKind& kind : job_.model.layers)
    if (!kind.moe) known = std::min(known, copy(false));
  return known;
}

Burden Explorer::burden_of(const Variant& variant, int saving) {
  const MemorySaving& s = space_.savings[at(saving)];
  return {variant.transport, space_.recompute_of[at(saving)], s.bf16_moments,
          s.offload.empty() ? 0 : host_copy(saving)};
}

// True where it fits and is legal.
bool Explorer::try_saving(const Variant& variant, int saving, double bound, Found& found) {
  const DepthState& state = depths_[at(variant.depth)];
  const CutEntry& cut = *state.cut;
  set_variant(query_, space_.depths[at(variant.depth)], space_.transports[at(variant.transport)],
              space_.savings[at(saving)], job_);
  job::Verdict verdict = job::check(job_, cut.pipeline, job::Runtime::any);
  if (!verdict.legal()) {
    found.tally.add(verdict, 1);
    return false;
  }
  verdict = job::check(job_, cut.pipeline, job::Runtime::megatron);
  const bool launchable = verdict.legal(), any = query_.runtime == job::Runtime::any;
  const double most = limit(launchable || any);
  if (bound >= most || bounds_.staged(cut, state.tails, space_.depths[at(variant.depth)],
                                      burden_of(variant, saving), most) >= most) {
    found.tally.add(Fall::bound_saving, 1);
    return false;
  }
  set_variant(query_, space_.depths[at(variant.depth)], space_.transports[at(variant.transport)],
              space_.savings[at(saving)], job_);
  memory::evaluate(job_, cut.pipeline, estimate_.memory);
  if (!fits()) {
    note_shortage(found);
    found.tally.add(Fall::memory, 1);
    return false;
  }
  ++found.fits, ++found.evaluations;
  found.tally.add(Fall::slower, 1);
  job_.layout.pipeline_layout = cut.text;
  estimator_.evaluate_time(job_, cut.pipeline, estimate_);
  if (estimate_.step_time_s < most) accept(variant, saving, launchable, verdict, found);
  job_.layout.pipeline_layout.clear();
  return true;
}

double Explorer::equal_chunks_bound(const DepthState& state, const Variant& variant,
                                    const Burden& burden) {
  return bounds_.staged(*state.cut, state.tails, space_.depths[at(variant.depth)], burden, 0);
}

// As if chunks were equal; infinite where a smaller set of recomputed modules is too slow already.
double Explorer::saving_bound(const DepthState& state, const Variant& variant, int saving) {
  const MemorySaving& s = space_.savings[at(saving)];
  const int recompute = space_.recompute_of[at(saving)];
  const auto known = [&](int r) -> double& {
    return recompute_bounds_[at(2 * r + (s.bf16_moments ? 1 : 0))];
  };
  double& bound = known(recompute);
  if (bound < 0) {
    const double limit = limit_of(variant);
    for (int r = 0; r < recompute && bound < 0; ++r)
      if (((space_.recompute_over[at(recompute)] >> r) & 1u) && known(r) >= limit) bound = INFINITY;
    if (bound < 0)
      bound = equal_chunks_bound(state, variant, {variant.transport, recompute, s.bf16_moments});
  }
  if (s.offload.empty() || bound >= limit_of(variant)) return bound;
  return equal_chunks_bound(state, variant, burden_of(variant, saving));
}

// Nothing rebuilt or moved: where that fits, saving memory only costs time. True: it does.
bool Explorer::explore_plain(DepthState& state, const Variant& variant, Found& found) {
  bool enough = false;
  double tried = 0;
  for (int s = 0; s < static_cast<int>(space_.savings.size()); ++s) {
    const MemorySaving& saving = space_.savings[at(s)];
    if (!saving.nothing_rebuilt()) continue;
    ++tried;
    if (simplest_ && enough)
      found.tally.add(Fall::headroom_not_short, 1);
    else if (can_fit(state, variant, s, found))
      enough |= try_saving(variant, s, saving_bound(state, variant, s), found) &&
                !(simplest_ && saving.bf16_moments);
  }
  if (enough)
    found.tally.add(Fall::headroom_not_short, static_cast<double>(space_.savings.size()) - tried);
  return enough;
}

void Explorer::explore_savings(DepthState& state, const Variant& variant, Found& found) {
  order_.clear();
  for (int s = 0; s < static_cast<int>(space_.savings.size()); ++s) {
    if (space_.savings[at(s)].nothing_rebuilt()) continue;
    if (known_unfit(state, variant, s)) {
      found.tally.add(Fall::memory, 1);
      continue;
    }
    const double bound = saving_bound(state, variant, s);
    if (bound < limit_of(variant))
      order_.emplace_back(bound, s);
    else
      found.tally.add(Fall::bound_saving, 1);
  }
  std::sort(order_.begin(), order_.end());
  for (const auto& [bound, s] : order_) {
    if (bound >= limit_of(variant))
      found.tally.add(Fall::bound_saving, 1);
    else if (can_fit(state, variant, s, found))
      try_saving(variant, s, bound, found);
  }
}

void Explorer::explore_variant(const Variant& variant, Found& found) {
  const double savings = static_cast<double>(space_.savings.size());
  DepthState& state = depth_state(variant.depth, found);
  if (!state.possible) {
    found.tally.add(state.cut->pipeline.chunks.empty() ? Fall::no_cut : Fall::least_memory,
                    savings);
    return;
  }
  const Burden plain{variant.transport, 0, space_.savings.back().bf16_moments};
  if (equal_chunks_bound(state, variant, plain) >= limit_of(variant)) {
    found.tally.add(Fall::bound_variant, savings);
    return;
  }
  found.legal += static_cast<std::int64_t>(space_.savings.size());
  if (!any_can_fit(state, variant, found)) {
    found.tally.add(Fall::memory, savings);
    return;
  }
  recompute_bounds_.assign(2 * space_.recomputes.size(), -1);
  if (!explore_plain(state, variant, found)) explore_savings(state, variant, found);
}

Found Explorer::explore(const Geometry& geometry, const Limits& limits, bool simplest) {
  Found found;
  enter(geometry);
  limits_ = limits;
  simplest_ = simplest;
  list_variants(found);
  if (variants_.empty()) return found;
  if (!states_fit(found)) {
    found.tally.add(Fall::states, static_cast<double>(variants_.size() * space_.savings.size()));
    return found;
  }
  depths_.resize(space_.depths.size());
  for (DepthState& state : depths_) state.known = false;
  for (const Variant& variant : variants_) {
    if (variant.bound >= limit_of(variant))
      found.tally.add(Fall::bound_variant, static_cast<double>(space_.savings.size()));
    else
      explore_variant(variant, found);
  }
  return found;
}

}  // namespace trifold::planner

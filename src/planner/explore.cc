// SPDX-License-Identifier: Apache-2.0

// Lower bounds of a step:
//   mean     the stage that is done last takes at least the mean over the stages of what stages
//            take: m x (sum of all blocks)/pp + the others' chunks + sends + the fixed part of the
//            optimizer; with FSDP its traffic too (convex in seconds moved and covered; 0.8 of the
//            mean stage's, because curves of measured collectives bend). Needs no cut.
//   staged   the estimate itself, as a maximum over the stages of the cut, but for waiting on
//            offload, from sums that thousands of layouts share.
// Memory: weights, gradients, optimizer and the activations of full recompute are in every saving's
// peak; a merged schedule or graphs only add to a dispatcher's plain peak.
// Savings only add time: recompute adds kernels to a stage's backward, which adds at least as much
// to each stage's end (m >= 1 micro-batches) as it can hide of data-parallel traffic.

#include "planner/explore.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace trifold::planner {

namespace {

constexpr auto at(int i) { return static_cast<std::size_t>(i); }
constexpr double kRounding = 1 - 1e-9;  // bounds sum in another order than estimates
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
      constants_(estimator_.pricer().constants()),
      prices_(query, space, estimator_.pricer()),
      cuts_(query.model),
      job_(base_job(query)),
      counts_(whole_model(query.model)) {
  TRIFOLD_CHECK(layout::cut_pipeline(query.model, layout::Layout{}, whole_).ok());
}

void Explorer::enter(const Geometry& geometry) {
  geometry_ = geometry;
  set_geometry(geometry, job_);
  set_variant(query_, Depth{}, Transport{}, MemorySaving{}, job_);
  microbatches_ = static_cast<double>(job_.microbatches());
  // One message, from the exposed time of an interleaved-free pipeline: 2 m + 2 (pp - 1) of them.
  send_s_ = estimate::pipeline_sends(job_, estimator_.pricer()).exposed /
            (2 * microbatches_ + 2 * (geometry.pp - 1));
  if (!geometry.fsdp) return;
  cost::StageParameters mean = cost::stage_parameters(job_, whole_, 0);
  mean.dense /= geometry.pp, mean.experts /= geometry.pp;
  mean_tail_ = cost::data_parallel_terms(job_, mean, estimator_.pricer());
}

const Explorer::Sums& Explorer::sums() {
  Geometry key = geometry_;
  key.pp = 1, key.fsdp = false, key.order = {};
  const auto found = sums_.find(key);
  if (found != sums_.end()) return found->second;
  Sums sums;
  double least = INFINITY;
  for (int t = 0; t < static_cast<int>(space_.transports.size()); ++t) {
    const BlockTable& table = prices_.table(geometry_, t, 0);
    BlockSeconds sum = sum_of(table, counts_);
    if (sum.forward + sum.backward < least) least = sum.forward + sum.backward, sums.reference = t;
    // A merged pair may be slower than its parts where the host binds: keep the lesser, block by
    // block.
    sum.pair = 0;
    for (std::size_t i = 0; i < table.size(); ++i)
      sum.pair += counts_[i] * std::min(table[i].pair, table[i].forward + table[i].backward);
    sums.by_transport.push_back(sum);
  }
  return sums_.emplace(key, std::move(sums)).first->second;
}

double Explorer::waits(layout::ScheduleKind kind, double f, double b, double w) const {
  using K = layout::ScheduleKind;
  switch (kind) {
    case K::one_f_one_b:
    case K::interleaved:
      return f + b;
    case K::zb_h1:
      return std::max(0.0, f + b - 2 * w);
    case K::zb_h2:
      return std::max(0.0, f + b - 3 * w);
    case K::zb_v:
      return std::max(0.0, (f + b - 3 * w) / 2);
    case K::dualpipe:
    case K::dualpipe_v:
      return std::max(0.0, (f + b) / 2 + (b - 3 * w) / 2);
  }
  return 0;
}

double Explorer::sends(const Depth& depth) const {
  if (geometry_.pp == 1) return 0;
  const double steady = 2 * microbatches_ * depth.vpp * send_s_;
  const double share = depth.vpp > 1 ? constants_.p2p_exposed : 1.0;
  return steady * share + 2 * (geometry_.pp - 1) * send_s_;
}

double Explorer::mean_bound(const BlockSeconds& sum, const Depth& depth, bool merged) const {
  const double p = geometry_.pp, m = microbatches_, v = depth.vpp;
  const double both = sum.forward + sum.backward;
  double work = m * both / p;
  if (merged) {
    const layout::ScheduleShape shape{
        depth.kind, geometry_.pp, depth.vpp, static_cast<int>(job_.microbatches()), 0, true};
    const double units = m * v;
    const double alone = std::min(
        units, static_cast<double>(std::max(1, layout::warmup_units(shape, geometry_.pp - 1))));
    work = (sum.pair * m * (units - alone) / units + both * m * alone / units) / p;
  }
  if (geometry_.fsdp) {
    cost::DataParallelTerms tail = mean_tail_;
    tail.reduce_s *= 0.8, tail.gather_s *= 0.8;
    work +=
        estimate::data_parallel_exposed(job_, tail, sum.forward / p, sum.backward / p, constants_);
  }
  const double others = (p - 1) / p / v;
  const double wait =
      waits(depth.kind, others * sum.forward, others * sum.backward, others * sum.wgrad);
  return (work + wait + sends(depth) + constants_.optimizer_fixed_s) * kRounding;
}

double Explorer::staged_bound(const DepthState& state, const BlockTable& table, const Depth& depth,
                              bool merged, bool bf16_moments) const {
  const double m = microbatches_, v = depth.vpp;
  const layout::ScheduleShape shape{
      depth.kind, geometry_.pp, depth.vpp, static_cast<int>(job_.microbatches()), 0, merged};
  const BlockSeconds all = sum_of(table, counts_);
  double most = 0;
  for (std::size_t g = 0; g < state.cut->groups.size(); ++g) {
    const StageGroup& group = state.cut->groups[g];
    const BlockSeconds s = sum_of(table, group.blocks);
    const double both = s.forward + s.backward;
    double work = m * both;
    if (merged) {
      // Linear in the units that run un-merged: the first or the last stage of the group is worst.
      work = 0;
      const double units = m * v;
      for (int stage : {group.first, group.first + group.count - 1}) {
        const double alone =
            std::min(units, static_cast<double>(std::max(1, layout::warmup_units(shape, stage))));
        // Layers without a partner (estimate/lockstep.h) only add time, unless the host binds.
        work = std::max(work, (std::min(s.pair, both) * (units - alone) + both * alone) / v);
      }
    }
    if (geometry_.pp > 1)
      work += waits(depth.kind, (all.forward - s.forward) / v, (all.backward - s.backward) / v,
                    (all.wgrad - s.wgrad) / v);
    const cost::DataParallelTerms& tail = state.tails[g][bf16_moments ? 1 : 0];
    work += tail.optimizer_s + tail.host_s +
            estimate::data_parallel_exposed(job_, tail, s.forward, s.backward, constants_);
    most = std::max(most, work);
  }
  return (most + sends(depth)) * kRounding;
}

bool Explorer::depth_exists(const Depth& depth, Fall& fall) const {
  fall = Fall::depth_single;
  if (geometry_.pp == 1) return depth.kind == layout::ScheduleKind::one_f_one_b;
  fall = Fall::depth_layers;
  return static_cast<std::int64_t>(geometry_.pp) * depth.vpp <= query_.model.num_layers() + 2;
}

double Explorer::lower_bound(const Geometry& geometry) {
  enter(geometry);
  const Sums& of = sums();
  double least = INFINITY;
  Fall fall;
  for (const Depth& depth : space_.depths) {
    if (!depth_exists(depth, fall)) continue;
    for (std::size_t t = 0; t < space_.transports.size(); ++t) {
      const bool merged = space_.transports[t].beside == Beside::merged;
      if (merged && geometry.pp > 1 && depth.vpp == 1) continue;  // OVL-01
      least = std::min(least, mean_bound(of.by_transport[t], depth, merged));
    }
  }
  return least;
}

const CutEntry& Explorer::cut(const Geometry& geometry, const Depth& depth) {
  enter(geometry);
  const int reference = sums().reference;
  return cuts_.get(geometry.pp, depth, prices_.table(geometry_, reference, 0));
}

// Techniques and savings only add rules: what Megatron refuses without them it refuses with them.
bool Explorer::launches(const Depth& depth, const Transport& transport) {
  if (query_.runtime == job::Runtime::any) return true;
  set_variant(query_, depth, transport, MemorySaving{}, job_);
  layout::Pipeline shape;
  shape.pp = geometry_.pp, shape.vpp = depth.vpp;
  return job::check(job_, shape, job::Runtime::megatron).legal();
}

// The variants that could beat the limits, the most promising first; the others are counted.
void Explorer::list_variants(Found& found) {
  variants_.clear();
  const Sums& of = sums();
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
      const bool merged = transport.beside == Beside::merged;
      Variant variant{mean_bound(of.by_transport[at(t)], depth, merged), d, t, may_launch};
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
  const CutEntry& cut =
      cuts_.get(geometry_.pp, depth, prices_.table(geometry_, sums().reference, 0));
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
  state.cut = &cuts_.get(geometry_.pp, depth, prices_.table(geometry_, sums().reference, 0));
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
  state.tails.clear();
  for (const StageGroup& group : state.cut->groups) {
    const cost::StageParameters held =
        cost::stage_parameters(job_, state.cut->pipeline, group.first);
    auto& tail = state.tails.emplace_back();
    for (bool bf16 : {false, true}) {
      set_variant(query_, depth, Transport{}, MemorySaving{{}, {}, bf16}, job_);
      tail[bf16 ? 1 : 0] = cost::data_parallel_terms(job_, held, estimator_.pricer());
    }
  }
  state.any.fill(DepthState::unknown);
  state.each.assign(state.any.size() * space_.savings.size(), DepthState::unknown);
  return state;
}

// The dispatcher's plain peak, without its SMs' buffers: what merging, graphs and SMs only add to.
bool Explorer::evaluate_fit(DepthState& state, int d, int t, int saving, Found& found) {
  const Transport& transport = space_.transports[at(t)];
  DepthState::Fit& fit = state.each[memory_class(transport) * space_.savings.size() + at(saving)];
  if (fit == DepthState::unknown) {
    const Transport plain{
        transport.dispatcher, 1,
        transport.beside == Beside::operators ? Beside::operators : Beside::nothing, false};
    set_variant(query_, space_.depths[at(d)], plain, space_.savings[at(saving)], job_);
    memory::evaluate(job_, state.cut->pipeline, estimate_.memory);
    fit = fits() ? DepthState::may : DepthState::cannot;
    if (fit == DepthState::cannot) note_shortage(found);
  }
  return fit == DepthState::may;
}

bool Explorer::any_can_fit(DepthState& state, int d, int t, Found& found) {
  DepthState::Fit& any = state.any[memory_class(space_.transports[at(t)])];
  if (any == DepthState::unknown) {
    any = DepthState::cannot;
    for (int least : space_.least)
      if (evaluate_fit(state, d, t, least, found)) any = DepthState::may;
  }
  return any == DepthState::may;
}

// After any_can_fit: a saving that an unfit one undercuts need not be evaluated.
bool Explorer::can_fit(DepthState& state, int d, int t, int saving, Found& found) {
  const std::size_t first = memory_class(space_.transports[at(t)]) * space_.savings.size();
  for (std::size_t k = 0; k < space_.least.size(); ++k)
    if (((space_.undercut_by[at(saving)] >> k) & 1u) &&
        state.each[first + at(space_.least[k])] == DepthState::cannot)
      return false;
  return evaluate_fit(state, d, t, saving, found);
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
  best->geometry = geometry_;
  best->launchable = launchable;
  best->verdict = verdict;
  best->complexity = points;
  best->fastest_s = estimate_.step_time_s;
  if (simplest_) return;
  (launchable || query_.runtime == job::Runtime::any ? limits_.ranked : limits_.other) =
      estimate_.step_time_s;
}

// True where it fits and is legal.
bool Explorer::try_saving(const Variant& variant, int saving, double bound, Found& found) {
  const CutEntry& cut = *depths_[at(variant.depth)].cut;
  set_variant(query_, space_.depths[at(variant.depth)], space_.transports[at(variant.transport)],
              space_.savings[at(saving)], job_);
  job::Verdict verdict = job::check(job_, cut.pipeline, job::Runtime::any);
  if (!verdict.legal()) {
    found.tally.add(verdict, 1);
    return false;
  }
  verdict = job::check(job_, cut.pipeline, job::Runtime::megatron);
  const bool launchable = verdict.legal(), any = query_.runtime == job::Runtime::any;
  if (bound >= limit(launchable || any)) {
    found.tally.add(Fall::bound_saving, 1);
    return false;
  }
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
  if (estimate_.step_time_s < limit(launchable || any))
    accept(variant, saving, launchable, verdict, found);
  job_.layout.pipeline_layout.clear();
  return true;
}

void Explorer::explore_variant(const Variant& variant, Found& found) {
  const double savings = static_cast<double>(space_.savings.size());
  DepthState& state = depth_state(variant.depth, found);
  if (!state.possible) {
    found.tally.add(state.cut->pipeline.chunks.empty() ? Fall::no_cut : Fall::least_memory,
                    savings);
    return;
  }
  const Depth& depth = space_.depths[at(variant.depth)];
  const bool merged = space_.transports[at(variant.transport)].beside == Beside::merged;
  const auto may_fit = [&](int s) {
    const bool fit = can_fit(state, variant.depth, variant.transport, s, found);
    if (!fit) found.tally.add(Fall::memory, 1);
    return fit;
  };
  const auto bound_of = [&](int recompute, bool bf16) {
    set_variant(query_, depth, Transport{}, MemorySaving{}, job_);
    return staged_bound(state, prices_.table(geometry_, variant.transport, recompute), depth,
                        merged, bf16);
  };
  const bool lightest = space_.savings.back().bf16_moments;
  const double plain = bound_of(0, lightest);
  if (plain >= limit_of(variant)) {
    found.tally.add(Fall::bound_variant, savings);
    return;
  }
  found.legal += static_cast<std::int64_t>(space_.savings.size());
  if (!any_can_fit(state, variant.depth, variant.transport, found)) {
    found.tally.add(Fall::memory, savings);
    return;
  }
  // Nothing rebuilt or moved: where that fits, saving memory only costs time.
  bool enough = false;
  int tried = 0;
  for (int s = 0; s < static_cast<int>(space_.savings.size()); ++s) {
    if (!space_.savings[at(s)].nothing_rebuilt()) continue;
    ++tried;
    if (simplest_ && enough) {
      found.tally.add(Fall::headroom_not_short, 1);
      continue;
    }
    if (!may_fit(s)) continue;
    enough |= try_saving(variant, s, bound_of(0, space_.savings[at(s)].bf16_moments), found) &&
              !(simplest_ && space_.savings[at(s)].bf16_moments);
  }
  if (enough) {
    found.tally.add(Fall::headroom_not_short, savings - tried);
    return;
  }
  recompute_bounds_.assign(2 * space_.recomputes.size(), -1);
  order_.clear();
  for (int s = 0; s < static_cast<int>(space_.savings.size()); ++s) {
    const MemorySaving& saving = space_.savings[at(s)];
    if (saving.nothing_rebuilt()) continue;
    const int recompute = space_.recompute_of[at(s)];
    double& bound = recompute_bounds_[at(2 * recompute + (saving.bf16_moments ? 1 : 0))];
    if (bound < 0) bound = bound_of(recompute, saving.bf16_moments);
    order_.emplace_back(bound, s);
  }
  std::sort(order_.begin(), order_.end());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (order_[i].first >= limit_of(variant)) {
      found.tally.add(Fall::bound_saving, static_cast<double>(order_.size() - i));
      return;
    }
    if (!may_fit(order_[i].second)) continue;
    try_saving(variant, order_[i].second, order_[i].first, found);
  }
}

Found Explorer::explore(const Geometry& geometry, const Limits& limits, bool simplest) {
  Found found;
  enter(geometry);
  limits_ = limits;
  simplest_ = simplest;
  if (!states_fit(found)) {
    found.tally.add(Fall::states, space_.variants());
    return found;
  }
  depths_.resize(space_.depths.size());
  for (DepthState& state : depths_) state.known = false;
  list_variants(found);
  for (std::size_t i = 0; i < variants_.size(); ++i) {
    if (variants_[i].bound >= limit_of(variants_[i]))
      found.tally.add(Fall::bound_variant, static_cast<double>(space_.savings.size()));
    else
      explore_variant(variants_[i], found);
  }
  return found;
}

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0

// Geometries are visited in order of their lower bound, in batches of fixed sizes whose members are
// independent; one whose bound exceeds the slowest listed plan and its own class's best cannot
// enter either list and is skipped. The bound is computed when a cheaper one, in whose order they
// wait, lets a geometry come next. Limits move between batches alone, and a geometry always belongs
// to the same blocks' owner: the same bytes for any number of threads.

#include "planner/search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "base/math.h"
#include "hardware/fabric.h"

namespace trifold::planner {

namespace {

constexpr std::size_t kFirstBatch = 8, kLargestBatch = 256, kBoundBatch = 64, kOthers = 3;

struct Scored {
  Geometry geometry;
  double compute = 0;        // the cheaper bound
  std::uint32_t blocks = 0;  // which blocks it shares with others; decides the thread
  GeometryBound bound;
};

GeometryClass class_of(const Query& query, const Geometry& g) {
  if (!query.model.is_moe()) return GeometryClass::dense;
  if (g.ulysses_sp > 1) return GeometryClass::sp_ep;
  if (g.fsdp) return GeometryClass::fsdp_ep;
  const int dp = query.gpus / (g.tp * g.ulysses_sp * g.cp * g.pp);
  return g.etp == g.tp && divides(g.ep, dp) ? GeometryClass::classic_ep
                                            : GeometryClass::parallel_folding;
}

// Sizes that divide and rules that the geometry alone breaks; what falls is counted.
class Geometries {
 public:
  Geometries(const Query& query, const Space& space, Tally& tally)
      : query_(query), space_(space), tally_(tally), job_(base_job(query)) {
    set_variant(query, Depth{}, Transport{}, MemorySaving{}, job_);
  }

  std::vector<Scored> list() {
    const Space& s = space_;
    const double experts = static_cast<double>(s.ep.size() * s.etp.size());
    for (int tp : s.tp)
      for (int sp : s.ulysses_sp)
        for (int cp : s.cp)
          for (int pp : s.pp) {
            const std::int64_t size = std::int64_t{tp} * sp * cp * pp;
            const bool twice = tp > 1 && sp > 1;
            if (twice || !divides(size, query_.gpus))
              fall(twice ? Fall::heads_twice : Fall::grid,
                   experts * static_cast<double>(s.micro_batch_size.size()) * placements());
            else
              add_experts({tp, sp, cp, pp, 1, 1, 1, false, {}});
          }
    return std::move(list_);
  }

 private:
  double placements() const {
    return static_cast<double>(space_.fsdp.size() * space_.orders.size());
  }
  void fall(Fall why, double points) { tally_.add(why, points * space_.variants()); }

  void add_experts(Geometry g) {
    for (int ep : space_.ep)
      for (int etp : space_.etp) {
        g.ep = ep, g.etp = etp;
        if (!divides(std::int64_t{ep} * etp * g.pp, query_.gpus)) {
          fall(Fall::expert_grid,
               static_cast<double>(space_.micro_batch_size.size()) * placements());
          continue;
        }
        const std::int64_t dp = query_.gpus / (g.tp * g.ulysses_sp * g.cp * g.pp);
        for (int size : space_.micro_batch_size) {
          g.micro_batch_size = size;
          if (divides(dp * size, query_.training.global_batch_size))
            add_placements(g);
          else
            fall(Fall::batch, placements());
        }
      }
  }

  void add_placements(Geometry g) {
    g.fsdp = false, g.order = {};
    set_geometry(g, job_);
    layout::Pipeline shape;
    shape.pp = g.pp;
    const job::Verdict verdict = job::check(job_, shape, job::Runtime::any);
    if (!verdict.legal()) {
      tally_.add(verdict, placements() * space_.variants());
      return;
    }
    const auto id = static_cast<std::uint32_t>(
        blocks_
            .emplace(std::array{g.tp, g.ulysses_sp, g.cp, g.ep, g.etp, g.micro_batch_size},
                     blocks_.size())
            .first->second);
    for (layout::RankOrder order : space_.orders) {
      g.order = order;
      if (const Fall* why = order_falls(g)) {
        fall(*why, static_cast<double>(space_.fsdp.size()));
        continue;
      }
      for (bool fsdp : space_.fsdp) {
        g.fsdp = fsdp;
        list_.push_back({g, 0, id, {}});
      }
    }
  }

  // The second order is worth a look where it alone keeps the pipeline inside a domain.
  const Fall* order_falls(const Geometry& g) const {
    static constexpr Fall single = Fall::order_single, grids = Fall::order_grids,
                          no_gain = Fall::order_no_gain;
    if (g.order == layout::RankOrder::tp_cp_ep_dp_pp) return nullptr;
    if (g.pp == 1) return &single;
    const int dense = g.tp * g.ulysses_sp * g.cp;
    if (dense != g.ep * g.etp) return &grids;
    const auto crosses = [&](int stride) {
      return hardware::span_of(query_.cluster, 0, g.pp, stride).crosses_domains();
    };
    return crosses(dense) == crosses(query_.gpus / g.pp) ? &no_gain : nullptr;
  }

  const Query& query_;
  const Space& space_;
  Tally& tally_;
  job::Job job_;
  std::map<std::array<int, 6>, std::size_t> blocks_;
  std::vector<Scored> list_;
};

class Search {
 public:
  Search(const Query& query, const hardware::Profile& profile)
      : query_(query), space_(make_space(query)), probe_(base_job(query)) {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t threads = query.threads > 0 ? static_cast<std::size_t>(query.threads) : cores;
    for (std::size_t t = 0; t < threads; ++t)
      explorers_.push_back(std::make_unique<Explorer>(query, space_, profile));
  }

  PlanResult run() {
    result_.space = space_.size();
    score();
    visit();
    simplify();
    finish();
    return std::move(result_);
  }

 private:
  // Each thread takes the members whose blocks it owns.
  template <class Work>
  void parallel(const std::vector<Scored*>& members, const Work& work) {
    const auto share = [&](std::size_t t) {
      for (std::size_t i = 0; i < members.size(); ++i)
        if (members[i]->blocks % explorers_.size() == t) work(*explorers_[t], i);
    };
    std::vector<std::thread> pool;
    for (std::size_t t = 1; t < explorers_.size(); ++t) pool.emplace_back(share, t);
    share(0);
    for (std::thread& thread : pool) thread.join();
  }

  void score() {
    scored_ = Geometries(query_, space_, tally_).list();
    std::vector<Scored*> members;
    for (Scored& s : scored_) members.push_back(&s);
    parallel(members, [&](Explorer& explorer, std::size_t i) {
      members[i]->compute = explorer.compute_bound(members[i]->geometry);
    });
    std::sort(scored_.begin(), scored_.end(), [](const Scored& a, const Scored& b) {
      return a.compute != b.compute ? a.compute < b.compute : a.geometry < b.geometry;
    });
  }

  // The best last.
  static bool later(const Scored* a, const Scored* b) {
    const double x = a->bound.least(), y = b->bound.least();
    return x != y ? x > y : a->geometry > b->geometry;
  }

  // Bounds the next geometries that wait, until none of them could come before the best bounded
  // one.
  void bound_next() {
    while (waiting_ < scored_.size() &&
           (bounded_.empty() || scored_[waiting_].compute < bounded_.front()->bound.least())) {
      std::vector<Scored*> members;
      for (; waiting_ < scored_.size() && members.size() < kBoundBatch; ++waiting_) {
        Scored& s = scored_[waiting_];
        if (s.compute < limits_of(s.geometry).either())
          members.push_back(&s);
        else
          tally_.add(Fall::bound_geometry, space_.variants());
      }
      parallel(members, [&](Explorer& explorer, std::size_t i) {
        members[i]->bound = explorer.bound(members[i]->geometry);
      });
      for (Scored* s : members) {
        bounded_.push_back(s);
        std::push_heap(bounded_.begin(), bounded_.end(), later);
      }
    }
  }

  // The next geometries that may change a list, in order of their bounds.
  std::vector<Scored*> next_batch(std::size_t size) {
    std::vector<Scored*> members;
    for (bound_next(); !bounded_.empty() && members.size() < size; bound_next()) {
      std::pop_heap(bounded_.begin(), bounded_.end(), later);
      Scored* s = bounded_.back();
      bounded_.pop_back();
      if (s->bound.may_beat(limits_of(s->geometry)))
        members.push_back(s);
      else
        tally_.add(Fall::bound_geometry, space_.variants());
    }
    return members;
  }

  void visit() {
    std::size_t size = kFirstBatch;
    for (;;) {
      const std::vector<Scored*> members = next_batch(size);
      if (members.empty()) return;
      std::vector<Limits> limits;
      for (const Scored* s : members) limits.push_back(limits_of(s->geometry));
      std::vector<Found> found(members.size());
      parallel(members, [&](Explorer& explorer, std::size_t i) {
        found[i] = explorer.explore(members[i]->geometry, limits[i]);
      });
      for (Found& f : found) merge(std::move(f));
      size = std::min(2 * size, kLargestBatch);
      const bool enough =
          (query_.max_evaluations > 0 && result_.evaluations >= query_.max_evaluations) ||
          (query_.first_that_fits && !result_.plans.empty());
      if (enough && (waiting_ < scored_.size() || !bounded_.empty())) {
        result_.complete = false;
        return;
      }
    }
  }

  // Step times above these change no list.
  Limits limits_of(const Geometry& g) {
    const auto last = [](const std::vector<Candidate>& list, std::size_t room) {
      return list.size() < room ? INFINITY : list.back().estimate.step_time_s;
    };
    Limits limits;
    const double best =
        result_.plans.empty() ? INFINITY : result_.plans.front().estimate.step_time_s;
    limits.ranked = last(result_.plans, static_cast<std::size_t>(query_.best));
    limits.other = query_.runtime == job::Runtime::any || !query_.side_by_side
                       ? 0
                       : std::min(best, last(result_.not_launchable, kOthers));
    if (!query_.side_by_side) return limits;
    const GeometryClass kind = class_of(query_, g);
    const auto at = result_.geometries.find(kind);
    const double class_best =
        at == result_.geometries.end() ? INFINITY : at->second.estimate.step_time_s;
    const bool others = only_others(g);
    double& limit = others ? limits.other : limits.ranked;
    limit = std::max(limit, class_best);
    if (others) limits.ranked = 0;
    return limits;
  }

  // No variant of the geometry is one that the query's runtime runs.
  bool only_others(const Geometry& g) {
    if (g.ulysses_sp == 1 || query_.runtime == job::Runtime::any) return false;
    set_geometry(g, probe_);
    return !job::megatron_shares_sequence(probe_);
  }

  // One entry a geometry, whatever its rank order.
  static void insert(std::vector<Candidate>& list, Candidate candidate, std::size_t room) {
    Geometry key = candidate.geometry;
    const auto same = std::find_if(list.begin(), list.end(), [&](const Candidate& c) {
      key.order = c.geometry.order;
      return c.geometry == key;
    });
    if (same != list.end()) {
      if (!faster(candidate, *same)) return;
      list.erase(same);
    }
    list.insert(std::upper_bound(list.begin(), list.end(), candidate, faster),
                std::move(candidate));
    if (list.size() > room) list.pop_back();
  }

  void merge(Found&& found) {
    tally_.merge(found.tally);
    result_.legal += found.legal;
    result_.fits += found.fits;
    result_.evaluations += found.evaluations;
    if (found.shortage != INT64_MAX &&
        (result_.tightest_layout.empty() || found.shortage < result_.smallest_shortage_bytes)) {
      result_.smallest_shortage_bytes = found.shortage;
      result_.tightest_layout = found.tightest;
    }
    if (found.ranked) {
      note_class(*found.ranked);
      insert(result_.plans, std::move(*found.ranked), static_cast<std::size_t>(query_.best));
    }
    if (found.other) {
      if (only_others(found.other->geometry)) note_class(*found.other);
      insert(result_.not_launchable, std::move(*found.other), kOthers);
    }
  }

  void note_class(const Candidate& candidate) {
    const GeometryClass kind = class_of(query_, candidate.geometry);
    const auto at = result_.geometries.find(kind);
    if (at == result_.geometries.end())
      result_.geometries.emplace(kind, candidate);
    else if (faster(candidate, at->second))
      at->second = candidate;
  }

  // For every listed geometry, the simplest variant that is about as fast as its fastest.
  void simplify() {
    if (!result_.plans.empty()) result_.fastest_s = result_.plans.front().estimate.step_time_s;
    if (query_.simplicity <= 0 || query_.first_that_fits) return;
    std::vector<Candidate*> listed;
    for (Candidate& c : result_.plans) listed.push_back(&c);
    for (Candidate& c : result_.not_launchable) listed.push_back(&c);
    for (auto& [kind, c] : result_.geometries) listed.push_back(&c);
    std::map<Geometry, Scored*> known;
    for (Scored& s : scored_) known[s.geometry] = &s;
    std::vector<Scored*> members;
    for (const Candidate* c : listed) members.push_back(known.at(c->geometry));
    parallel(members, [&](Explorer& explorer, std::size_t i) {
      Candidate& c = *listed[i];
      const double limit = c.fastest_s * (1 + query_.simplicity);
      const bool ranked = c.launchable || query_.runtime == job::Runtime::any;
      Found found = explorer.explore(c.geometry, {ranked ? limit : 0, ranked ? 0 : limit}, true);
      std::optional<Candidate>& simple = ranked ? found.ranked : found.other;
      if (!simple) return;
      const double fastest = c.fastest_s;
      c = std::move(*simple);
      c.fastest_s = fastest;
    });
    std::sort(result_.plans.begin(), result_.plans.end(), faster);
    std::sort(result_.not_launchable.begin(), result_.not_launchable.end(), faster);
  }

  void finish() {
    // The listed plans are not rejected.
    tally_.add(Fall::slower, -static_cast<double>(result_.plans.size()));
    result_.rejected = tally_.by_reason();
    result_.considered = static_cast<double>(result_.plans.size());
    for (const auto& [reason, points] : result_.rejected) result_.considered += points;
    if (!result_.plans.empty())
      result_.not_launchable.erase(
          std::remove_if(result_.not_launchable.begin(), result_.not_launchable.end(),
                         [&](const Candidate& c) { return !faster(c, result_.plans.front()); }),
          result_.not_launchable.end());
    for (Candidate& plan : result_.plans)
      plan.tie = plan.estimate.low_s <= result_.plans.front().estimate.high_s;
  }

  const Query& query_;
  const Space space_;
  job::Job probe_;  // what the runtime would say of a geometry
  Tally tally_;
  PlanResult result_;
  std::vector<Scored> scored_;    // by the cheaper bound ...
  std::size_t waiting_ = 0;       // ... of which these have no other yet
  std::vector<Scored*> bounded_;  // heap: bounded and not visited
  std::vector<std::unique_ptr<Explorer>> explorers_;
};

}  // namespace

GeometryClass classify(const job::Job& job) {
  const layout::Layout& l = job.layout;
  if (!job.model.is_moe()) return GeometryClass::dense;
  if (l.ulysses_sp > 1) return GeometryClass::sp_ep;
  if (l.fsdp) return GeometryClass::fsdp_ep;
  const bool classic = l.etp == l.tp && divides(l.ep, job.dp());
  return classic ? GeometryClass::classic_ep : GeometryClass::parallel_folding;
}

Result<PlanResult> plan(const Query& query, const hardware::Profile& profile) {
  TRIFOLD_TRY(validate(query));
  return Search(query, profile).run();
}

}  // namespace trifold::planner

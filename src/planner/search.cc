// SPDX-License-Identifier: Apache-2.0

// Geometries (tp, ulysses, cp, pp, ep, etp, micro batch) are judged once: arithmetic, rules, then a
// lower bound of their step time: m micro-batches of the mean stage's compute with nothing
// recomputed, exposed or waited for. They are visited in order of that bound, in batches of fixed
// size whose members are independent; a geometry whose bound exceeds both the slowest listed plan
// and its own class's best cannot enter either list and is skipped. Inside a geometry, memory
// savings only ever add time, so once one fits unsaved its savings are not tried. Thresholds move
// between batches alone: the same bytes for any number of threads.

#include "planner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "base/math.h"
#include "planner/balance.h"
#include "planner/explain.h"

namespace trifold::planner {

namespace {

constexpr std::size_t kBatch = 16;

struct Scored {
  Geometry geometry;
  double bound = 0;
};

// What one geometry found.
struct Found {
  std::vector<Candidate> layouts;  // best variant of each vpp
  std::map<std::string, double> rejected;
  std::int64_t legal = 0, fits = 0, evaluations = 0;
  std::int64_t shortage = INT64_MAX;
  std::string tightest;
};

bool faster(const Candidate& a, const Candidate& b) {
  if (a.estimate.step_time_s != b.estimate.step_time_s)
    return a.estimate.step_time_s < b.estimate.step_time_s;
  return job::job_id(a.job) < job::job_id(b.job);
}

class Worker {
 public:
  Worker(const Query& query, const Space& space, const hardware::Profile& profile)
      : query_(query), space_(space), estimator_(query.cluster, profile), job_(base_job(query)) {}

  // Seconds that no variant of this geometry can beat.
  double lower_bound(const Geometry& geometry) {
    set_geometry(geometry, job_);
    const ChunkCosts costs = chunk_costs();
    double sum = 0;
    for (const model::LayerKind kind : query_.model.layers)
      sum += costs.layer[static_cast<std::size_t>(kind.index())];
    return sum / geometry.pp * static_cast<double>(job_.microbatches());
  }

  Found explore(const Geometry& geometry, double threshold) {
    Found found;
    set_geometry(geometry, job_);
    const ChunkCosts costs = chunk_costs();
    const double per_vpp = space_.variants() / static_cast<double>(space_.vpp.size());
    for (int vpp : space_.vpp) {
      if (vpp > 1 && (geometry.pp == 1 || static_cast<std::int64_t>(geometry.pp) * vpp >
                                              query_.model.num_layers() + 2)) {
        found.rejected[geometry.pp == 1 ? "interleaving needs pp > 1"
                                        : "fewer layers than chunks"] += per_vpp;
        continue;
      }
      explore_cut(geometry, vpp, costs, threshold, found);
    }
    return found;
  }

 private:
  // Compute of a forward and backward of each block, nothing saved, nothing exposed.
  ChunkCosts chunk_costs() {
    set_variant(query_, 1, {space_.transports.front().dispatcher, false, true}, {}, false, job_);
    blocks_.reset(job_, estimator_.pricer());
    ChunkCosts costs;
    const auto seconds = [&](layer::BlockRole role, model::LayerKind kind) {
      const estimate::LayerTime& t = blocks_.get(role, kind).time;
      return t.forward.compute + t.backward.compute;
    };
    for (const model::LayerKind kind : query_.model.layers) {
      double& cost = costs.layer[static_cast<std::size_t>(kind.index())];
      if (cost == 0) cost = seconds(layer::BlockRole::layer, kind);
    }
    costs.embedding = seconds(layer::BlockRole::embedding, {});
    costs.loss =
        seconds(layer::BlockRole::head, {}) * static_cast<double>(1 + query_.model.mtp_layers);
    if (query_.model.mtp_layers > 0)
      costs.mtp = costs.layer[static_cast<std::size_t>(query_.model.mtp_kind().index())] +
                  seconds(layer::BlockRole::mtp_projection, {});
    return costs;
  }

  // The even cut where Megatron has one and it is as good, else a layout string.
  bool cut(const Geometry& geometry, int vpp, const ChunkCosts& costs, layout::Pipeline& pipeline) {
    job_.layout.pipeline_layout.clear();
    job_.layout.vpp = vpp;
    pipeline = balanced_pipeline(query_.model, geometry.pp, vpp, costs);
    if (geometry.pp == 1) return true;
    Result<layout::Pipeline> even = layout::build_pipeline(query_.model, job_.layout);
    if (even && even->chunks == pipeline.chunks) return true;
    job_.layout.pipeline_layout = layout::print_pipeline_layout(pipeline);
    return true;
  }

  void explore_cut(const Geometry& geometry, int vpp, const ChunkCosts& costs, double threshold,
                   Found& found) {
    layout::Pipeline pipeline;
    if (!cut(geometry, vpp, costs, pipeline)) return;
    const std::string text = job_.layout.pipeline_layout;
    Candidate best;
    double best_time = threshold;
    bool any = false;
    for (const bool fsdp : space_.fsdp)
      for (const Transport& transport : space_.transports)
        explore_savings(vpp, transport, fsdp, pipeline, best_time, any, best, found);
    if (any) found.layouts.push_back(std::move(best));
    job_.layout.pipeline_layout.clear();
  }

  void explore_savings(int vpp, const Transport& transport, bool fsdp,
                       const layout::Pipeline& pipeline, double& best_time, bool& any,
                       Candidate& best, Found& found) {
    const double total = static_cast<double>(space_.savings.size());
    double tried = 0;
    for (const MemorySaving& saving : space_.savings) {
      set_variant(query_, vpp, transport, saving, fsdp, job_);
      const job::Verdict verdict = job::check(job_, pipeline, query_.runtime);
      ++tried;
      if (!verdict.legal()) {
        found.rejected[reason_of(verdict)] += 1;
        continue;
      }
      ++found.legal;
      memory::evaluate(job_, pipeline, estimate_.memory);
      if (!estimate_.memory.fits()) {
        found.rejected["memory: does not fit"] += 1;
        if (-estimate_.memory.headroom.value() < found.shortage) {
          found.shortage = -estimate_.memory.headroom.value();
          found.tightest = short_layout(job_);
        }
        continue;
      }
      ++found.fits;
      ++found.evaluations;
      estimator_.evaluate_time(job_, pipeline, estimate_);
      if (estimate_.step_time_s < best_time) {
        best_time = estimate_.step_time_s;
        best.job = job_;
        best.estimate = estimate_;
        any = true;
      } else {
        found.rejected["slower than another plan"] += 1;
      }
      // Nothing saved and it fits: saving more only costs time.
      if (saving.recompute.empty() && saving.offload.empty()) break;
    }
    if (tried < total) found.rejected["slower: saves memory that is not short"] += total - tried;
  }

  static std::string short_layout(const job::Job& job) {
    const layout::Layout& l = job.layout;
    return fmt::format("tp {} cp {} pp {} vpp {} ep {} etp {} micro-batch {}{}", l.tp,
                       l.sequence_ranks(), l.pp, l.vpp, l.ep, l.etp, job.training.micro_batch_size,
                       l.fsdp ? " FSDP" : "");
  }

  const Query& query_;
  const Space& space_;
  estimate::Estimator estimator_;
  estimate::BlockTimes blocks_;
  estimate::Estimate estimate_;
  job::Job job_;
};

// Sizes that do not divide, counted by reason; the rest survive.
std::vector<Geometry> feasible_geometries(const Query& query, const Space& s,
                                          std::map<std::string, double>& rejected) {
  std::vector<Geometry> list;
  const double variants = s.variants();
  const auto reject = [&](const char* reason, double points) {
    rejected[reason] += points * variants;
  };
  const double inner = static_cast<double>(s.ep.size() * s.etp.size() * s.micro_batch_size.size());
  for (int pp : s.pp)
    for (int tp : s.tp)
      for (int sp : s.ulysses_sp)
        for (int cp : s.cp) {
          const std::int64_t size = static_cast<std::int64_t>(tp) * sp * cp * pp;
          if (tp > 1 && sp > 1) {
            reject("tp and ulysses both shard heads", inner);
            continue;
          }
          if (!divides(size, query.gpus)) {
            reject("GPUs are not divisible by tp x cp x pp", inner);
            continue;
          }
          const std::int64_t dp = query.gpus / size;
          for (int ep : s.ep)
            for (int etp : s.etp) {
              if (!divides(static_cast<std::int64_t>(ep) * etp * pp, query.gpus)) {
                reject("GPUs are not divisible by ep x etp x pp",
                       static_cast<double>(s.micro_batch_size.size()));
                continue;
              }
              for (int size_of_micro : s.micro_batch_size) {
                if (!divides(dp * size_of_micro, query.training.global_batch_size)) {
                  reject("batch is not divisible by micro batch x dp", 1);
                  continue;
                }
                list.push_back({tp, sp, cp, pp, ep, etp, size_of_micro});
              }
            }
        }
  return list;
}

template <class Work>
void parallel_for(std::size_t count, std::size_t threads, const Work& work) {
  if (threads <= 1 || count <= 1) {
    for (std::size_t i = 0; i < count; ++i) work(0, i);
    return;
  }
  std::vector<std::thread> pool;
  for (std::size_t t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      for (std::size_t i = t; i < count; i += threads) work(t, i);
    });
  for (std::thread& thread : pool) thread.join();
}

void merge(const Query& query, Found&& found, PlanResult& result) {
  for (const auto& [reason, points] : found.rejected) result.rejected[reason] += points;
  result.legal += found.legal;
  result.fits += found.fits;
  result.evaluations += found.evaluations;
  if (found.shortage < result.smallest_shortage_bytes || result.tightest_layout.empty()) {
    if (found.shortage != INT64_MAX) {
      result.smallest_shortage_bytes = found.shortage;
      result.tightest_layout = found.tightest;
    }
  }
  for (Candidate& candidate : found.layouts) {
    const GeometryClass kind = classify(candidate.job);
    const auto at = result.geometries.find(kind);
    if (at == result.geometries.end())
      result.geometries.emplace(kind, candidate);
    else if (faster(candidate, at->second))
      at->second = candidate;
    result.plans.push_back(std::move(candidate));
  }
  std::sort(result.plans.begin(), result.plans.end(), faster);
  if (result.plans.size() > static_cast<std::size_t>(query.best))
    result.plans.resize(static_cast<std::size_t>(query.best));
}

// No member of `geometry`'s class, nor the list, can still be improved by a step time above this.
double threshold_of(const Query& query, const Geometry& geometry, const PlanResult& result) {
  const auto class_best = [&](GeometryClass kind) {
    const auto at = result.geometries.find(kind);
    return at == result.geometries.end() ? INFINITY : at->second.estimate.step_time_s;
  };
  double limit = result.plans.size() < static_cast<std::size_t>(query.best)
                     ? INFINITY
                     : result.plans.back().estimate.step_time_s;
  job::Job job;
  job.gpus = query.gpus;
  job.model.moe.experts = query.model.moe.experts;
  for (bool fsdp : {false, true}) {
    set_geometry(geometry, job);
    job.layout.fsdp = fsdp;
    limit = std::max(limit, class_best(classify(job)));
  }
  return limit;
}

}  // namespace

GeometryClass classify(const job::Job& job) {
  const layout::Layout& l = job.layout;
  if (!job.model.is_moe()) return GeometryClass::dense;
  if (l.ulysses_sp > 1) return GeometryClass::sp_ep;
  if (l.fsdp) return GeometryClass::fsdp_ep;
  const bool classic = l.etp == l.tp && divides(l.ep, job.dp());
  return classic ? GeometryClass::classic_ep : GeometryClass::parallel_folding;
}

Result<PlanResult> search(const Query& query, const hardware::Profile& profile) {
  TRIFOLD_TRY(validate(query));
  PlanResult result;
  const Space space = make_space(query);
  result.space = space.size();
  const std::size_t threads = query.threads > 0 ? static_cast<std::size_t>(query.threads)
                                                : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t t = 0; t < threads; ++t)
    workers.push_back(std::make_unique<Worker>(query, space, profile));

  const std::vector<Geometry> feasible = feasible_geometries(query, space, result.rejected);
  std::vector<Scored> scored(feasible.size());
  parallel_for(feasible.size(), threads, [&](std::size_t t, std::size_t i) {
    scored[i] = {feasible[i], workers[t]->lower_bound(feasible[i])};
  });
  std::sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) {
    return a.bound != b.bound ? a.bound < b.bound : a.geometry < b.geometry;
  });
  for (std::size_t begin = 0; begin < scored.size(); begin += kBatch) {
    const std::size_t count = std::min(kBatch, scored.size() - begin);
    std::vector<double> thresholds(count);
    for (std::size_t i = 0; i < count; ++i)
      thresholds[i] = threshold_of(query, scored[begin + i].geometry, result);
    std::vector<Found> found(count);
    parallel_for(count, threads, [&](std::size_t t, std::size_t i) {
      if (scored[begin + i].bound < thresholds[i])
        found[i] = workers[t]->explore(scored[begin + i].geometry, thresholds[i]);
      else
        found[i].rejected["slower: its compute alone takes longer than a listed plan"] +=
            space.variants();
    });
    for (Found& f : found) merge(query, std::move(f), result);
    if (query.max_evaluations > 0 && result.evaluations >= query.max_evaluations &&
        begin + count < scored.size()) {
      result.complete = false;
      break;
    }
  }
  for (const auto& [reason, points] : result.rejected) result.considered += points;
  result.considered += static_cast<double>(result.plans.size());
  for (Candidate& plan : result.plans) {
    plan.verdict = job::check(plan.job, job::Runtime::megatron);
    plan.launchable = plan.verdict.legal();
    plan.tie = plan.estimate.low_s <= result.plans.front().estimate.high_s;
  }
  return result;
}

Result<PlanResult> plan(const Query& query, const hardware::Profile& profile) {
  TRIFOLD_ASSIGN(result, search(query, profile));
  if (query.runtime == job::Runtime::any || result.plans.empty()) return result;
  Query wider = query;
  wider.runtime = job::Runtime::any;
  wider.best = 3;
  TRIFOLD_ASSIGN(any, search(wider, profile));
  for (Candidate& candidate : any.plans)
    if (!candidate.launchable && faster(candidate, result.plans.front()))
      result.not_launchable.push_back(std::move(candidate));
  for (auto& [kind, candidate] : any.geometries) {
    if (result.geometries.count(kind) != 0) continue;
    candidate.verdict = job::check(candidate.job, job::Runtime::megatron);
    candidate.launchable = candidate.verdict.legal();
    result.geometries.emplace(kind, std::move(candidate));
  }
  return result;
}

int smallest_cluster_that_fits(Query query, const hardware::Profile& profile) {
  query.best = 1;
  for (int factor = 2; factor <= 64; factor *= 2) {
    Query larger = query;
    larger.gpus = query.gpus * factor;
    larger.max_evaluations = 1;
    if (larger.gpus > query.cluster.max_gpus) return 0;
    const Result<PlanResult> result = search(larger, profile);
    if (result && !result->plans.empty()) return larger.gpus;
  }
  return 0;
}

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.h"
#include "hardware/catalogue.h"
#include "planner/search.h"

// Random small questions, answered twice: by the search and by trying every point of its space. The
// best of every geometry must have the same step time, whatever the bounds skipped; and no point
// may beat a bound of its own, whether or not the answer would show it.

namespace trifold::planner {
namespace {

template <class T>
std::vector<T> some(Random& random, std::vector<T> values, std::size_t most) {
  while (values.size() > most)
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(random.below(values.size())));
  return values;
}

model::Model random_model(Random& random) {
  model::Model m;
  m.name = "random";
  m.hidden = 1024 << random.below(2);
  m.vocab = 32000;
  m.dense_ffn = 4 * m.hidden;
  m.attention.heads = 16;
  m.attention.kv_heads = 4 << random.below(3);
  m.attention.head_dim = 128;
  const bool moe = random.below(5) > 0;
  if (moe) {
    m.moe.experts = 16;
    m.moe.top_k = 2 + static_cast<int>(random.below(3));
    m.moe.expert_ffn = 512 << random.below(3);
    m.moe.shared_ffn = random.below(2) == 0 ? 0 : 1024;
  }
  const int layers = 4 + static_cast<int>(random.below(5));
  const int dense = moe ? static_cast<int>(random.below(2)) : layers;
  for (int i = 0; i < layers; ++i) m.layers.push_back({i >= dense, false});
  m.mtp_layers = moe ? static_cast<int>(random.below(2)) : 0;
  return m;
}

Query random_query(Random& random) {
  Query q;
  q.model = random_model(random);
  q.cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  // From far too little to plenty, so that memory binds in most questions.
  q.cluster.gpu.hbm = Bytes((std::int64_t{6} << 30) << random.below(3));
  // From copies to the host that show to copies that hide.
  q.cluster.host_bandwidth = q.cluster.host_bandwidth * (random.below(2) == 0 ? 0.1 : 1.0);
  q.gpus = 8 << random.below(3);
  q.training.sequence_length = 4096;
  q.training.global_batch_size = 64 << random.below(2);
  q.training.precision = random.below(2) == 0 ? job::Precision::bf16 : job::Precision::fp8_block;
  q.runtime = random.below(2) == 0 ? job::Runtime::megatron : job::Runtime::any;
  q.optimizer_precision =
      random.below(2) == 0 ? OptimizerPrecision::fp32 : OptimizerPrecision::automatic;
  q.simplicity = 0;
  q.best = 3;
  q.threads = 1;
  q.pins.tp = some<int>(random, {1, 2, 4}, 2);
  q.pins.ulysses_sp = some<int>(random, {1, 2}, 1 + random.below(2));
  q.pins.cp = some<int>(random, {1, 2}, 1);
  q.pins.pp = some<int>(random, {1, 2, 4}, 2);
  q.pins.vpp = some<int>(random, {1, 2, 3}, 2);
  q.pins.ep = q.model.is_moe() ? some<int>(random, {1, 2, 4, 8}, 2) : std::vector<int>{1};
  q.pins.etp =
      q.model.is_moe() ? some<int>(random, {1, 2}, 1 + random.below(2)) : std::vector<int>{1};
  q.pins.micro_batch_size = some<int>(random, {1, 2, 4}, 1);
  q.pins.dispatcher_sms = {static_cast<int>(16 * random.below(2))};
  q.pins.dispatcher = some<job::Dispatcher>(random,
                                            {job::Dispatcher::alltoall, job::Dispatcher::allgather,
                                             job::Dispatcher::deepep, job::Dispatcher::hybridep},
                                            1 + random.below(2));
  using K = layout::ScheduleKind;
  q.pins.schedule = some<K>(
      random, {K::one_f_one_b, K::interleaved, K::zb_h1, K::zb_v, K::dualpipe, K::dualpipe_v}, 3);
  return q;
}

struct Brute {
  std::map<Geometry, double> ranked, other;
  std::map<GeometryClass, double> classes;
  std::size_t timed = 0, offloads_wait = 0;
};

// The bounds of one geometry, beside its points.
class Watch {
 public:
  Watch(const Query& q, const Space& s, const hardware::Profile& profile)
      : space_(s), explorer_(q, s, profile), pricer_(q.cluster, profile), bounds_(q, s, pricer_) {}

  void enter(const Geometry& g) {
    compute_ = explorer_.compute_bound(g);
    bound_ = explorer_.bound(g);
    bounds_.enter(g);
    EXPECT_LE(compute_, bound_.least());
  }
  CutEntry cut(const Geometry& g, const Depth& depth) {
    CutEntry entry = explorer_.cut(g, depth);
    if (!entry.pipeline.chunks.empty()) tails_ = bounds_.tails(entry, depth);
    return entry;
  }
  // More recompute is no faster.
  void expect_recompute_costs(const CutEntry& cut, const Depth& depth, int transport) {
    std::vector<double> by_set;
    for (int r = 0; r < static_cast<int>(space_.recomputes.size()); ++r)
      by_set.push_back(bounds_.staged(cut, tails_, depth, {transport, r, false, 0}, 0));
    for (std::size_t r = 0; r < by_set.size(); ++r)
      for (std::size_t smaller = 0; smaller < r; ++smaller) {
        const bool over = ((space_.recompute_over[r] >> smaller) & 1u) != 0;
        EXPECT_TRUE(!over || by_set[r] >= by_set[smaller] * (1 - 1e-12));
      }
  }
  // True: the host copies of the point show in its bound.
  bool expect_not_beaten(const job::Job& job, const CutEntry& cut, const Depth& depth,
                         int transport, std::size_t saving, bool ranked, double seconds) {
    EXPECT_GE(seconds, ranked ? bound_.ranked : bound_.least());
    const int recompute = space_.recompute_of[saving];
    const bool bf16 = space_.savings[saving].bf16_moments;
    double copy = estimate::host_copy_seconds(job, pricer_, job.model.is_moe());
    for (const model::LayerKind& kind : job.model.layers)
      copy = std::min(copy, estimate::host_copy_seconds(job, pricer_, kind.moe));
    const double with = bounds_.staged(cut, tails_, depth, {transport, recompute, bf16, copy});
    const double without = bounds_.staged(cut, tails_, depth, {transport, recompute, bf16, 0});
    EXPECT_GE(with, without);
    EXPECT_GE(seconds, with);
    return with > without * 1.01;
  }

 private:
  const Space& space_;
  Explorer explorer_;
  cost::Pricer pricer_;
  Bounds bounds_;
  std::vector<GroupTails> tails_;
  double compute_ = 0;
  GeometryBound bound_;
};

void visit(const Query& q, const Space& s, const Geometry& g, Watch& watch,
           estimate::Estimator& estimator, Brute& brute) {
  job::Job job = base_job(q);
  set_geometry(g, job);
  const std::int64_t dense = std::int64_t{g.tp} * g.ulysses_sp * g.cp * g.pp;
  const std::int64_t expert = std::int64_t{g.ep} * g.etp * g.pp;
  if (q.gpus % dense != 0 || q.gpus % expert != 0 || (g.tp > 1 && g.ulysses_sp > 1)) return;
  if (q.training.global_batch_size % (job.dp() * g.micro_batch_size) != 0) return;
  estimate::Estimate e;
  watch.enter(g);
  const bool others = q.runtime == job::Runtime::megatron && g.ulysses_sp > 1 &&
                      !job::megatron_shares_sequence(job);
  const GeometryClass kind = classify(job);
  for (const Depth& depth : s.depths) {
    // More chunks than things to fill them with, or schedules without stages, are no other layouts.
    if (g.pp == 1 && depth.kind != layout::ScheduleKind::one_f_one_b) continue;
    if (g.pp * depth.vpp > q.model.num_layers() + 2) continue;
    set_variant(q, depth, Transport{}, MemorySaving{}, job);
    layout::Pipeline shape;
    shape.pp = g.pp, shape.vpp = depth.vpp;
    if (!job::check(job, shape, job::Runtime::any).legal()) continue;
    const CutEntry cut = watch.cut(g, depth);
    if (cut.pipeline.chunks.empty()) continue;
    for (int t = 0; t < static_cast<int>(s.transports.size()); ++t) {
      const Transport& transport = s.transports[static_cast<std::size_t>(t)];
      watch.expect_recompute_costs(cut, depth, t);
      set_variant(q, depth, transport, MemorySaving{}, job);
      const bool plain_launches = job::check(job, cut.pipeline, job::Runtime::megatron).legal();
      for (std::size_t i = 0; i < s.savings.size(); ++i) {
        set_variant(q, depth, transport, s.savings[i], job);
        job.layout.pipeline_layout = cut.text;
        if (!job::check(job, cut.pipeline, job::Runtime::any).legal()) continue;
        memory::evaluate(job, cut.pipeline, e.memory);
        if (!e.memory.fits()) continue;
        estimator.evaluate_time(job, cut.pipeline, e);
        ++brute.timed;
        const bool launches = job::check(job, cut.pipeline, job::Runtime::megatron).legal();
        EXPECT_TRUE(plain_launches || !launches);  // a saving cures no rule
        const bool ranked = q.runtime == job::Runtime::any || launches;
        brute.offloads_wait +=
            watch.expect_not_beaten(job, cut, depth, t, i, ranked, e.step_time_s);
        if (ranked || others) {
          double& best = brute.classes.emplace(kind, INFINITY).first->second;
          best = std::min(best, e.step_time_s);
        }
        Geometry key = g;
        key.order = {};  // one entry a geometry, whatever its rank order
        double& best = (ranked ? brute.ranked : brute.other).emplace(key, INFINITY).first->second;
        best = std::min(best, e.step_time_s);
      }
    }
  }
}

Brute try_everything(const Query& q, const hardware::Profile& profile) {
  const Space s = make_space(q);
  Watch watch(q, s, profile);
  estimate::Estimator estimator(q.cluster, profile);
  Brute brute;
  for (int tp : s.tp)
    for (int sp : s.ulysses_sp)
      for (int cp : s.cp)
        for (int pp : s.pp)
          for (int ep : s.ep)
            for (int etp : s.etp)
              for (int size : s.micro_batch_size)
                for (const bool fsdp : s.fsdp)
                  for (layout::RankOrder order : s.orders) {
                    visit(q, s, {tp, sp, cp, pp, ep, etp, size, fsdp, order}, watch, estimator,
                          brute);
                  }
  return brute;
}

std::vector<double> sorted(const std::map<Geometry, double>& best) {
  std::vector<double> times;
  for (const auto& [geometry, time] : best) times.push_back(time);
  std::sort(times.begin(), times.end());
  return times;
}

void expect_accounts(const PlanResult& result) {
  double points = static_cast<double>(result.plans.size());
  for (const auto& [reason, n] : result.rejected) points += n;
  EXPECT_EQ(points, result.space);  // whole numbers below 2^53: exact
  EXPECT_EQ(result.considered, result.space);
}

TEST(BruteForce, TheSearchFindsEveryGeometrysBest) {
  const hardware::Cluster cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  const hardware::Profile profile = hardware::profile_of(cluster, TRIFOLD_SOURCE_DIR).value();
  Random random(20260730);
  int answered = 0, bound_by_memory = 0, bound_by_host = 0;
  for (int question = 0; question < 200; ++question) {
    SCOPED_TRACE(question);
    const Query q = random_query(random);
    const PlanResult result = plan(q, profile).value();
    expect_accounts(result);
    const Brute brute = try_everything(q, profile);
    const std::vector<double> times = sorted(brute.ranked);
    ASSERT_EQ(result.plans.empty(), times.empty());
    answered += !times.empty();
    bound_by_host += brute.offloads_wait > 0;
    ASSERT_EQ(result.geometries.size(), brute.classes.size());
    for (const auto& [kind, c] : result.geometries)
      EXPECT_NEAR(c.estimate.step_time_s, brute.classes.at(kind), 1e-9 * brute.classes.at(kind));
    const auto fell = result.rejected.find("memory: does not fit");
    bound_by_memory += !times.empty() && fell != result.rejected.end();
    for (std::size_t i = 0; i < result.plans.size(); ++i) {
      ASSERT_LT(i, times.size());
      EXPECT_NEAR(result.plans[i].estimate.step_time_s, times[i], 1e-9 * times[i]);
      const Candidate& c = result.plans[i];
      EXPECT_TRUE(job::check(c.job, q.runtime).legal());
    }
    const double other = sorted(brute.other).empty() ? INFINITY : sorted(brute.other).front();
    if (!times.empty() && other < times[0]) {
      ASSERT_FALSE(result.not_launchable.empty());
      EXPECT_NEAR(result.not_launchable[0].estimate.step_time_s, other, 1e-9 * other);
    }
  }
  // The questions are worth asking.
  EXPECT_GT(answered, 100);
  EXPECT_GT(bound_by_memory, 30);
  EXPECT_GT(bound_by_host, 10);
}

TEST(Search, SameAnswerForAnyNumberOfThreads) {
  const hardware::Cluster cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  const hardware::Profile profile = hardware::profile_of(cluster, TRIFOLD_SOURCE_DIR).value();
  Random random(7);
  for (int question = 0; question < 20; ++question) {
    Query q = random_query(random);
    q.simplicity = 0.01;
    const PlanResult one = plan(q, profile).value();
    for (int threads : {2, 5}) {
      q.threads = threads;
      const PlanResult many = plan(q, profile).value();
      ASSERT_EQ(one.plans.size(), many.plans.size());
      for (std::size_t i = 0; i < one.plans.size(); ++i)
        EXPECT_EQ(job::job_id(one.plans[i].job), job::job_id(many.plans[i].job));
      EXPECT_EQ(one.rejected, many.rejected);
      EXPECT_EQ(one.evaluations, many.evaluations);
    }
  }
}

TEST(Search, ListedPlansCarryWholeEstimates) {
  const hardware::Cluster cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  const hardware::Profile profile = hardware::profile_of(cluster, TRIFOLD_SOURCE_DIR).value();
  estimate::Estimator estimator(cluster, profile);
  Random random(5);
  int listed = 0;
  for (int question = 0; question < 20; ++question) {
    const PlanResult result = plan(random_query(random), profile).value();
    for (const Candidate& c : result.plans) {
      const layout::Pipeline cut =
          layout::build_pipeline(c.job.model, c.job.layout, c.job.placement()).value();
      estimate::Estimate whole;
      estimator.evaluate(c.job, cut, whole);
      EXPECT_EQ(c.estimate.step_time_s, whole.step_time_s);
      EXPECT_EQ(c.estimate.memory.peak, whole.memory.peak);
      EXPECT_GT(c.estimate.kernels.of(estimate::Work::gemm), 0);
      EXPECT_EQ(c.estimate.kernels.of(estimate::Work::gemm),
                whole.kernels.of(estimate::Work::gemm));
      ++listed;
    }
  }
  EXPECT_GT(listed, 10);
}

TEST(Search, SimplerVariantsAreWithinTheToleranceAndNoMoreComplex) {
  const hardware::Cluster cluster = hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR).value();
  const hardware::Profile profile = hardware::profile_of(cluster, TRIFOLD_SOURCE_DIR).value();
  Random random(11);
  for (int question = 0; question < 30; ++question) {
    Query q = random_query(random);
    const PlanResult fastest = plan(q, profile).value();
    q.simplicity = 0.02;
    const PlanResult simple = plan(q, profile).value();
    ASSERT_EQ(fastest.plans.size(), simple.plans.size());
    for (const Candidate& c : simple.plans) {
      EXPECT_LE(c.estimate.step_time_s, c.fastest_s * 1.02);
      for (const Candidate& f : fastest.plans) {
        if (!(f.geometry == c.geometry)) continue;
        EXPECT_LE(c.complexity, f.complexity);
        EXPECT_EQ(c.fastest_s, f.estimate.step_time_s);
      }
    }
  }
}

}  // namespace
}  // namespace trifold::planner

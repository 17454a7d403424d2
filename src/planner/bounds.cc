// SPDX-License-Identifier: Apache-2.0

// Lower bounds of a step:
//   compute  as `mean`, from kernels alone: every transport adds exposed communication, waiting for
//            the host and lent SMs to them. Schedules that defer weight gradients wait for nothing.
//   mean     the stage that is done last takes at least the mean over the stages of what stages
//            take: m x (sum of all blocks)/pp + the others' chunks + sends + the fixed part of the
//            optimizer; with FSDP its traffic too (convex in seconds moved and covered; 0.8 of the
//            mean stage's, because curves of measured collectives bend). Needs no cut.
//   staged   the estimate itself, as a maximum over the stages of the cut, from sums that thousands
//            of layouts share; without what other stages' offload makes this one wait for, what
//            sends add to ticks, and NICs that expert transfers keep from data parallelism.
// All grow with recompute: it adds kernels to a stage's backward, which adds at least as much to
// each stage's end (m >= 1 micro-batches) as it can hide of data-parallel traffic.

#include "planner/bounds.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "estimate/estimate.h"

namespace trifold::planner {

namespace {

constexpr auto at(int i) { return static_cast<std::size_t>(i); }
constexpr double kRounding = 1 - 1e-9;  // bounds sum in another order than estimates

// What blocks do not depend on is left out.
Geometry shared_part(Geometry g) {
  g.pp = 1, g.fsdp = false, g.order = {};
  return g;
}

}  // namespace

Bounds::Bounds(const Query& query, const Space& space, cost::Pricer& pricer)
    : query_(query),
      space_(space),
      pricer_(pricer),
      constants_(pricer.constants()),
      prices_(query, space, pricer),
      job_(base_job(query)),
      counts_(whole_model(query.model)) {
  TRIFOLD_CHECK(layout::cut_pipeline(query.model, layout::Layout{}, whole_).ok());
}

void Bounds::enter(const Geometry& geometry) {
  geometry_ = geometry;
  entered_ = nullptr;
  set_geometry(geometry, job_);
  set_variant(query_, Depth{}, Transport{}, MemorySaving{}, job_);
  microbatches_ = static_cast<double>(job_.microbatches());
  send_s_ = geometry.pp > 1 ? cost::pipeline_send(job_, pricer_).seconds : 0;
  if (!geometry.fsdp) return;
  cost::StageParameters mean = cost::stage_parameters(job_, whole_, 0);
  mean.dense /= geometry.pp, mean.experts /= geometry.pp;
  mean_tail_ = cost::data_parallel_terms(job_, mean, pricer_);
  mean_tail_.reduce_s *= 0.8, mean_tail_.gather_s *= 0.8;
  tails_.assign(space_.transports.size(), -1);
}

bool Bounds::merged(int transport) const {
  return space_.transports[at(transport)].beside == Beside::merged;
}

const Bounds::Sums& Bounds::sums() {
  if (entered_ != nullptr) return *entered_;
  const auto [found, fresh] = sums_.try_emplace(shared_part(geometry_));
  entered_ = &found->second;
  if (!fresh) return *entered_;
  Sums& sums = found->second;
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
  return sums;
}

double Bounds::sends(const Depth& depth) const {
  if (geometry_.pp == 1) return 0;
  const double steady = 2 * microbatches_ * depth.vpp * send_s_;
  // Rounds of warm-up may wait for more.
  const double share = depth.vpp > 1 ? constants_.p2p_exposed : 1.0;
  return steady * share + 2 * (geometry_.pp - 1) * send_s_;
}

// FSDP: what the mean stage waits for.
double Bounds::tail(const BlockSeconds& sum) const {
  const double p = geometry_.pp;
  return estimate::data_parallel_exposed(job_, mean_tail_, sum.forward / p, sum.backward / p,
                                         constants_);
}

// `work` of the mean stage, and what every stage waits for beside it.
double Bounds::step(double work, const BlockSeconds& sum, const Depth& depth) const {
  const double p = geometry_.pp, others = (p - 1) / p / depth.vpp;
  const double wait = estimate::bubble_seconds(depth.kind, others * sum.forward,
                                               others * sum.backward, others * sum.wgrad);
  return (work + wait + sends(depth) + constants_.optimizer_fixed_s) * kRounding;
}

double Bounds::compute(const std::vector<Depth>& depths) {
  const auto [found, fresh] = kernels_.try_emplace(shared_part(geometry_));
  BlockSeconds& sum = found->second;
  if (fresh) {
    sum = sum_of(prices_.kernels(geometry_), counts_);
    sum.wgrad = sum.forward + sum.backward;
  }
  const double tail_s = geometry_.fsdp ? tail(sum) : 0;
  const double work = microbatches_ * (sum.forward + sum.backward) / geometry_.pp + tail_s;
  double least = INFINITY;
  for (const Depth& depth : depths) least = std::min(least, step(work, sum, depth));
  return least;
}

double Bounds::mean(int transport, const Depth& depth) {
  const BlockSeconds& sum = sums().by_transport[at(transport)];
  const double p = geometry_.pp, m = microbatches_;
  const double both = sum.forward + sum.backward;
  double work = m * both / p;
  if (merged(transport)) {
    const layout::ScheduleShape shape{
        depth.kind, geometry_.pp, depth.vpp, static_cast<int>(microbatches_), 0, true};
    const double units = m * depth.vpp;
    const double alone = std::min(
        units, static_cast<double>(std::max(1, layout::warmup_units(shape, geometry_.pp - 1))));
    work = (sum.pair * m * (units - alone) / units + both * m * alone / units) / p;
  }
  if (geometry_.fsdp) {
    double& known = tails_[at(transport)];
    if (known < 0) known = tail(sum);
    work += known;
  }
  return step(work, sum, depth);
}

// `paired`: at most this share of a stage's layers has a partner to merge with.
double Bounds::group_seconds(const BlockSeconds& all, const BlockSeconds& s,
                             const StageGroup& group, const Depth& depth, bool merged,
                             double paired) const {
  const double m = microbatches_, v = depth.vpp;
  const double both = s.forward + s.backward;
  double work = m * both;
  if (merged) {
    // Linear in the units that run un-merged: the first or the last stage of the group is worst.
    const layout::ScheduleShape shape{
        depth.kind, geometry_.pp, depth.vpp, static_cast<int>(microbatches_), 0, true};
    work = 0;
    const double units = m * v;
    for (int stage : {group.first, group.first + group.count - 1}) {
      const double alone =
          std::min(units, static_cast<double>(std::max(1, layout::warmup_units(shape, stage))));
      // Layers without a partner (estimate/lockstep.h) only add time, unless the host binds.
      const double share = paired * (units - alone) / units;
      work = std::max(work, m * (std::min(s.pair, both) * share + both * (1 - share)));
    }
  }
  if (geometry_.pp == 1) return work;
  return work + estimate::bubble_seconds(depth.kind, (all.forward - s.forward) / v,
                                         (all.backward - s.backward) / v,
                                         (all.wgrad - s.wgrad) / v);
}

std::vector<GroupTails> Bounds::tails(const CutEntry& cut, const Depth& depth) {
  std::vector<GroupTails> tails;
  for (const StageGroup& group : cut.groups) {
    const cost::StageParameters held = cost::stage_parameters(job_, cut.pipeline, group.first);
    GroupTails& of = tails.emplace_back();
    for (bool bf16 : {false, true}) {
      set_variant(query_, depth, Transport{}, MemorySaving{{}, {}, bf16}, job_);
      of[bf16 ? 1 : 0] = cost::data_parallel_terms(job_, held, pricer_);
    }
  }
  set_variant(query_, Depth{}, Transport{}, MemorySaving{}, job_);
  return tails;
}

// `paired`, by stage: null where every layer is taken to merge.
double Bounds::slowest_group(const CutEntry& cut, const std::vector<GroupTails>& tails,
                             const Depth& depth, const Burden& burden, const BlockTable& table,
                             const std::vector<double>* paired) const {
  const BlockSeconds all = sum_of(table, counts_);
  double most = 0;
  for (std::size_t g = 0; g < cut.groups.size(); ++g) {
    const StageGroup& group = cut.groups[g];
    BlockSeconds s = sum_of(table, group.blocks);
    double share = 1;
    if (paired != nullptr) {
      const auto first = paired->begin() + group.first;
      share = *std::max_element(first, first + group.count);
    }
    double work = group_seconds(all, s, group, depth, merged(burden.transport), share);
    if (burden.host_copy_s > 0) {
      // Copies run under the stage's own work of one micro-batch, each way.
      const double copy = burden.host_copy_s * group.decoder_layers();
      const double late_f = std::max(0.0, copy - s.forward);
      const double late_b = std::max(0.0, copy - s.backward);
      work += microbatches_ * (late_f + late_b);
      s.forward += late_f, s.backward += late_b;
    }
    const cost::DataParallelTerms& tail = tails[g][burden.bf16_moments ? 1 : 0];
    work += tail.optimizer_s + tail.host_s +
            estimate::data_parallel_exposed(job_, tail, s.forward, s.backward, constants_);
    most = std::max(most, work);
  }
  return most;
}

// Into lockstep_, as the estimate does, but with sends that take no time.
void Bounds::unequal_chunks(const CutEntry& cut, const Depth& depth, const Burden& burden,
                            const BlockTable& table) {
  const layout::Pipeline& pipeline = cut.pipeline;
  const std::size_t chunks = pipeline.chunks.size();
  chunks_.forward.resize(chunks), chunks_.backward.resize(chunks), chunks_.merging.resize(chunks);
  for (int r = 0; r < pipeline.pp; ++r)
    for (int k = 0; k < pipeline.vpp; ++k) {
      const layout::Chunk& chunk = pipeline.at(r, k);
      const BlockSeconds s = sum_of(table, blocks_of(chunk, query_.model));
      const std::size_t i = at(r * pipeline.vpp + k);
      chunks_.forward[i] = s.forward, chunks_.backward[i] = s.backward;
      chunks_.merging[i] = (s.forward + s.backward - s.pair) / std::max(1, chunk.all_layers());
    }
  set_variant(query_, depth, space_.transports[at(burden.transport)], MemorySaving{}, job_);
  estimate::lockstep(job_, pipeline, chunks_, lockstep_);
}

double Bounds::staged(const CutEntry& cut, const std::vector<GroupTails>& tails, const Depth& depth,
                      const Burden& burden, double limit) {
  const BlockTable& table = prices_.table(geometry_, burden.transport, burden.recompute);
  const double sends_s = sends(depth);
  const double bound =
      (slowest_group(cut, tails, depth, burden, table, nullptr) + sends_s) * kRounding;
  if (bound >= limit || depth.kind != layout::ScheduleKind::interleaved) return bound;
  unequal_chunks(cut, depth, burden, table);
  return (slowest_group(cut, tails, depth, burden, table, &lockstep_.paired) + lockstep_.seconds +
          sends_s) *
         kRounding;
}

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0

// A layer's forward and backward, un-overlapped and merged.
//
// Un-overlapped: compute + exposed communication, then what the host adds (cost::host_wait_s). TP
// collectives under `tp_comm`, and the CP ring under attention, show a fraction; the rest hides. A
// shared expert on its own stream (`shared_expert`) hides dispatch and combine behind its compute.
//
// Merged forward-backward (`ep_a2a`): cost/merged_pair.h. Beside one another passes lose the
// dispatcher's share of the SMs and a leak, transfers the leak. MegaScale's operators (`inter_op`,
// `intra_op`, arXiv:2505.11432) overlap inside one micro-batch: `inter_op` hides transfers behind
// what does not depend on them (the shared expert; in backward the return of dispatch behind weight
// gradients), `intra_op` fuses them tile by tile, which leaves max(compute, comm) and
// a tile's tail.

#include "estimate/stage_time.h"

#include <algorithm>
#include <cmath>

#include "cost/merged_pair.h"
#include "memory/stage.h"

namespace trifold::estimate {

using job::Overlap;
using layer::Family;
using layer::Pass;
using layer::Segment;

Duration& Duration::operator+=(const Duration& o) {
  compute += o.compute;
  recompute += o.recompute;
  host += o.host;
  for (int i = 0; i < kComms; ++i)
    exposed[static_cast<std::size_t>(i)] += o.exposed[static_cast<std::size_t>(i)];
  return *this;
}

Duration Duration::scaled(double f) const {
  Duration d = *this;
  d.compute *= f, d.recompute *= f, d.host *= f;
  for (double& e : d.exposed) e *= f;
  return d;
}

namespace {

constexpr auto index(Comm c) { return static_cast<std::size_t>(c); }
constexpr auto index(Segment s) { return static_cast<std::size_t>(s); }
constexpr auto index(Pass p) { return static_cast<std::size_t>(p); }
constexpr auto index(Family f) { return static_cast<std::size_t>(f); }

// Share of a fused tile pipeline that stays exposed (prologue and epilogue tiles).
constexpr double kTileTail = 0.1;

void wait_for_host(Duration& d, double host) { d.host += cost::host_wait_s(d.sum(), host); }

struct Context {
  const job::Techniques& techniques;
  const cost::BlockCost& cost;
  const cost::Constants& constants;

  double compute(Segment s, Pass p) const { return cost.compute[index(s)][index(p)]; }
  double family(Segment s, Pass p, Family f) const {
    return cost.seconds[index(s)][index(p)][index(f)];
  }
  double comm(Pass p, Family f) const { return cost.family(p, f); }
  bool has(Overlap o) const { return techniques.has(o); }
};

double exposed_tp(const Context& c, Pass pass) {
  double factor = c.has(Overlap::tp_comm) ? c.constants.tp_overlap_exposed : 1.0;
  if (c.has(Overlap::intra_op)) factor = std::min(factor, kTileTail);
  return c.comm(pass, Family::tp_comm) * factor;
}

// The ring runs beside the attention of the block it feeds; an all-to-all or gather stands before
// it.
double exposed_cp(const Context& c, const job::Job& job, Pass pass) {
  const double total = c.comm(pass, Family::cp_comm);
  if (total <= 0) return 0;
  if (c.has(Overlap::intra_op)) return total * kTileTail;
  if (job.layout.ulysses_sp > 1 || job.techniques.cp_comm != job::CpComm::p2p) return total;
  const double attention = c.family(Segment::attention, pass, Family::attention);
  return std::max(0.0, total - attention) +
         c.constants.cp_overlap_exposed * std::min(total, attention);
}

double exposed_ep(const Context& c, Pass pass) {
  const double wait = c.family(Segment::attention, pass, Family::ep_comm);
  const double total = c.comm(pass, Family::ep_comm) - wait;
  if (c.has(Overlap::intra_op)) {
    const double experts = c.compute(Segment::experts, pass);
    return wait + std::max(0.0, total - experts) + kTileTail * std::min(total, experts);
  }
  const bool beside = c.has(Overlap::shared_expert) || c.has(Overlap::inter_op);
  const double cover = beside ? c.compute(Segment::shared, pass) : 0;
  if (pass != Pass::dgrad || !c.has(Overlap::inter_op)) return wait + std::max(0.0, total - cover);
  const double out = c.family(Segment::dispatch, pass, Family::ep_comm);
  const double wgrad =
      c.compute(Segment::experts, Pass::wgrad) + c.compute(Segment::shared, Pass::wgrad);
  return wait + std::max(0.0, total - out - cover) + std::max(0.0, out - wgrad);
}

// What hides inside one micro-batch takes its SMs from the GEMMs beside it.
double lent_to_hidden(const Context& c, Pass pass, double exposed, double sm_share) {
  if (!c.has(Overlap::inter_op) && !c.has(Overlap::intra_op)) return 0;
  return (c.comm(pass, Family::ep_comm) - exposed) * sm_share;
}

Duration direction(const Context& c, const job::Job& job, bool backward, double sm_share) {
  Duration d;
  if (!backward) {
    d.compute = c.cost.compute_of(Pass::forward);
    d.exposed[index(Comm::tp)] = exposed_tp(c, Pass::forward);
    d.exposed[index(Comm::cp)] = exposed_cp(c, job, Pass::forward);
    d.exposed[index(Comm::ep)] = exposed_ep(c, Pass::forward);
    d.compute += lent_to_hidden(c, Pass::forward, d.exposed[index(Comm::ep)], sm_share);
    wait_for_host(d, c.cost.host_s[index(Pass::forward)]);
    return d;
  }
  d.compute = c.cost.compute_of(Pass::dgrad) + c.cost.compute_of(Pass::wgrad);
  d.recompute = c.cost.compute_of(Pass::recompute);
  // The gather that re-reads a saved input for the weight gradient runs under the data gradient.
  const double regather = c.comm(Pass::wgrad, Family::tp_comm) * c.constants.tp_overlap_exposed;
  d.exposed[index(Comm::tp)] =
      exposed_tp(c, Pass::dgrad) + regather + exposed_tp(c, Pass::recompute);
  d.exposed[index(Comm::cp)] =
      exposed_cp(c, job, Pass::dgrad) + exposed_cp(c, job, Pass::recompute);
  d.exposed[index(Comm::ep)] = exposed_ep(c, Pass::dgrad);
  d.compute += lent_to_hidden(c, Pass::dgrad, d.exposed[index(Comm::ep)], sm_share);
  d.exposed[index(Comm::ep)] += c.comm(Pass::recompute, Family::ep_comm);
  wait_for_host(d, c.cost.host_s[index(Pass::dgrad)] + c.cost.host_s[index(Pass::recompute)]);
  return d;
}

// Collectives that the passes of A wait for.
double others(const Duration& d) { return d.exposed[index(Comm::tp)] + d.exposed[index(Comm::cp)]; }

cost::MergedPair pair_of(const Context& c, const LayerTime& alone) {
  const auto a = [&](Pass p) {
    return c.compute(Segment::attention, p) + c.compute(Segment::shared, p);
  };
  const auto x = [&](Pass p) {
    return c.compute(Segment::experts, p) + c.compute(Segment::dispatch, p);
  };
  const auto comm = [&](Segment s, Pass p) { return c.family(s, p, Family::ep_comm); };
  const bool delayed = c.has(Overlap::delay_wgrad);
  cost::MergedPair p;
  p.attention_forward = a(Pass::forward) + others(alone.forward);
  p.attention_backward = a(Pass::dgrad) + a(Pass::recompute) + others(alone.backward);
  p.experts_forward = x(Pass::forward);
  p.experts_backward = x(Pass::dgrad) + x(Pass::recompute);
  (delayed ? p.attention_wgrad : p.attention_backward) += a(Pass::wgrad);
  (delayed ? p.experts_wgrad : p.experts_backward) += x(Pass::wgrad);
  p.dispatch_forward = comm(Segment::dispatch, Pass::forward);
  p.dispatch_backward = comm(Segment::dispatch, Pass::dgrad);
  p.combine_forward =
      comm(Segment::combine, Pass::forward) + c.compute(Segment::combine, Pass::forward);
  p.combine_backward =
      comm(Segment::combine, Pass::dgrad) + c.compute(Segment::combine, Pass::dgrad);
  return p;
}

// One forward beside one backward of the same kind of layer.
Duration merged(const Context& c, const LayerTime& alone, double sm_share) {
  double transfers = 0;
  for (const Segment s : {Segment::dispatch, Segment::combine})
    for (const Pass p : {Pass::forward, Pass::dgrad}) transfers += c.family(s, p, Family::ep_comm);
  Duration m = alone.forward;
  m += alone.backward;
  if (transfers <= 0) return m;
  const cost::MergedPair even = pair_of(c, alone);
  const bool early = c.has(Overlap::early_attn_release);
  const double blocked = m.recompute + others(m), busy = m.compute;
  const double beside = std::max(0.0, transfers + busy + blocked - even.seconds(early));
  const double leak = c.constants.leak(c.techniques);
  const double passes = 1 + (sm_share + leak) * beside / (busy + blocked);
  const double pair = even.slowed(passes, 1 + leak * beside / transfers).seconds(early);
  const double slowed = busy * passes;
  m.host = 0;
  m.compute = std::min(slowed, pair - blocked);
  // While the host waits for row counts nothing is launched beside them.
  m.exposed[index(Comm::ep)] = std::max(0.0, pair - slowed - blocked) +
                               c.comm(Pass::recompute, Family::ep_comm) +
                               c.family(Segment::attention, Pass::forward, Family::ep_comm);
  double host = c.cost.host_s[index(Pass::forward)] + c.cost.host_s[index(Pass::dgrad)] +
                c.cost.host_s[index(Pass::recompute)];
  const bool graph = c.techniques.has(job::GraphScope::full_iteration);
  if (!graph) host = host * c.constants.host_overlap_factor + c.cost.merge_host_s;
  wait_for_host(m, host);
  if (!graph) m.host += cost::kPairHops;
  return m;
}

// Offloaded activations travel to the host in forward and back in backward, under compute; what
// does not fit shows. The first layer has nothing to send while it runs.
void offload(const job::Job& job, const cost::Pricer& pricer, const StageContent& content,
             LayerTime& work) {
  const job::Offload& o = job.techniques.offload;
  if (!o.activations()) return;
  int left = o.activation_layers > 0 ? o.activation_layers : content.decoder_layers;
  double copy = 0;
  for (int i = 0; i < model::kLayerKinds; ++i) {
    const int layers = std::min(left, content.layers[static_cast<std::size_t>(i)]);
    if (layers > 0)
      copy += layers * host_copy_seconds(job, pricer, model::LayerKind::from_index(i).moe);
    left -= layers;
  }
  const double first = work.forward.sum() / std::max(1, content.decoder_layers);
  const double wait_forward = std::max(0.0, copy + first - work.forward.sum());
  const double wait_backward = std::max(0.0, copy - work.backward.sum());
  work.forward.host += wait_forward;
  work.backward.host += wait_backward;
  work.pair.host += wait_forward + wait_backward;
}

}  // namespace

double host_copy_seconds(const job::Job& job, const cost::Pricer& pricer, bool moe) {
  return static_cast<double>(memory::host_bytes(job, moe)) / pricer.host_copy_rate();
}

LayerTime layer_time(const job::Job& job, const cost::BlockCost& cost,
                     const cost::Constants& constants, double sm_share) {
  const Context c{job.techniques, cost, constants};
  LayerTime t;
  t.forward = direction(c, job, false, sm_share);
  t.backward = direction(c, job, true, sm_share);
  for (Pass p : {Pass::forward, Pass::dgrad, Pass::wgrad, Pass::recompute}) {
    t.total_comm[index(Comm::tp)] += c.comm(p, Family::tp_comm);
    t.total_comm[index(Comm::cp)] += c.comm(p, Family::cp_comm);
    t.total_comm[index(Comm::ep)] += c.comm(p, Family::ep_comm);
  }
  const bool merges = c.has(Overlap::ep_a2a);
  t.pair = merges ? merged(c, t, sm_share) : t.forward;
  if (!merges) t.pair += t.backward;
  return t;
}

void BlockTimes::reset(const job::Job& job, cost::Pricer& pricer) {
  job_ = &job;
  pricer_ = &pricer;
  key_ = layer::job_key(job);
  sm_share_ = static_cast<double>(pricer.dispatcher_sms(job.techniques)) / pricer.cluster().gpu.sms;
  for (Entry& entry : entries_) entry.cost = nullptr;
}

const BlockTimes::Entry& BlockTimes::get(layer::BlockRole role, model::LayerKind kind) {
  const int slot = role == layer::BlockRole::layer
                       ? kind.index()
                       : model::kLayerKinds - 1 + static_cast<int>(role);
  Entry& entry = entries_[static_cast<std::size_t>(slot)];
  if (entry.cost == nullptr) {
    entry.cost = &pricer_->block(*job_, key_, role, kind);
    entry.time = layer_time(*job_, *entry.cost, pricer_->constants(), sm_share_);
    entry.forward_s = entry.time.forward.sum(), entry.backward_s = entry.time.backward.sum();
    entry.pair_s = entry.time.pair.sum();
  }
  return entry;
}

void StageContent::add(const job::Job& job, const layout::Chunk& chunk) {
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i] += chunk.of_kind[i];
  layers[static_cast<std::size_t>(job.model.mtp_kind().index())] += chunk.mtp;
  decoder_layers += chunk.layers;
  embeddings += chunk.embedding;
  mtp += chunk.mtp;
  if (chunk.loss) heads += 1 + static_cast<int>(job.model.mtp_layers);
}

StageContent content_of(const job::Job& job, const layout::Pipeline& pipeline, int stage) {
  StageContent c;
  for (int k = 0; k < pipeline.vpp; ++k) c.add(job, pipeline.at(stage, k));
  return c;
}

void stage_time(const job::Job& job, const StageContent& content, int vpp,
                const cost::Pricer& pricer, BlockTimes& blocks, StageTime& out) {
  out = StageTime{};
  double wgrad = 0;
  for_each_block(content, [&](layer::BlockRole role, model::LayerKind kind, double times) {
    const BlockTimes::Entry& block = blocks.get(role, kind);
    out.work.forward += block.time.forward.scaled(times);
    out.work.backward += block.time.backward.scaled(times);
    out.work.pair += block.time.pair.scaled(times);
    for (std::size_t i = 0; i < kComms; ++i)
      out.work.total_comm[i] += block.time.total_comm[i] * times;
    for (std::size_t i = 0; i < 4; ++i)
      out.basis_seconds[i] += block.cost->basis_seconds[i] * times;
    out.variance += block.cost->variance * times * times;
    wgrad += block.cost->compute_of(Pass::wgrad) * times;
  });
  offload(job, pricer, content, out.work);
  out.forward_chunk = out.work.forward.sum() / vpp;
  out.backward_chunk = out.work.backward.sum() / vpp;
  out.wgrad_chunk = wgrad / vpp;
}

void stage_time(const job::Job& job, const layout::Pipeline& pipeline, int stage,
                const cost::Pricer& pricer, BlockTimes& blocks, StageTime& out) {
  stage_time(job, content_of(job, pipeline, stage), pipeline.vpp, pricer, blocks, out);
}

}  // namespace trifold::estimate

// SPDX-License-Identifier: Apache-2.0
// Units to tasks. A unit is a marker (its input has arrived), its layers in order, and a send.
// Un-overlapped layers are one chain through compute and link streams; merge.cc and
// megascale.cc have the others. A layer's direction ends with its wait for the host.
//
// Sends: batched with the opposite receive and waited for on both sides (two a micro-batch on every
// stage in the steady state), except under interleaving with `pipeline_p2p`, where the receiver
// alone waits (megatron.md 4.3). Of tensor- and context-parallel transfers that overlap, the
// profile's exposed share blocks and the rest runs beside what follows.
#include "schedule/lower.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "cost/step.h"
#include "layer/expert_load.h"
#include "schedule/lowering.h"

namespace trifold::schedule {

using job::Overlap;
using layer::Segment;

namespace {

constexpr TimedOp kMarker{"ready", 0, Stream::compute, Category::compute};
constexpr TimedOp kHost{"wait for host", 0, Stream::compute, Category::host};
constexpr double kTileTail = 0.1;  // of a fused tile pipeline: prologue and epilogue
constexpr std::size_t kLoadDraws = 64;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

const layout::Chunk& chunk_at(const layout::Pipeline& pipeline, const Program& program, int stage,
                              int chunk) {
  if (program.placement == Placement::two_way)
    return pipeline.at(chunk == 0 ? stage : pipeline.pp - 1 - stage, 0);
  return pipeline.at(stage, chunk);
}

Lowering::Lowering(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
                   const LoweringOptions& options, Lowered& out)
    : job_(job),
      pipeline_(pipeline),
      pricer_(pricer),
      options_(options),
      out_(out),
      step_(out.step) {}

void Lowering::add_streams() {
  step_.graph.clear();
  step_.tasks.clear();
  step_.memory.clear();
  for (int r = 0; r < out_.program.pp; ++r) {
    const sim::Index domain = step_.graph.add_domain();
    for (int s = 0; s < kStreams; ++s) step_.graph.add_stream(domain);
  }
  barrier_stream_ = step_.graph.add_stream(step_.graph.add_domain());
  const std::size_t units = at(out_.program.pp * out_.program.chunks * out_.program.microbatches);
  for (std::vector<sim::Index>* v :
       {&forward_in_, &backward_in_, &forward_out_, &backward_out_, &wgrad_end_, &offload_end_})
    v->assign(units, kNone);
  const std::size_t chunks = at(out_.program.pp * out_.program.chunks);
  for (std::vector<sim::Index>* v : {&first_forward_, &gathers_, &reduces_})
    v->assign(chunks, kNone);
}

const BlockProgram& Lowering::program_of(const layout::Chunk& chunk, int layer) const {
  if (layer >= chunk.layers) return out_.programs.layer[job_.model.mtp_kind().index()];
  return out_.programs.layer[job_.model.layers[at(chunk.first_layer + layer)].index()];
}

sim::Picoseconds Lowering::scaled(const Unit& u, const TimedOp& op, int layer) const {
  if (!op.scales_with_load || load_factors_.empty()) return op.work;
  const std::int64_t key[3] = {u.microbatch, out_.program.virtual_stage(u.stage, u.chunk), layer};
  const std::uint64_t h = fnv1a(key, sizeof key, options_.seed + 1);
  const double factor = load_factors_[(h ^ (h >> 29)) % load_factors_.size()];
  return static_cast<sim::Picoseconds>(static_cast<double>(op.work) * factor);
}

sim::Index Lowering::add(const Unit& u, const TimedOp& op, sim::Picoseconds work, int layer,
                         Work kind, sim::Index after) {
  const sim::Index task =
      step_.graph.add_task(u.stage * kStreams + static_cast<int>(op.stream), work, op.load);
  step_.tasks.push_back({&op, u.microbatch, static_cast<std::int16_t>(u.chunk),
                         static_cast<std::int16_t>(layer), -1, kind});
  if (after >= 0 && after != step_.graph.previous_in_stream(task))
    step_.graph.add_dependency(after, task);
  return task;
}

double Lowering::blocking_share(const TimedOp& op) const {
  if (op.regather) return std::min(tp_share_, pricer_.constants().tp_overlap_exposed);
  return op.category == Category::tp ? tp_share_ : op.category == Category::cp ? cp_share_ : 1;
}

// A transfer that partly hides runs that part beside the GEMM or the attention that feeds it (a
// scatter, a backward ring), or beside what follows (a gather, a ring).
sim::Index Lowering::chain(const Unit& u, const BlockProgram& program, const Piece& piece,
                           int layer, Work kind, sim::Index after, double part) {
  const auto time = [&](const TimedOp& op, double share) {
    return static_cast<sim::Picoseconds>(static_cast<double>(scaled(u, op, layer)) * share + 0.5);
  };
  bool hidden_already = false;
  for (int i = piece.begin; i < piece.end; ++i) {
    const TimedOp& op = program.ops[at(i)];
    const double share = blocking_share(op);
    if (share >= 1) {
      const TimedOp* next = i + 1 < piece.end ? &program.ops[at(i + 1)] : nullptr;
      const bool feeds =
          next != nullptr && blocking_share(*next) < 1 &&
          (op.family == layer::Family::gemm
               ? next->category == Category::tp
               : op.family == layer::Family::attention && next->category == Category::cp);
      if (feeds) {
        const double hidden = part * (1 - blocking_share(*next));
        add(u, hidden_part(*next), time(*next, hidden), layer, kind, after);
      }
      hidden_already = feeds;
      after = add(u, op, time(op, part), layer, kind, after);
      continue;
    }
    after = add(u, op, time(op, part * share), layer, kind, after);
    if (!hidden_already) add(u, hidden_part(op), time(op, part * (1 - share)), layer, kind, after);
    hidden_already = false;
  }
  return after;
}

sim::Index Lowering::host_wait(const Unit& u, double seconds, Work kind, sim::Index after) {
  const sim::Picoseconds wait = sim::to_picoseconds(seconds);
  return wait > 0 ? add(u, kHost, wait, -1, kind, after) : after;
}

sim::Index Lowering::marker(const Unit& u, Work kind) {
  return add(u, kMarker, 0, -1, kind, kNone);
}

sim::Index Lowering::begin_unit(const Unit& u, bool forward) {
  const sim::Index task = marker(u, forward ? Work::forward : Work::backward);
  (forward ? forward_in_ : backward_in_)[unit_index(u)] = task;
  const std::size_t chunk = at(u.stage * out_.program.chunks + u.chunk);
  if (forward) {
    if (first_forward_[chunk] < 0) first_forward_[chunk] = task, depend(gathers_[chunk], task);
  }
  return task;
}

void Lowering::end_unit(const Unit& u, bool forward, sim::Index last) {
  int stage = 0, chunk = 0;
  const bool goes_on = forward ? out_.program.after(u.stage, u.chunk, stage, chunk)
                               : out_.program.before(u.stage, u.chunk, stage, chunk);
  if (goes_on && stage != u.stage) {
    last = add(u, forward ? out_.programs.send_forward : out_.programs.send_backward,
               sim::to_picoseconds(send_s_), -1, forward ? Work::forward : Work::backward, last);
    step_.tasks.back().receiver = static_cast<std::int16_t>(stage);
    if (blocking_sends_) depend(last, marker(u, forward ? Work::forward : Work::backward));
  }
  (forward ? forward_out_ : backward_out_)[unit_index(u)] = last;
}

sim::Index Lowering::forward_layer(const Unit& u, int layer, sim::Index after) {
  const BlockProgram& b = program_of(chunk_of(u), layer);
  gather_layer(u, layer, true);
  if (is_mtp(u, layer))
    after = chain(u, out_.programs.mtp_projection, out_.programs.mtp_projection.forward, layer,
                  Work::forward, after);
  after = overlapped_ && b.routed ? overlapped_forward(u, b, layer, after)
                                  : chain(u, b, b.forward, layer, Work::forward, after);
  after = host_wait(u, b.wait_forward_s, Work::forward, after);
  offload_layer(u, layer, after);
  return after;
}

sim::Index Lowering::backward_layer(const Unit& u, int layer, bool split, sim::Index after) {
  const BlockProgram& b = program_of(chunk_of(u), layer);
  gather_layer(u, layer, false);
  reload_layer(u, layer);
  if (split)
    after = chain(u, b, b.dgrad, layer, Work::backward, after);
  else if (overlapped_ && b.routed)
    after = overlapped_backward(u, b, layer, after);
  else
    after = chain(u, b, b.backward, layer, Work::backward, after);
  if (is_mtp(u, layer))
    after = chain(u, out_.programs.mtp_projection, out_.programs.mtp_projection.backward, layer,
                  Work::backward, after);
  after = host_wait(u, b.wait_backward_s, Work::backward, after);
  scatter_layer(u, layer, after);
  return after;
}

void Lowering::forward_unit(const Unit& u) {
  const layout::Chunk& c = chunk_of(u);
  sim::Index last = begin_unit(u, true);
  step_.memory.push_back(
      {last, static_cast<std::int16_t>(u.stage), static_cast<std::int16_t>(u.chunk), 1, true});
  if (c.embedding)
    last =
        chain(u, out_.programs.embedding, out_.programs.embedding.forward, -1, Work::forward, last);
  for (int i = 0; i < layers_of(c); ++i) last = forward_layer(u, i, last);
  for (int i = 0; c.loss && i < 1 + job_.model.mtp_layers; ++i)
    last = chain(u, out_.programs.head, out_.programs.head.forward, -1, Work::forward, last);
  end_unit(u, true, last);
}

void Lowering::backward_unit(const Unit& u, bool split) {
  const layout::Chunk& c = chunk_of(u);
  sim::Index last = begin_unit(u, false);
  const BlockProgram& head = out_.programs.head;
  for (int i = 0; c.loss && i < 1 + job_.model.mtp_layers; ++i)
    last = chain(u, head, split ? head.dgrad : head.backward, -1, Work::backward, last);
  for (int i = layers_of(c) - 1; i >= 0; --i) last = backward_layer(u, i, split, last);
  if (c.embedding)
    last = chain(u, out_.programs.embedding, out_.programs.embedding.backward, -1, Work::backward,
                 last);
  end_unit(u, false, last);
  if (!split) {
    wgrad_end_[unit_index(u)] = last;
    step_.memory.push_back(
        {last, static_cast<std::int16_t>(u.stage), static_cast<std::int16_t>(u.chunk), -1});
  }
}

void Lowering::wgrad_unit(const Unit& u) {
  const layout::Chunk& c = chunk_of(u);
  sim::Index last = backward_in_[unit_index(u)];
  const BlockProgram& head = out_.programs.head;
  for (int i = 0; c.loss && i < 1 + job_.model.mtp_layers; ++i)
    last = chain(u, head, head.wgrad, -1, Work::wgrad, last);
  for (int i = layers_of(c) - 1; i >= 0; --i) {
    const BlockProgram& b = program_of(c, i);
    last = chain(u, b, b.wgrad, i, Work::wgrad, last);
  }
  wgrad_end_[unit_index(u)] = last;
  step_.memory.push_back(
      {last, static_cast<std::int16_t>(u.stage), static_cast<std::int16_t>(u.chunk), -1});
}

void Lowering::emit_stage(int stage) {
  pending_gather_ = pending_reload_ = kNone;  // ahead of what runs next on this stage
  for (const Slot& s : out_.program.stages[at(stage)]) {
    const Unit u{stage, s.chunk, s.microbatch};
    switch (s.work) {
      case Work::forward:
        forward_unit(u);
        break;
      case Work::backward:
        backward_unit(u, s.split);
        break;
      case Work::wgrad:
        wgrad_unit(u);
        break;
      case Work::merged:
        merged_unit(u, {stage, s.backward_chunk, s.backward_microbatch});
        break;
    }
  }
}

void Lowering::connect() {
  const Program& p = out_.program;
  for (int r = 0; r < p.pp; ++r)
    for (int c = 0; c < p.chunks; ++c) {
      int stage = 0, chunk = 0;
      const bool before = p.before(r, c, stage, chunk);
      int next_stage = r, next_chunk = c;
      const bool after = p.after(r, c, next_stage, next_chunk);
      for (int m = 0; m < p.microbatches; ++m) {
        const std::size_t u = unit_index({r, c, m});
        if (before) depend(forward_out_[unit_index({stage, chunk, m})], forward_in_[u]);
        depend(after ? backward_out_[unit_index({next_stage, next_chunk, m})] : forward_out_[u],
               backward_in_[u]);
      }
    }
}

// Shares of the busiest rank of an expert-parallel group over their mean: draws with the Job's
// distribution, or a Dirichlet around equal shares where routing is natural and unstated.
void Lowering::draw_loads() {
  load_factors_.clear();
  const job::Routing& r = job_.techniques.routing;
  const bool natural =
      r.balance != job::Balance::forced &&
      (r.balance == job::Balance::natural || r.distribution != job::LoadDistribution::balanced);
  if (!options_.vary_load || !job_.model.is_moe() || !natural) return;
  const int experts = static_cast<int>(job_.model.moe.experts);
  const int ranks = std::max(1, job_.layout.ep);
  Random random(options_.seed ^ static_cast<std::uint64_t>(r.seed));
  const double parameter = r.parameters.empty() ? 0 : r.parameters[0];
  double mean = 0;
  for (std::size_t i = 0; i < kLoadDraws; ++i) {
    std::vector<double> shares =
        r.distribution == job::LoadDistribution::zipf
            ? zipf_shares(experts, parameter)
            : dirichlet_shares(experts, parameter > 0 ? parameter : 4.0, random);
    for (std::size_t k = shares.size(); k > 1; --k)
      std::swap(shares[k - 1], shares[random.below(k)]);
    std::vector<double> rank(at(ranks), 0);
    for (std::size_t k = 0; k < shares.size(); ++k)
      rank[k * rank.size() / shares.size()] += shares[k];
    load_factors_.push_back(*std::max_element(rank.begin(), rank.end()));
    mean += load_factors_.back() / static_cast<double>(kLoadDraws);
  }
  for (double& f : load_factors_) f /= mean;
}

double Lowering::device_s(const BlockProgram& b, const Piece& piece) const {
  double seconds = 0;
  for (int i = piece.begin; i < piece.end; ++i) {
    const TimedOp& op = b.ops[at(i)];
    const double share = blocking_share(op);
    seconds += share * sim::to_seconds(op.work);
  }
  return seconds;
}

void Lowering::set_host_waits() {
  const auto set = [&](BlockProgram& b) {
    b.wait_forward_s = cost::host_wait_s(device_s(b, b.forward), b.host_forward_s);
    b.wait_backward_s = cost::host_wait_s(device_s(b, b.backward), b.host_backward_s);
  };
  for (BlockProgram& b : out_.programs.layer) set(b);
  set(out_.programs.embedding);
  set(out_.programs.head);
  set(out_.programs.mtp_projection);
}

void Lowering::run() {
  const job::Techniques& t = job_.techniques;
  const layout::ScheduleShape shape = job_.schedule_shape();
  build_programs(job_, pipeline_, pricer_, options_, out_.programs);
  out_.program = build_program(shape);
  merged_ = t.has(Overlap::ep_a2a);
  overlapped_ =
      t.has(Overlap::shared_expert) || t.has(Overlap::inter_op) || t.has(Overlap::intra_op);
  const cost::Constants& k = pricer_.constants();
  if (t.has(Overlap::tp_comm)) tp_share_ = k.tp_overlap_exposed;
  const bool ring = job_.layout.ulysses_sp <= 1 && t.cp_comm == job::CpComm::p2p;
  if (ring) cp_share_ = k.cp_overlap_exposed;
  if (t.has(Overlap::intra_op)) {
    tp_share_ = std::min(tp_share_, kTileTail);
    cp_share_ = std::min(cp_share_, kTileTail);
  }
  if (job_.layout.pp > 1) send_s_ = cost::pipeline_send(job_, pricer_).seconds;
  blocking_sends_ = job_.layout.vpp == 1 || !t.has(Overlap::pipeline_p2p);
  step_.post_validated = layout::is_zero_bubble(shape.kind);
  step_.stages = out_.program.pp;
  set_host_waits();
  draw_loads();
  add_streams();
  begin_step();
  for (int r = 0; r < out_.program.pp; ++r) emit_stage(r);
  connect();
  end_step();
}

void lower(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
           const LoweringOptions& options, Lowered& out) {
  Lowering(job, pipeline, pricer, options, out).run();
}

}  // namespace trifold::schedule

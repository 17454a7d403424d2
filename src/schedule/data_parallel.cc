// SPDX-License-Identifier: Apache-2.0
// Data parallelism and the end of a step, on the data stream of each stage.
//
// Gradients (megatron.md 4.5): one bucket a chunk, but max(40e6, 1e6 x DP x CP) elements on the
// first chunk of the first stage. With `grad_reduce` a bucket goes when its gradients of the last
// micro-batch are ready, else one transfer a chunk after the stage's last backward. Dense
// parameters reduce over dp x cp, experts over edp. Parameters: with `param_gather` chunks 0 and 1
// are gathered at the start of the step and chunk k + 1 when the first forward of chunk k starts; a
// chunk's first forward waits for its gather. Else they are gathered after the optimizer. FSDP: a
// layer's parameters are gathered before its forward and before its backward and its gradients
// reduced after, every micro-batch; with overlap one layer ahead. Optimizer: reads and writes
// master weights, moments, gradients and parameters at HBM rate, and a fixed part; every stage
// waits for all gradients (the norm), except under zero-bubble schedules (post-validation,
// 2401.10241 section 4).
#include <algorithm>

#include "hardware/fabric.h"
#include "memory/stage.h"
#include "model/size.h"
#include "schedule/lowering.h"

namespace trifold::schedule {

using hardware::Collective;
using job::Overlap;

namespace {

constexpr TimedOp kReduce{"reduce gradients", 0, Stream::data, Category::dp};
constexpr TimedOp kGather{"gather parameters", 0, Stream::data, Category::dp};
constexpr TimedOp kOptimizer{"optimizer", 0, Stream::compute, Category::optimizer};
constexpr TimedOp kHostOptimizer{"optimizer on host", 0, Stream::compute, Category::host};
constexpr TimedOp kBarrier{"gradient norm", 0, Stream::compute, Category::optimizer};
constexpr double kCpuAdamSeconds = 1.5e-9;  // a parameter, as estimate/data_parallel.cc

std::size_t at(int i) { return static_cast<std::size_t>(i); }

double gather_bytes(const job::Training& t) {
  if (!t.optimizer.fp8_param_gather) return 2;
  switch (t.precision) {
    case job::Precision::bf16:
    case job::Precision::mxfp8:
      return 2;
    case job::Precision::nvfp4:
      return 0.5625;
    default:
      return 1;
  }
}

struct Elements {
  double dense = 0, experts = 0;
};

Elements elements_of(const job::Job& job, const layout::Chunk& c) {
  const model::Model& m = job.model;
  const double tp = job.layout.tp;
  const double expert_ranks = static_cast<double>(job.layout.ep) * job.layout.etp;
  const double vocabulary =
      static_cast<double>(m.hidden * model::padded_vocab(m, job.layout.tp)) / tp;
  Elements e;
  e.dense += vocabulary * ((c.embedding || c.mtp > 0 ? 1 : 0) + (c.loss ? 1 : 0));
  e.dense += c.mtp * 2.0 * static_cast<double>(m.hidden * m.hidden) / tp;
  for (int i = 0; i < model::kLayerKinds; ++i) {
    const int layers = c.of_kind[at(i)] + (i == m.mtp_kind().index() ? c.mtp : 0);
    if (layers == 0) continue;
    const model::LayerParameters l = model::layer_parameters(m, model::LayerKind::from_index(i));
    e.dense += layers * (static_cast<double>(l.attention + l.dense_ffn + l.shared) / tp +
                         static_cast<double>(l.norms + l.router));
    e.experts += layers * static_cast<double>(l.experts) / expert_ranks;
  }
  return e;
}

}  // namespace

DataWork Lowering::data_work(const layout::Chunk& chunk, bool) const {
  const layout::Layout& l = job_.layout;
  const job::Optimizer& o = job_.training.optimizer;
  const Elements e = elements_of(job_, chunk);
  const bool compressed =
      job_.techniques.gradient_compression == job::GradientCompression::bf16_all_to_all;
  const bool sharded = o.distributed || l.fsdp;
  const hardware::GroupSpan spans[2] = {
      hardware::span_of(job_.cluster, 0, job_.dp() * l.sequence_ranks(), l.tp),
      hardware::span_of(job_.cluster, 0, job_.edp(), l.etp * l.ep)};
  const double elements[2] = {e.dense, e.experts};
  DataWork work;
  for (int i = 0; i < 2; ++i) {
    const double reduced = elements[i] * (compressed ? 2 : bytes_of(o.grad_reduce));
    const Collective op = compressed ? Collective::all_to_all
                          : sharded  ? Collective::reduce_scatter
                                     : Collective::all_reduce;
    work.reduce_s += pricer_.collective_seconds(op, spans[i], reduced);
    if (sharded)
      work.gather_s += pricer_.collective_seconds(Collective::all_gather, spans[i],
                                                  elements[i] * gather_bytes(job_.training));
    work.elements += elements[i];
    work.sharded_elements += elements[i] / (sharded ? spans[i].ranks : 1);
  }
  return work;
}

sim::Index Lowering::data_task(int stage, int chunk, const TimedOp& op, double seconds,
                               sim::Index after) {
  const Unit u{stage, chunk, 0};
  const sim::Index task = add(u, op, sim::to_picoseconds(seconds), -1, Work::backward, after);
  step_.tasks.back().microbatch = -1;
  return task;
}

void Lowering::begin_step() {
  const Program& p = out_.program;
  data_.clear();
  for (int r = 0; r < p.pp; ++r)
    for (int c = 0; c < p.chunks; ++c)
      data_.push_back(data_work(chunk_at(pipeline_, p, r, c), false));
  last_backward_layer_.clear();
  layer_copy_s_.clear();
  pending_gather_ = pending_reload_ = kNone;
  const job::Offload& o = job_.techniques.offload;
  if (!o.activation_modules.empty() || o.activation_layers > 0) {
    const memory::Tables t = memory::tables_of(job_, pipeline_);
    const double rate =
        pricer_.cluster().host_bandwidth.value() * pricer_.constants().host_link_efficiency;
    for (const memory::LayerBytes& b : t.layer)
      layer_copy_s_.push_back(
          static_cast<double>(b.offloaded + (o.activation_layers > 0 ? b.kept : 0)) * o.fraction /
          rate);
  }
  if (job_.layout.fsdp || !job_.techniques.has(Overlap::param_gather)) return;
  for (int r = 0; r < p.pp; ++r)
    for (int c = 0; c < p.chunks; ++c) {
      const std::size_t i = at(r * p.chunks + c);
      if (data_[i].gather_s > 0) gathers_[i] = data_task(r, c, kGather, data_[i].gather_s, kNone);
    }
}

// A layer's share of its chunk's transfers (FSDP).
void Lowering::gather_layer(const Unit& u, int layer, bool forward) {
  if (!job_.layout.fsdp) return;
  const DataWork& w = data_[at(u.stage * out_.program.chunks + u.chunk)];
  const int layers = std::max(1, layers_of(chunk_of(u)));
  const bool ahead =
      job_.techniques.has(Overlap::fsdp) || job_.techniques.has(Overlap::param_gather);
  const Work kind = forward ? Work::forward : Work::backward;
  const sim::Index before = marker(u, kind);
  const sim::Index start = ahead ? pending_gather_ : before;
  const sim::Index task =
      add(u, kGather, sim::to_picoseconds(w.gather_s / layers), layer, kind, start);
  depend(task, marker(u, kind));
  pending_gather_ = before;
}

void Lowering::scatter_layer(const Unit& u, int layer, sim::Index after) {
  const std::size_t i = at(u.stage * out_.program.chunks + u.chunk);
  if (job_.layout.fsdp) {
    const int layers = std::max(1, layers_of(chunk_of(u)));
    const bool ahead =
        job_.techniques.has(Overlap::fsdp) || job_.techniques.has(Overlap::param_gather);
    const sim::Index task = add(u, kReduce, sim::to_picoseconds(data_[i].reduce_s / layers), layer,
                                Work::backward, after);
    if (!ahead) depend(task, marker(u, Work::backward));
    reduces_[i] = task;
  } else if (u.stage == 0 && u.chunk == 0 && u.microbatch == out_.program.microbatches - 1) {
    last_backward_layer_.push_back(after);
  }
}

void Lowering::reduce_chunk(int stage, int chunk) {
  const Program& p = out_.program;
  const std::size_t i = at(stage * p.chunks + chunk);
  const sim::Index ready = wgrad_end_[unit_index({stage, chunk, p.microbatches - 1})];
  const double seconds = data_[i].reduce_s;
  if (job_.layout.fsdp || seconds <= 0) return;
  const double bucket = std::max(40e6, 1e6 * job_.dp() * job_.layout.sequence_ranks());
  const int layers = static_cast<int>(last_backward_layer_.size());
  const int buckets =
      stage == 0 && chunk == 0 && job_.techniques.has(Overlap::grad_reduce)
          ? std::clamp(static_cast<int>(data_[i].elements / bucket), 1, std::max(1, layers))
          : 1;
  for (int b = 0; b < buckets; ++b) {
    const int layer = layers * (b + 1) / buckets - 1;
    const sim::Index after =
        b + 1 == buckets || layer < 0 ? ready : last_backward_layer_[at(layer)];
    reduces_[i] = data_task(stage, chunk, kReduce, seconds / buckets, after);
  }
}

sim::Index Lowering::optimizer(int stage, sim::Index after) {
  const job::Optimizer& o = job_.training.optimizer;
  const Unit u{stage, 0, 0};
  double elements = 0;
  for (int c = 0; c < out_.program.chunks; ++c)
    elements += data_[at(stage * out_.program.chunks + c)].sharded_elements;
  const double state = 2 * bytes_of(o.main_params) + 4 * bytes_of(o.moments);
  const double touched = state + bytes_of(o.main_grads) + 2;
  const double link =
      pricer_.cluster().host_bandwidth.value() * pricer_.constants().host_link_efficiency;
  double host = 0;
  if (job_.techniques.offload.optimizer == job::OptimizerOffload::cpu_adam) {
    const double share = job_.techniques.offload.fraction;
    host = share * elements * ((bytes_of(o.main_grads) + 2) / link + kCpuAdamSeconds);
    elements *= 1 - share;
  } else if (job_.techniques.offload.optimizer == job::OptimizerOffload::states_parked_on_host) {
    host = elements * state / 2 / link;
  }
  const double seconds =
      pricer_.memory_seconds(elements * touched) + pricer_.step_end_seconds(job_.gpus);
  after = add(u, kOptimizer, sim::to_picoseconds(seconds), -1, Work::backward, after);
  if (host > 0)
    after = add(u, kHostOptimizer, sim::to_picoseconds(host), -1, Work::backward, after);
  return after;
}

void Lowering::end_step() {
  const Program& p = out_.program;
  const bool overlap = job_.techniques.has(Overlap::grad_reduce);
  for (int r = 0; r < p.pp; ++r) {
    // Gathers of later chunks wait for the first forward of the chunk before.
    for (int c = 1; c + 1 < p.chunks; ++c)
      depend(first_forward_[at(r * p.chunks + c)], gathers_[at(r * p.chunks + c + 1)]);
    const sim::Index done = overlap || job_.layout.fsdp ? kNone : marker({r, 0, 0}, Work::backward);
    for (int c = p.chunks - 1; c >= 0; --c) {
      reduce_chunk(r, c);
      depend(done, reduces_[at(r * p.chunks + c)]);
    }
  }
  sim::Index norm = kNone;
  if (!step_.post_validated) {
    norm = step_.graph.add_task(barrier_stream_, 0);
    step_.tasks.push_back({&kBarrier});
    for (const sim::Index reduce : reduces_) depend(reduce, norm);
  }
  for (int r = 0; r < p.pp; ++r) {
    const sim::Index ready = marker({r, 0, 0}, Work::backward);
    if (norm >= 0 && p.pp > 1) depend(ready, norm);
    for (int c = 0; c < p.chunks; ++c)
      depend(reduces_[at(r * p.chunks + c)], marker({r, 0, 0}, Work::backward));
    const sim::Index updated = optimizer(r, norm);
    if (job_.layout.fsdp || job_.techniques.has(Overlap::param_gather)) continue;
    for (int c = 0; c < p.chunks; ++c) {
      const DataWork& w = data_[at(r * p.chunks + c)];
      if (w.gather_s > 0) data_task(r, c, kGather, w.gather_s, updated);
    }
  }
}

}  // namespace trifold::schedule

// SPDX-License-Identifier: Apache-2.0
// Data parallelism and the end of a step, on the data stream of each stage.
//
// Gradients (megatron.md 4.5): one bucket a chunk, but max(40e6, 1e6 x DP x CP) elements on the
// first chunk of the first stage. With `grad_reduce` a bucket goes when its gradients of the last
// micro-batch are ready, else one transfer a chunk after the stage's last backward. Parameters:
// with `param_gather` chunks 0 and 1 are gathered at the start of the step and chunk k + 1 when the
// first forward of chunk k starts; a chunk's first forward waits for its gather. Else they are
// gathered after the optimizer. FSDP: a layer's parameters are gathered before its forward and
// before its backward and its gradients reduced after, every micro-batch; with overlap one layer
// ahead. Optimizer: every stage waits for all gradients (the norm), except under zero-bubble
// schedules (post-validation, 2401.10241 section 4). Seconds are cost/step.h's.
#include <algorithm>

#include "memory/stage.h"
#include "schedule/lowering.h"

namespace trifold::schedule {

using job::Overlap;

namespace {

constexpr TimedOp kHostOptimizer{"optimizer on host", 0, Stream::compute, Category::host};
constexpr TimedOp kBarrier{"gradient norm", 0, Stream::compute, Category::optimizer};

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

DataWork Lowering::data_work(const layout::Chunk& chunk) const {
  const cost::StageParameters held = cost::chunk_parameters(job_, chunk);
  const cost::DataParallelTerms terms = cost::data_parallel_terms(job_, held, pricer_);
  return {held, terms.reduce_s, terms.gather_s};
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
    for (int c = 0; c < p.chunks; ++c) data_.push_back(data_work(chunk_at(pipeline_, p, r, c)));
  last_backward_layer_.clear();
  layer_copy_s_.clear();
  if (job_.techniques.offload.activations())
    for (const bool moe : {false, true})
      layer_copy_s_.push_back(static_cast<double>(memory::host_bytes(job_, moe)) /
                              pricer_.host_copy_rate());
  if (job_.layout.fsdp || !job_.techniques.has(Overlap::param_gather)) return;
  for (int r = 0; r < p.pp; ++r)
    for (int c = 0; c < p.chunks; ++c) {
      const std::size_t i = at(r * p.chunks + c);
      if (data_[i].gather_s > 0)
        gathers_[i] = data_task(r, c, out_.programs.gather, data_[i].gather_s, kNone);
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
      add(u, out_.programs.gather, sim::to_picoseconds(w.gather_s / layers), layer, kind, start);
  depend(task, marker(u, kind));
  pending_gather_ = before;
}

void Lowering::scatter_layer(const Unit& u, int layer, sim::Index after) {
  const std::size_t i = at(u.stage * out_.program.chunks + u.chunk);
  if (job_.layout.fsdp) {
    const int layers = std::max(1, layers_of(chunk_of(u)));
    const bool ahead =
        job_.techniques.has(Overlap::fsdp) || job_.techniques.has(Overlap::param_gather);
    const sim::Index task =
        add(u, out_.programs.reduce, sim::to_picoseconds(data_[i].reduce_s / layers), layer,
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
          ? std::clamp(static_cast<int>((data_[i].held.dense + data_[i].held.experts) / bucket), 1,
                       std::max(1, layers))
          : 1;
  for (int b = 0; b < buckets; ++b) {
    const int layer = layers * (b + 1) / buckets - 1;
    const sim::Index after =
        b + 1 == buckets || layer < 0 ? ready : last_backward_layer_[at(layer)];
    reduces_[i] = data_task(stage, chunk, out_.programs.reduce, seconds / buckets, after);
  }
}

sim::Index Lowering::optimizer(int stage, sim::Index after) {
  const Unit u{stage, 0, 0};
  cost::StageParameters held;
  for (int c = 0; c < out_.program.chunks; ++c) {
    const cost::StageParameters& chunk = data_[at(stage * out_.program.chunks + c)].held;
    held.dense += chunk.dense, held.experts += chunk.experts;
  }
  const cost::DataParallelTerms terms = cost::data_parallel_terms(job_, held, pricer_);
  after = add(u, out_.programs.optimizer, sim::to_picoseconds(terms.optimizer_s), -1,
              Work::backward, after);
  if (terms.host_s > 0)
    after = add(u, kHostOptimizer, sim::to_picoseconds(terms.host_s), -1, Work::backward, after);
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
      if (w.gather_s > 0) data_task(r, c, out_.programs.gather, w.gather_s, updated);
    }
  }
}

}  // namespace trifold::schedule

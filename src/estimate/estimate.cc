// SPDX-License-Identifier: Apache-2.0

// The step.
//   T = max over stages (busy + bubble + data-parallel tail + optimizer) + pipeline sends.
//   busy = m micro-batches of the stage's work; under EP overlap the units of warm-up and cool-down
//   run un-merged, and layers without a partner (lockstep.h). bubble (1F1B, interleaved): the
//   other stages' first micro-batch, one mean chunk each way: sum over r != slowest of (F_r + B_r)
//   / v, and what unequal chunks cost (lockstep.h too); zero-bubble kinds subtract the deferred
//   weight gradients (arXiv:2401.10241), DualPipe halves the depth. Sends: overlapped (interleaved)
//   ones show a fraction, and in warm-up and cool-down what round_wait says; others stand on the
//   path, one each way per chunk.
// Known error: 5-6 % (one sigma) for stated settings on a GPU type with fitted constants; the
// interval says what holds.

#include "estimate/estimate.h"

#include <algorithm>
#include <cmath>

#include "cost/step.h"
#include "estimate/data_parallel.h"
#include "job/legality.h"
#include "job/profile.h"
#include "layout/in_flight.h"
#include "model/size.h"

namespace trifold::estimate {

using job::Overlap;

namespace {

constexpr auto index(Comm c) { return static_cast<std::size_t>(c); }

// Work of a stage over the step.
Duration busy(const job::Job& job, const StageTime& stage, int stage_index, double paired) {
  const double m = static_cast<double>(job.microbatches());
  if (!job.techniques.has(Overlap::ep_a2a)) return stage.work.pair.scaled(m);
  const layout::ScheduleShape shape = job.schedule_shape();
  const double units = m * job.layout.vpp;
  const double alone =
      std::min(units, static_cast<double>(std::max(1, layout::warmup_units(shape, stage_index))));
  const double merged = paired * (units - alone) / units;
  Duration d = stage.work.pair.scaled(m * merged);
  d += stage.work.forward.scaled(m * (1 - merged));
  d += stage.work.backward.scaled(m * (1 - merged));
  return d;
}

}  // namespace

double bubble_seconds(layout::ScheduleKind kind, double forward, double backward, double wgrad) {
  using layout::ScheduleKind;
  switch (kind) {
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved:
      return forward + backward;
    case ScheduleKind::zb_h1:
      return std::max(0.0, forward + backward - 2 * wgrad);
    case ScheduleKind::zb_h2:
      return std::max(0.0, forward + backward - 3 * wgrad);
    case ScheduleKind::zb_v:
      return std::max(0.0, (forward + backward - 3 * wgrad) / 2);
    case ScheduleKind::dualpipe:
    case ScheduleKind::dualpipe_v:
      return std::max(0.0, (forward + backward) / 2 + (backward - 3 * wgrad) / 2);
  }
  return 0;
}

namespace {

// Of a chunk's round in warm-up or cool-down: a stage is done with N units of one chunk, and the
// first unit of the next is back when it went round the ring. N = p leaves the sends no slack.
double round_wait(const layout::ScheduleShape& shape, double send, double chunk) {
  const double behind = shape.group() - shape.pp;
  return std::max(0.0, shape.pp * send - behind * chunk);
}

struct Sends {
  double total = 0;    // seconds of all pipeline messages of one rank
  double exposed = 0;  // what the step waits for
};

// `one`: seconds of a message; `forward`, `backward`: of a mean chunk's unit.
Sends pipeline_sends(const job::Job& job, double p2p_exposed, double one, double forward,
                     double backward) {
  const layout::Layout& l = job.layout;
  if (l.pp == 1) return {};
  const double m = static_cast<double>(job.microbatches());
  Sends s;
  s.total = 2 * m * l.vpp * one;
  const bool overlapped = l.vpp > 1 && job.techniques.has(Overlap::pipeline_p2p);
  s.exposed = s.total * (overlapped ? p2p_exposed : 1.0) + 2 * (l.pp - 1) * one;
  if (overlapped && job.schedule.kind == layout::ScheduleKind::interleaved) {
    const layout::ScheduleShape shape = job.schedule_shape();
    s.exposed += (l.vpp - 1) * (round_wait(shape, one, forward) + round_wait(shape, one, backward));
  }
  s.total += 2 * (l.pp - 1) * one;
  return s;
}

void set_interval(const cost::Constants& constants, const StageTime& stage, double busy_share,
                  Estimate& out) {
  double sum = 0;
  for (double s : stage.basis_seconds) sum += s;
  for (std::size_t i = 0; i < 4; ++i)
    out.basis_share[i] = sum > 0 ? busy_share * stage.basis_seconds[i] / sum : 0;
  out.basis_share[static_cast<std::size_t>(hardware::Basis::assumed)] += 1 - busy_share;
  const double assumed = out.basis_share[static_cast<std::size_t>(hardware::Basis::assumed)];
  out.sigma =
      std::sqrt(constants.step_sigma * constants.step_sigma + 0.15 * 0.15 * assumed * assumed);
  constexpr double kEightyPercent = 1.2816;
  out.low_s = out.step_time_s * std::exp(-kEightyPercent * out.sigma);
  out.high_s = out.step_time_s * std::exp(kEightyPercent * out.sigma);
}

void set_throughput(const job::Job& job, Estimate& out) {
  const job::Training& t = job.training;
  const double tokens = static_cast<double>(t.global_batch_size * t.sequence_length);
  out.tokens_per_s_per_gpu = tokens / out.step_time_s / job.gpus;
  const double flops = model::train_flops_per_token(job.model, t.sequence_length, job.layout.tp);
  out.tflops_per_gpu = out.tokens_per_s_per_gpu * flops * 1e-12;
  out.mfu = out.tflops_per_gpu * 1e12 / job.cluster.gpu.bf16.value();
}

}  // namespace

void Estimator::evaluate_time(const job::Job& job, const layout::Pipeline& pipeline,
                              Estimate& out) {
  const std::size_t p = static_cast<std::size_t>(pipeline.pp);
  if (stages_.size() != p) stages_.resize(p), contents_.resize(p);
  blocks_.reset(job, pricer_);
  double forward = 0, backward = 0, wgrad = 0;
  for (std::size_t r = 0; r < p; ++r) {
    contents_[r] = content_of(job, pipeline, static_cast<int>(r));
    if (r > 0 && contents_[r] == contents_[r - 1])
      stages_[r] = stages_[r - 1];
    else
      stage_time(job, contents_[r], pipeline.vpp, pricer_, blocks_, stages_[r]);
    forward += stages_[r].forward_chunk;
    backward += stages_[r].backward_chunk;
    wgrad += stages_[r].wgrad_chunk;
  }
  const double send = p > 1 ? cost::pipeline_send(job, pricer_).seconds : 0;
  if (pipeline.vpp > 1) set_chunk_times(job, pipeline), set_hops(job, send);
  lockstep(job, pipeline, chunks_, lockstep_);
  // The stage that is done last, its own reduction and update included.
  std::size_t last = 0;
  double most = -1, bubble = 0;
  Duration work;
  DataParallel dp, here;
  for (std::size_t r = 0; r < p; ++r) {
    const StageTime& stage = stages_[r];
    const Duration d = busy(job, stage, static_cast<int>(r), lockstep_.paired[r]);
    if (r == 0 || !(contents_[r] == contents_[r - 1]))
      here = data_parallel(job, pipeline, static_cast<int>(r), stage.work.forward,
                           stage.work.backward, pricer_);
    const double waits =
        p == 1 ? 0
               : bubble_seconds(job.schedule.kind, forward - stage.forward_chunk,
                                backward - stage.backward_chunk, wgrad - stage.wgrad_chunk);
    const double total = d.sum() + waits + here.exposed_s + here.host_s + here.optimizer_s;
    if (total <= most) continue;
    most = total, last = r, bubble = waits;
    work = d, dp = here;
  }
  slowest_ = last;
  const StageTime& stage = stages_[last];
  const double m = static_cast<double>(job.microbatches());
  const double stages = static_cast<double>(p);
  const Sends sends = pipeline_sends(job, pricer_.constants().p2p_exposed, send, forward / stages,
                                     backward / stages);
  Time& time = out.time;
  time.compute = work.compute;
  time.recompute = work.recompute;
  time.host = work.host + dp.host_s;
  time.exposed = work.exposed;
  time.exposed[index(Comm::pp)] += sends.exposed;
  time.exposed[index(Comm::dp)] += dp.exposed_s;
  time.optimizer = dp.optimizer_s;
  time.bubble = bubble + lockstep_.seconds;
  out.step_time_s = time.sum();
  for (std::size_t i = 0; i < kComms; ++i)
    out.communication[i] = {m * stage.work.total_comm[i], time.exposed[i]};
  out.communication[index(Comm::pp)].total_s = sends.total;
  out.communication[index(Comm::dp)].total_s = dp.total_s;
  set_interval(pricer_.constants(), stage, work.sum() / out.step_time_s, out);
  set_throughput(job, out);
}

void Estimator::set_hops(const job::Job& job, double send) {
  chunks_.forward_hop_s = chunks_.backward_hop_s = 0;
  if (!job.techniques.has(Overlap::pipeline_p2p)) return;
  double behind_forward = 0, behind_backward = 0;
  if (job.techniques.has(Overlap::ep_a2a)) {
    const cost::BlockCost& block =
        *blocks_.get(layer::BlockRole::layer, job.model.layers.back()).cost;
    const auto attention = [&](layer::Pass pass) {
      return block.compute[static_cast<std::size_t>(layer::Segment::attention)]
                          [static_cast<std::size_t>(pass)];
    };
    behind_forward = attention(layer::Pass::dgrad) + attention(layer::Pass::wgrad);
    if (job.techniques.has(Overlap::delay_wgrad)) behind_backward = attention(layer::Pass::wgrad);
  }
  chunks_.forward_hop_s = std::max(0.0, send - behind_forward);
  chunks_.backward_hop_s = std::max(0.0, send - behind_backward);
}

void Estimator::set_chunk_times(const job::Job& job, const layout::Pipeline& pipeline) {
  const std::size_t chunks = pipeline.chunks.size();
  chunks_.forward.resize(chunks), chunks_.backward.resize(chunks), chunks_.merging.resize(chunks);
  for (int r = 0; r < pipeline.pp; ++r)
    for (int k = 0; k < pipeline.vpp; ++k) {
      const layout::Chunk& chunk = pipeline.at(r, k);
      StageContent content;
      content.add(job, chunk);
      double forward = 0, backward = 0, pair = 0;
      for_each_block(content, [&](layer::BlockRole role, model::LayerKind kind, double times) {
        const BlockTimes::Entry& block = blocks_.get(role, kind);
        forward += times * block.forward_s, backward += times * block.backward_s;
        pair += times * block.pair_s;
      });
      const auto i = static_cast<std::size_t>(r * pipeline.vpp + k);
      chunks_.forward[i] = forward, chunks_.backward[i] = backward;
      chunks_.merging[i] = (forward + backward - pair) / std::max(1, chunk.all_layers());
    }
}

KernelTime Estimator::kernels(const job::Job& job) {
  return kernel_time(job, contents_[slowest_], blocks_);
}

void Estimator::evaluate(const job::Job& job, const layout::Pipeline& pipeline, Estimate& out) {
  evaluate_time(job, pipeline, out);
  out.kernels = kernels(job);
  memory::evaluate(job, pipeline, out.memory);
}

Result<Estimate> estimate_job(const job::Job& job, const std::string& data_dir) {
  TRIFOLD_ASSIGN(profile, job::profile_of(job, data_dir));
  TRIFOLD_ASSIGN(pipeline, layout::build_pipeline(job.model, job.layout, job.placement()));
  const job::Verdict verdict = job::check(job, pipeline, job::Runtime::any);
  if (!verdict.legal())
    return Error{ErrorCode::input, "this layout cannot run: " + job::explain(verdict), "", ""};
  Estimator estimator(job.cluster, profile);
  Estimate estimate;
  estimator.evaluate(job, pipeline, estimate);
  return estimate;
}

}  // namespace trifold::estimate

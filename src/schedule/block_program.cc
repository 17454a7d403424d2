// SPDX-License-Identifier: Apache-2.0
#include "schedule/block_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cost/step.h"

namespace trifold::schedule {

using layer::Family;
using layer::Operator;
using layer::Pass;
using layer::Segment;

namespace {

// CTAs of an NCCL collective that states none (NCCL 2.28 on NVLink: overlap.csv rows "0" run as
// 24).
constexpr double kCollectiveCtas = 24;

Category category_of(const Operator& op) {
  switch (op.family) {
    case Family::tp_comm:
      return Category::tp;
    case Family::cp_comm:
      return Category::cp;
    case Family::ep_comm:
      return Category::ep;
    default:
      return op.pass == Pass::recompute ? Category::recompute : Category::compute;
  }
}

Stream stream_of(const Operator& op) {
  if (!layer::is_communication(op.family) || op.blocks) return Stream::compute;
  return op.family == Family::ep_comm ? Stream::dispatch : Stream::tensor;
}

bool is_exchange(const Operator& op) {
  return op.family == Family::ep_comm && op.pass != Pass::recompute && !op.blocks;
}

// Gathers a block's timed operators and the index lists that become pieces.
class Assembler {
 public:
  Assembler(const job::Job& job, const cost::Pricer& pricer, const LoweringOptions& options,
            sim::LoadTable& loads)
      : job_(job),
        pricer_(pricer),
        options_(options),
        loads_(loads),
        sms_(pricer.cluster().gpu.sms),
        leak_(pricer.constants().leak(job.techniques)) {}

  void build(layer::BlockRole role, model::LayerKind kind, double host_forward,
             double host_backward, BlockProgram& out);

 private:
  TimedOp time(const Operator& op) const;
  std::uint8_t load_of(const Operator& op, double seconds) const;
  template <class Accept>
  Piece gather(Accept accept, BlockProgram& out) const;
  void merged_pieces(BlockProgram& out) const;

  const job::Job& job_;
  const cost::Pricer& pricer_;
  const LoweringOptions& options_;
  sim::LoadTable& loads_;
  double sms_, leak_;
  layer::Block block_;
  std::vector<TimedOp> timed_;
};

std::uint8_t Assembler::load_of(const Operator& op, double seconds) const {
  if (!options_.contention || op.blocks) return 0;
  const Contention& c = options_.model;
  const hardware::Cluster& cluster = pricer_.cluster();
  switch (op.family) {
    case Family::gemm:
    case Family::grouped_gemm: {
      // Few waves step, many are smooth: eight classes keep the table small.
      const double groups = std::max(1, op.groups);
      const double tiles = groups * std::ceil(op.m / 128) * std::ceil(op.n / 256);
      const double waves = std::min(16.0, std::ceil(tiles / sms_));
      return loads_.add(gemm_load(c, waves < 9 ? waves * sms_ : 16 * sms_, sms_, sms_, leak_));
    }
    case Family::attention:
      return loads_.add(gemm_load(c, 0, sms_, sms_, leak_));
    case Family::memory_bound:
    case Family::quantize:
      return loads_.add(memory_load(c));
    case Family::tp_comm:
    case Family::cp_comm:
    case Family::ep_comm: {
      const bool scaleout = op.group_domains > 1;
      const double ctas = op.dispatch ? pricer_.dispatcher_sms(job_.techniques) : kCollectiveCtas;
      const double moved =
          op.dispatch ? op.scaleup_bytes + op.scaleout_bytes + op.bytes : 2 * op.bytes * op.repeat;
      const double share = seconds > 0 ? moved / seconds / cluster.gpu.hbm_bandwidth.value() : 0;
      const double rounded = std::ceil(share * 20) / 20;  // few distinct loads
      sim::Load load = transfer_load(c, scaleout ? kScaleOut : kScaleUp, ctas, sms_, rounded);
      // Rows for the own domain, and of others on their way through it.
      if (op.dispatch && scaleout && seconds > 0)
        load.use[kScaleUp] = std::min(
            1.0,
            std::ceil(20 * op.scaleup_bytes / seconds / cluster.scaleup_bandwidth.value()) / 20);
      return loads_.add(load);
    }
  }
  return 0;
}

TimedOp Assembler::time(const Operator& op) const {
  const double seconds = pricer_.price(op, job_.techniques).seconds;
  TimedOp t;
  t.name = op.name;
  t.work = sim::to_picoseconds(seconds);
  t.stream = stream_of(op);
  t.category = category_of(op);
  t.family = op.family;
  t.load = load_of(op, seconds);
  t.regather = op.family == Family::tp_comm && op.pass == Pass::wgrad;
  t.scales_with_load = op.family == Family::grouped_gemm || op.family == Family::ep_comm ||
                       (op.segment == Segment::experts && block_.kind.moe);
  return t;
}

template <class Accept>
Piece Assembler::gather(Accept accept, BlockProgram& out) const {
  Piece piece;
  piece.begin = static_cast<int>(out.ops.size());
  for (std::size_t i = 0; i < timed_.size(); ++i) {
    const TimedOp& t = timed_[i];
    if (t.work <= 0 || !accept(block_.operators[i])) continue;
    const bool first = static_cast<int>(out.ops.size()) == piece.begin;
    if (options_.fuse && !first) {
      TimedOp& last = out.ops.back();
      if (last.stream == t.stream && last.category == t.category && last.load == t.load &&
          last.scales_with_load == t.scales_with_load) {
        last.work += t.work;
        continue;
      }
    }
    out.ops.push_back(t);
  }
  piece.end = static_cast<int>(out.ops.size());
  return piece;
}

// What a merged pair runs on the dispatch stream: transfers, which lose the leak beside another
// micro-batch's compute (what that loses is contention.cc's), and what combine does to rows.
void Assembler::merged_pieces(BlockProgram& out) const {
  const bool slower = options_.contention && job_.techniques.has(job::Overlap::ep_a2a);
  const auto exchange = [&](Segment segment, bool forward) {
    const Piece p = gather(
        [&](const Operator& op) {
          return is_exchange(op) && op.segment == segment && (op.pass == Pass::forward) == forward;
        },
        out);
    for (int i = p.begin; slower && i < p.end; ++i) {
      sim::Picoseconds& work = out.ops[static_cast<std::size_t>(i)].work;
      work = static_cast<sim::Picoseconds>(static_cast<double>(work) * (1 + leak_));
    }
    return p;
  };
  out.f_dispatch_comm = exchange(Segment::dispatch, true);
  out.f_combine_comm = exchange(Segment::combine, true);
  out.b_dispatch_comm = exchange(Segment::dispatch, false);
  out.b_combine_comm = exchange(Segment::combine, false);
  out.routed = !out.f_dispatch_comm.empty() || !out.f_combine_comm.empty();
  const auto beside_transfers = [&](const Piece& p) {
    const int begin = static_cast<int>(out.ops.size());
    for (int i = p.begin; i < p.end; ++i) {
      TimedOp op = out.ops[static_cast<std::size_t>(i)];
      if (out.routed) op.stream = Stream::dispatch;
      out.ops.push_back(op);
    }
    return Piece{begin, static_cast<int>(out.ops.size())};
  };
  out.f_combined = beside_transfers(out.f[static_cast<std::size_t>(Segment::combine)]);
  out.b_combining = beside_transfers(out.b[static_cast<std::size_t>(Segment::combine)]);
}

void Assembler::build(layer::BlockRole role, model::LayerKind kind, double host_forward,
                      double host_backward, BlockProgram& out) {
  layer::build_block(job_, role, kind, block_);
  timed_.clear();
  for (const Operator& op : block_.operators) timed_.push_back(time(op));
  out.ops.clear();
  out.host_forward_s = host_forward;
  out.host_backward_s = host_backward;
  const auto forward = [](const Operator& op) { return op.pass == Pass::forward; };
  const auto is_wgrad = [](const Operator& op) { return op.pass == Pass::wgrad; };
  out.forward = gather(forward, out);
  out.backward = gather([&](const Operator& op) { return !forward(op); }, out);
  out.dgrad = gather([&](const Operator& op) { return !forward(op) && !is_wgrad(op); }, out);
  out.wgrad = gather(is_wgrad, out);
  for (int s = 0; s < layer::kSegments; ++s) {
    const auto here = [s](const Operator& op) { return static_cast<int>(op.segment) == s; };
    out.f[static_cast<std::size_t>(s)] = gather(
        [&](const Operator& op) { return forward(op) && here(op) && !is_exchange(op); }, out);
    out.b[static_cast<std::size_t>(s)] = gather(
        [&](const Operator& op) {
          return !forward(op) && !is_wgrad(op) && here(op) && !is_exchange(op);
        },
        out);
    out.w[static_cast<std::size_t>(s)] =
        gather([&](const Operator& op) { return is_wgrad(op) && here(op); }, out);
  }
  merged_pieces(out);
  out.waits_for_counts = std::any_of(block_.operators.begin(), block_.operators.end(),
                                     [](const Operator& op) { return op.blocks; });
  const Piece s = out.f[static_cast<std::size_t>(Segment::shared)];
  // The shared expert's first linear runs beside dispatch, the rest beside combine.
  const int middle = s.begin + (s.end - s.begin) / 2;
  out.f_shared_first = {s.begin, middle};
  out.f_shared_second = {middle, s.end};
}

// A send is a copy by few CTAs; reductions and gathers over data parallelism run as NCCL rings.
void set_step_loads(const job::Job& job, const cost::Pricer& pricer, const LoweringOptions& options,
                    Programs& out) {
  TimedOp* const transfers[] = {&out.send_forward, &out.send_backward, &out.reduce,
                                &out.gather,       &out.offload,       &out.reload};
  for (TimedOp* op : transfers) op->load = 0;
  out.optimizer.load = out.hidden_tp.load = out.hidden_cp.load = 0;
  if (!options.contention) return;
  const double sms = pricer.cluster().gpu.sms;
  const Resource link =
      job.layout.pp > 1 && cost::pipeline_send(job, pricer).crosses_domains ? kScaleOut : kScaleUp;
  out.send_forward.load = out.send_backward.load =
      out.loads.add(transfer_load(options.model, link, 2, sms, 0.05));
  const bool wide = job.gpus > job.cluster.gpus_used_per_domain;
  out.reduce.load = out.gather.load =
      out.loads.add(transfer_load(options.model, wide ? kScaleOut : kScaleUp,
                                  wide ? 8 : kCollectiveCtas, sms, wide ? 0.05 : 0.2));
  out.offload.load = out.loads.add(transfer_load(options.model, kToHost, 0, sms, 0.05));
  out.reload.load = out.loads.add(transfer_load(options.model, kFromHost, 0, sms, 0.05));
  out.optimizer.load = out.loads.add(memory_load(options.model));
  const bool cp_far =
      job.layout.tp * job.layout.sequence_ranks() > job.cluster.gpus_used_per_domain;
  out.hidden_tp.load = out.loads.add(transfer_load(options.model, kScaleUp, 0, sms, 0.1));
  out.hidden_cp.load =
      out.loads.add(transfer_load(options.model, cp_far ? kScaleOut : kScaleUp, 0, sms, 0.1));
}

}  // namespace

void build_programs(const job::Job& job, const layout::Pipeline& pipeline, cost::Pricer& pricer,
                    const LoweringOptions& options, Programs& out) {
  out.loads = sim::LoadTable();
  const layer::BlockKey key = layer::job_key(job);
  Assembler assembler(job, pricer, options, out.loads);
  const auto build = [&](layer::BlockRole role, model::LayerKind kind, BlockProgram& program) {
    const cost::BlockCost& cost = pricer.block(job, key, role, kind);
    assembler.build(role, kind, cost.host_s[static_cast<std::size_t>(Pass::forward)],
                    cost.host_s[static_cast<std::size_t>(Pass::dgrad)] +
                        cost.host_s[static_cast<std::size_t>(Pass::recompute)],
                    program);
    program.host_merge_s = cost.merge_host_s;
  };
  bool used[model::kLayerKinds] = {};
  for (const layout::Chunk& chunk : pipeline.chunks)
    for (int i = 0; i < model::kLayerKinds; ++i)
      used[i] = used[i] || chunk.of_kind[static_cast<std::size_t>(i)] > 0;
  if (job.model.mtp_layers > 0) used[job.model.mtp_kind().index()] = true;
  for (int i = 0; i < model::kLayerKinds; ++i)
    if (used[i]) build(layer::BlockRole::layer, model::LayerKind::from_index(i), out.layer[i]);
  build(layer::BlockRole::embedding, {}, out.embedding);
  build(layer::BlockRole::head, {}, out.head);
  if (job.model.mtp_layers > 0) build(layer::BlockRole::mtp_projection, {}, out.mtp_projection);
  set_step_loads(job, pricer, options, out);
}

}  // namespace trifold::schedule

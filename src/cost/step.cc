// SPDX-License-Identifier: Apache-2.0

// Dense parameters reduce over dp x cp, experts over edp (megatron.md 4.5). ZeRO-1: one
// reduce-scatter of the gradients (4 bytes, 2 in BF16) and one all-gather of the parameters (2
// bytes; 1 for FP8 parameters, but MXFP8 gathers BF16). MegaScale's compressed reduction replaces
// the FP32 ring by one BF16 all-to-all and a local sum: half the bytes. Optimizer: 30 B per
// FP32-state parameter (states read and written, gradient read, parameter written), sharded, plus a
// fixed part (gradient norm, clipping, launches).

#include "cost/step.h"

#include <array>

#include "layer/shape.h"
#include "model/size.h"

namespace trifold::cost {

using hardware::Collective;
using hardware::GroupSpan;

namespace {

// Vectorised Adam on the host cores that serve one GPU: seconds a parameter (DeepSpeed's CPU Adam
// on 12-16 cores; assumed).
constexpr double kCpuAdamSeconds = 1.5e-9;

double gather_bytes(const job::Training& training) {
  if (!training.optimizer.fp8_param_gather) return 2;
  switch (training.precision) {
    case job::Precision::bf16:
    case job::Precision::mxfp8:
      return 2;
    case job::Precision::nvfp4:
      return 0.5625;
    default:
      return 1;
  }
}

struct Group {
  GroupSpan span;
  double elements;
};

struct Transfers {
  double reduce = 0, gather = 0;
};

Transfers transfers(const job::Job& job, const Group (&groups)[2], const Pricer& pricer) {
  Transfers t;
  const bool compressed =
      job.techniques.gradient_compression == job::GradientCompression::bf16_all_to_all;
  const double grad_bytes = compressed ? 2 : bytes_of(job.training.optimizer.grad_reduce);
  for (const Group& group : groups) {
    const double reduce = group.elements * grad_bytes,
                 gather = group.elements * gather_bytes(job.training);
    if (compressed) {
      t.reduce += pricer.collective_seconds(Collective::all_to_all, group.span, reduce);
    } else if (job.training.optimizer.distributed || job.layout.fsdp) {
      t.reduce += pricer.collective_seconds(Collective::reduce_scatter, group.span, reduce);
    } else {
      t.reduce += pricer.collective_seconds(Collective::all_reduce, group.span, reduce);
    }
    if (job.training.optimizer.distributed || job.layout.fsdp)
      t.gather += pricer.collective_seconds(Collective::all_gather, group.span, gather);
  }
  return t;
}

void optimizer_step(const job::Job& job, const Group (&groups)[2], const Pricer& pricer,
                    DataParallelTerms& out) {
  const job::Optimizer& o = job.training.optimizer;
  const bool sharded = o.distributed || job.layout.fsdp;
  double elements = 0;
  for (const Group& group : groups) elements += group.elements / (sharded ? group.span.ranks : 1);
  const double state = 2 * bytes_of(o.main_params) +
                       4 * bytes_of(o.moments);  // read and write master and two moments
  const double touched = state + bytes_of(o.main_grads) + 2;
  const double host_link =
      pricer.cluster().host_bandwidth.value() * pricer.constants().host_link_efficiency;
  if (job.techniques.offload.optimizer == job::OptimizerOffload::cpu_adam) {
    const double share = job.techniques.offload.fraction;
    out.host_s += share * elements * ((bytes_of(o.main_grads) + 2) / host_link + kCpuAdamSeconds);
    elements *= 1 - share;
  } else if (job.techniques.offload.optimizer == job::OptimizerOffload::states_parked_on_host) {
    out.host_s += elements * state / 2 / host_link;  // in and out, one hidden under the forward
  }
  out.optimizer_s = pricer.memory_seconds(elements * touched) + pricer.step_end_seconds(job.gpus);
}

// What one rank holds of some chunks.
class Holding {
 public:
  explicit Holding(const job::Job& job) : job_(job) {}

  void add(const layout::Chunk& chunk) {
    const model::Model& m = job_.model;
    const double tp = job_.layout.tp;
    const double vocabulary =
        static_cast<double>(m.hidden * model::padded_vocab(m, job_.layout.tp)) / tp;
    for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i] += chunk.of_kind[i];
    layers_[static_cast<std::size_t>(m.mtp_kind().index())] += chunk.mtp;
    const bool embedding = chunk.embedding || chunk.mtp > 0;
    parameters_.dense += vocabulary * ((embedding ? 1 : 0) + (chunk.loss ? 1 : 0));
    parameters_.dense += chunk.mtp * 2.0 * static_cast<double>(m.hidden * m.hidden) / tp;
  }

  StageParameters parameters() const {
    const double tp = job_.layout.tp,
                 expert_ranks = static_cast<double>(job_.layout.ep) * job_.layout.etp;
    StageParameters p = parameters_;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i] == 0) continue;
      const model::LayerParameters l =
          model::layer_parameters(job_.model, model::LayerKind::from_index(static_cast<int>(i)));
      p.dense += layers_[i] * (static_cast<double>(l.attention + l.dense_ffn + l.shared) / tp +
                               static_cast<double>(l.norms + l.router));
      p.experts += layers_[i] * static_cast<double>(l.experts) / expert_ranks;
    }
    return p;
  }

 private:
  const job::Job& job_;
  std::array<double, model::kLayerKinds> layers_{};
  StageParameters parameters_;
};

}  // namespace

StageParameters stage_parameters(const job::Job& job, const layout::Pipeline& pipeline, int stage) {
  Holding holding(job);
  for (int k = 0; k < pipeline.vpp; ++k) holding.add(pipeline.at(stage, k));
  return holding.parameters();
}

StageParameters chunk_parameters(const job::Job& job, const layout::Chunk& chunk) {
  Holding holding(job);
  holding.add(chunk);
  return holding.parameters();
}

DataParallelTerms data_parallel_terms(const job::Job& job, const StageParameters& p,
                                      const Pricer& pricer) {
  const layout::Layout& l = job.layout;
  // With pp before dp in the rank order, neighbours in dp are pp times as far apart.
  const int apart = l.order == layout::RankOrder::tp_cp_ep_dp_pp ? 1 : l.pp;
  const int sequence = l.sequence_ranks(), dense = l.tp * sequence, expert = l.etp * l.ep;
  const Group groups[2] = {
      {hardware::span_of(job.cluster, 0, sequence, l.tp, job.dp(), dense * apart), p.dense},
      {hardware::span_of(job.cluster, 0, job.edp(), expert * apart), p.experts}};
  const Transfers t = transfers(job, groups, pricer);
  DataParallelTerms terms;
  terms.reduce_s = t.reduce;
  terms.gather_s = t.gather;
  optimizer_step(job, groups, pricer, terms);
  return terms;
}

PipelineSend pipeline_send(const job::Job& job, const Pricer& pricer) {
  const layout::Layout& l = job.layout;
  const layer::Shape shape = layer::shape_of(job);
  const double bytes = shape.local_tokens * static_cast<double>(job.model.hidden) * shape.element;
  const bool pp_last = l.order == layout::RankOrder::tp_cp_ep_dp_pp;
  const int stride = pp_last ? job.gpus / l.pp : l.tp * l.sequence_ranks();
  PipelineSend send;
  send.crosses_domains = hardware::span_of(job.cluster, 0, l.pp, stride).crosses_domains();
  send.seconds = pricer.send_recv_seconds(send.crosses_domains, bytes);
  return send;
}

}  // namespace trifold::cost

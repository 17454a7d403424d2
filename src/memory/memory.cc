// SPDX-License-Identifier: Apache-2.0
#include "memory/memory.h"

// Peak of every stage. Parked optimizer states (states_parked_on_host) leave the GPU between steps
// but come back for the update, when no activation is alive: the larger of the two moments counts.

#include <algorithm>

#include "base/check.h"
#include "layout/rank_grid.h"
#include "memory/stage.h"

namespace trifold::memory {

namespace {

StageMemory stage_memory(const job::Job& job, const StagePlan& p) {
  StageMemory m;
  m.weights = Bytes(p.states.weights);
  m.gradients = Bytes(p.states.gradients);
  m.optimizer = Bytes(p.states.optimizer);
  m.activations = Bytes(p.activations);
  m.buffers = Bytes(p.buffers);
  m.peak = m.weights + m.gradients + m.optimizer + m.activations + m.buffers;
  const double factor = job.layout.tp > 1 ? kReservedTensorParallel : kReserved;
  m.reserved = Bytes(static_cast<std::int64_t>(static_cast<double>(m.peak.value()) * factor));
  return m;
}

}  // namespace

int stage_of_rank(const job::Job& job, int rank) {
  if (job.layout.pp == 1) return 0;
  return layout::RankGrid(job.layout, job.gpus).coordinates(RankId(rank)).pp;
}

void evaluate_scaled(const job::Job& job, const layout::Pipeline& pipeline, double rows_scale,
                     Memory& out) {
  TRIFOLD_CHECK(pipeline.pp == job.layout.pp && pipeline.pp > 0);
  const Tables tables = tables_of(job, pipeline, rows_scale);
  const layout::ScheduleShape shape = job.schedule_shape();
  out.capacity = job.cluster.capacity();
  out.stages.resize(static_cast<std::size_t>(pipeline.pp));
  for (int stage = 0; stage < pipeline.pp; ++stage)
    out.stages[static_cast<std::size_t>(stage)] =
        stage_memory(job, plan_stage(job, pipeline, tables, shape, stage));
  summarize(job, out);
}

void summarize(const job::Job& job, Memory& out) {
  std::size_t worst = 0;
  Bytes reserved;
  for (std::size_t stage = 0; stage < out.stages.size(); ++stage) {
    if (out.stages[stage].peak > out.stages[worst].peak) worst = stage;
    reserved = std::max(reserved, out.stages[stage].reserved);
  }
  if (job.measured_rank >= 0) {
    worst = static_cast<std::size_t>(stage_of_rank(job, job.measured_rank));
    reserved = out.stages[worst].reserved;
  }
  out.worst_stage = static_cast<int>(worst);
  out.peak = out.stages[worst].peak;
  out.reserved = reserved;
  out.headroom = out.capacity - reserved;
}

void evaluate(const job::Job& job, const layout::Pipeline& pipeline, Memory& out) {
  evaluate_scaled(job, pipeline, 1.0, out);
}

}  // namespace trifold::memory

// SPDX-License-Identifier: Apache-2.0
// Memory over time: a unit's saved activations appear when its forward starts and go when its
// backward (weight gradient, where split) ends; a merged unit swaps the two at its end. Bytes of a
// layer and everything that does not come and go with units (states, buffers, the transients of the
// worst backward) are memory/'s, so that the peak differs from memory's only where the events keep
// another number of units alive than layout/in_flight.h says.
#include <algorithm>

#include "memory/stage.h"
#include "timeline/readback.h"

namespace trifold::timeline {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct Change {
  sim::Picoseconds time = 0;
  int chunk = 0;
  int units = 0;
};

std::int64_t unit_bytes(const job::Job& job, const memory::Tables& t, const layout::Chunk& c) {
  const std::int64_t moe = c.of_kind[1] + c.of_kind[3];
  const int mtp_kind = job.model.mtp_layers > 0 && job.model.mtp_kind().moe ? 1 : 0;
  return moe * t.layer[1].kept + (c.layers - moe) * t.layer[0].kept +
         c.mtp * (t.layer[mtp_kind].kept + t.mtp_extra);
}

// What memory/ holds beside saved units.
std::int64_t base_bytes(const memory::Memory& m, const memory::Tables& t,
                        const memory::StagePlan& plan, int stage) {
  const std::int64_t units = plan.units[0] * t.layer[0].kept + plan.units[1] * t.layer[1].kept +
                             plan.mtp_units * t.mtp_extra;
  return m.stages[at(stage)].peak.value() - units;
}

void read_stage(const std::vector<Change>& changes, const std::vector<std::int64_t>& unit,
                std::int64_t base, std::vector<Simulator::MemoryStep>& curve, StageTimeline& out) {
  std::vector<int> alive(unit.size(), 0);
  std::int64_t bytes = base, peak = -1;
  curve.assign(1, {0, base});
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Change& c = changes[i];
    alive[at(c.chunk)] += c.units;
    bytes += c.units * unit[at(c.chunk)];
    curve.push_back({sim::to_seconds(c.time), bytes});
    if (bytes <= peak) continue;
    peak = bytes;
    out.peak_s = sim::to_seconds(c.time);
    out.peak_units_by_chunk = alive;
  }
  out.peak = Bytes(std::max(peak, base));
  out.peak_units = 0;
  for (int a : out.peak_units_by_chunk) out.peak_units += a;
}

}  // namespace

void read_memory(const job::Job& job, const layout::Pipeline& pipeline,
                 const schedule::Lowered& lowered, const sim::Outcome& outcome,
                 std::vector<std::vector<Simulator::MemoryStep>>& curves, Timeline& out) {
  const schedule::StepGraph& step = lowered.step;
  memory::evaluate(job, pipeline, out.memory);
  const memory::Tables tables = memory::tables_of(job, pipeline);
  std::vector<std::vector<Change>> changes(at(step.stages));
  for (const schedule::MemoryEvent& e : step.memory)
    changes[at(e.stage)].push_back(
        {(e.at_start ? outcome.start : outcome.end)[at(e.task)], e.chunk, e.change});
  curves.resize(at(step.stages));
  for (int r = 0; r < step.stages; ++r) {
    std::stable_sort(changes[at(r)].begin(), changes[at(r)].end(),
                     [](const Change& a, const Change& b) {
                       return a.time != b.time ? a.time < b.time : a.units < b.units;
                     });
    const memory::StagePlan plan =
        memory::plan_stage(job, pipeline, tables, job.schedule_shape(), r);
    std::vector<std::int64_t> unit;
    for (int c = 0; c < lowered.program.chunks; ++c)
      unit.push_back(unit_bytes(job, tables, schedule::chunk_at(pipeline, lowered.program, r, c)));
    read_stage(changes[at(r)], unit, base_bytes(out.memory, tables, plan, r), curves[at(r)],
               out.stages[at(r)]);
  }
  out.simulated_memory = out.memory;
  for (std::size_t r = 0; r < out.stages.size(); ++r) {
    memory::StageMemory& stage = out.simulated_memory.stages[r];
    const Bytes more = out.stages[r].peak - stage.peak;
    stage.activations += more, stage.peak += more, stage.reserved += more;
  }
  memory::summarize(job, out.simulated_memory);
}

}  // namespace trifold::timeline

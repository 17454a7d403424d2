// SPDX-License-Identifier: Apache-2.0
#pragma once

// The space that a query spans: every combination of the axes below, before any rule or bound
// removes one.

#include <cstdint>
#include <vector>

#include "planner/query.h"

namespace trifold::planner {

// Who sits where, without the virtual stages: what makes two plans different geometries.
struct Geometry {
  int tp = 1, ulysses_sp = 1, cp = 1, pp = 1, ep = 1, etp = 1, micro_batch_size = 1;
  bool fsdp = false;
  layout::RankOrder order = layout::RankOrder::tp_cp_ep_dp_pp;
  auto operator<=>(const Geometry&) const = default;
};

// The schedule and how many chunks a pipeline rank holds.
struct Depth {
  layout::ScheduleKind kind = layout::ScheduleKind::one_f_one_b;
  int vpp = 1;
  bool operator==(const Depth&) const = default;
};

// What expert communication runs beside.
enum class Beside : std::uint8_t {
  nothing,
  shared_expert,  // its own stream
  merged,         // forward merged with backward, weight gradients delayed
  operators       // MegaScale's inter- and intra-operator overlap; not Megatron's
};

// How tokens travel and what runs beside what.
struct Transport {
  job::Dispatcher dispatcher = job::Dispatcher::alltoall;
  int sms = 0;  // 0: the dispatcher's default
  Beside beside = Beside::nothing;
  bool graphs = false;  // attention, router and preprocessing captured
  bool operator==(const Transport&) const = default;
};

// What is kept in memory, simplest first.
struct MemorySaving {
  EnumSet<job::Recompute> recompute;
  EnumSet<job::OffloadModule> offload;
  bool bf16_moments = false;
  bool nothing_rebuilt() const { return recompute.empty() && offload.empty(); }
};

struct Space {
  std::vector<int> tp, ulysses_sp, cp, pp, ep, etp, micro_batch_size;
  std::vector<bool> fsdp;
  std::vector<layout::RankOrder> orders;
  std::vector<Depth> depths;
  std::vector<Transport> transports;
  std::vector<MemorySaving> savings;
  std::vector<EnumSet<job::Recompute>> recomputes;  // the distinct ones of `savings` ...
  std::vector<int> recompute_of;                    // ... and which of them each saving uses
  std::vector<std::uint32_t> recompute_over;        // which smaller ones each contains (a bit each)
  // The savings that no other is sure to undercut, and which of them undercut each (a bit each):
  // where one of these does not fit, nothing that it undercuts does.
  std::vector<int> least;
  std::vector<std::uint32_t> undercut_by;

  double geometries() const;  // combinations of the layout axes
  double variants() const;    // depths x transports x savings
  double size() const { return geometries() * variants(); }
};

Space make_space(const Query& query);

// Writes a point of the space into `job` (which holds the query's model, cluster and training).
void set_geometry(const Geometry& geometry, job::Job& job);
void set_variant(const Query& query, const Depth& depth, const Transport& transport,
                 const MemorySaving& saving, job::Job& job);
job::Job base_job(const Query& query);

// How much a person has to switch on, for ties.
int complexity(const Depth& depth, const Transport& transport, const MemorySaving& saving);

}  // namespace trifold::planner

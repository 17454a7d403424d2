// SPDX-License-Identifier: Apache-2.0
#pragma once

// The space that a query spans: every combination of the axes below, before any rule or bound
// removes one.

#include <cstdint>
#include <vector>

#include "planner/query.h"

namespace trifold::planner {

// Who sits where, without the virtual stages.
struct Geometry {
  int tp = 1, ulysses_sp = 1, cp = 1, pp = 1, ep = 1, etp = 1, micro_batch_size = 1;
  auto operator<=>(const Geometry&) const = default;
};

// How tokens travel and what runs beside what.
struct Transport {
  job::Dispatcher dispatcher = job::Dispatcher::alltoall;
  bool ep_overlap = false;  // merged forward-backward with delayed weight gradients
  bool graphs = false;      // attention, router and preprocessing captured
};

// What is kept in memory: cheapest in time first.
struct MemorySaving {
  EnumSet<job::Recompute> recompute;
  EnumSet<job::OffloadModule> offload;
  bool bf16_moments = false;
};

struct Space {
  std::vector<int> tp, ulysses_sp, cp, pp, vpp, ep, etp, micro_batch_size;
  std::vector<Transport> transports;
  std::vector<MemorySaving> savings;
  std::vector<bool> fsdp;

  double geometries() const;  // combinations of the layout axes without vpp
  double variants() const;    // vpp x transports x savings x sharding
  double size() const { return geometries() * variants(); }
};

Space make_space(const Query& query);

// Writes a point of the space into `job` (which holds the query's model, cluster and training).
void set_geometry(const Geometry& geometry, job::Job& job);
void set_variant(const Query& query, int vpp, const Transport& transport,
                 const MemorySaving& saving, bool fsdp, job::Job& job);
job::Job base_job(const Query& query);

}  // namespace trifold::planner

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Single changes to a Job that people argue about, by the order of attack of arXiv:2603.07685:
// geometry, memory headroom, dispatcher bandwidth, hide latency, pack compute, compress. The ladder
// climbs by them, the tornado switches them, the next best step is one of them.

#include <functional>
#include <string>
#include <vector>

#include "job/job.h"

namespace trifold::planner {

enum class Attack : std::uint8_t {
  baseline,
  geometry,
  memory_headroom,
  dispatcher_bandwidth,
  hide_latency,
  compute_packing,
  compress
};
inline constexpr Token<Attack> kAttacks[] = {{Attack::baseline, "baseline"},
                                             {Attack::geometry, "geometry"},
                                             {Attack::memory_headroom, "memory headroom"},
                                             {Attack::dispatcher_bandwidth, "dispatcher bandwidth"},
                                             {Attack::hide_latency, "hide latency"},
                                             {Attack::compute_packing, "compute packing"},
                                             {Attack::compress, "compress"}};

struct Move {
  Attack attack = Attack::geometry;
  std::string name;      // "EP overlap", "ep 8 -> 16"
  bool removes = false;  // switches off what the Job has
  bool layout = false;   // the pipeline has to be cut anew
  std::function<void(job::Job&)> apply;
};

// Every single change that `job` admits: techniques switched on or off, layout axes doubled or
// halved, another dispatcher, another number format. Not checked for legality.
std::vector<Move> moves(const job::Job& job);

// Where the layers do not divide: embedding and loss counted as layers, else the filled string (as
// job::read_job does for records). Leaves a cut that works alone unless `fresh`.
void recut(job::Job& job, bool fresh);

}  // namespace trifold::planner

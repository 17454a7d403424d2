// SPDX-License-Identifier: Apache-2.0
#pragma once

// The fabric as a graph (Boost.Graph): GPUs, NVLink switches, NICs, leaves, spines, with a rate on
// every edge. Which links a group of ranks crosses is computed from its members and their
// placement, never assumed.

#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "hardware/cluster.h"

namespace trifold::hardware {

// Ranks fill domains in order: rank r sits in domain r / gpus_used_per_domain.
struct GroupSpan {
  int ranks = 1;
  int domains = 1;  // scale-up domains touched
  int max_ranks_per_domain = 1;
  int min_ranks_per_domain = 1;
  int leaves = 1;           // leaf switches touched
  BytesPerSecond scaleup;   // per rank, inside a domain
  BytesPerSecond scaleout;  // per rank, between domains, after oversubscription when several leaves
  bool crosses_domains() const { return domains > 1; }
  bool operator==(const GroupSpan&) const = default;
};

// Reference implementation over the Boost graph: routes every pair of members and takes the
// narrowest links.
GroupSpan route_group(const Cluster& cluster, int gpus, const std::vector<RankId>& members);

// The same answer in closed form for the regular groups of a rank grid: `count` members, `stride`
// ranks apart, the first at `base`. No allocation; a test holds it equal to route_group.
GroupSpan span_of(const Cluster& cluster, int base, int count, int stride);

// A group whose members are `outer_count` blocks, `outer_stride` apart, each of `inner_count` ranks
// `inner_stride` apart (for groups over two axes, such as dp-cp).
GroupSpan span_of(const Cluster& cluster, int base, int inner_count, int inner_stride,
                  int outer_count, int outer_stride);

}  // namespace trifold::hardware

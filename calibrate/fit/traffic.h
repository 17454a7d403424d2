// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes that one rank sends in an expert dispatch, by link.

namespace trifold::fit {

struct Routing {
  double experts = 256, topk = 8;
  double groups = 0, groups_used = 0;  // group-limited routing; 0: every expert may be picked
};

// Expected number of the `parts` equal cuts of the experts that a token touches.
double expected_parts(const Routing& routing, double parts);

struct Traffic {
  double scaleup = 0, scaleout = 0;
};

// DeepEP, HybridEP: one copy a distinct remote domain over the NIC, one copy a distinct rank over
// NVLink (forwarded inside the domain where it landed).
Traffic deduplicated(const Routing& routing, int ranks, int domain, double tokens,
                     double token_bytes);
// NCCL all-to-all: topk copies.
Traffic replicated(const Routing& routing, int ranks, int domain, double tokens,
                   double token_bytes);

}  // namespace trifold::fit

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Questions that take several searches, a simulation, or a named layout.

#include "planner/search.h"

namespace trifold::planner {

// The smallest multiple of the query's GPUs (x2, x4, ... up to x64) on which something fits; 0:
// none.
int smallest_cluster_that_fits(const Query& query, const hardware::Profile& profile);

// The same question on other GPUs, the best plan alone.
Query best_only(const Query& query, int gpus);

// The smallest cluster (whole nodes: 1, 2, 3, 4, 6, 8, 12, ... of them) whose best plan trains at
// least `tokens_per_s`; empty: none the catalogue's cluster has.
std::optional<Candidate> smallest_cluster_for(const Query& query, double tokens_per_s,
                                              const hardware::Profile& profile);

// Nothing on the list is worse than another in all of step time, headroom and number of GPUs: the
// best plan on all, half and a quarter of the GPUs, each with at least 0, 10, 20 and 30 % of the
// memory left. Fewest GPUs last, fastest first.
std::vector<Candidate> pareto_front(const Query& query, const hardware::Profile& profile);

// A named layout on the query's model, cluster, batch and GPUs; its verdict is the runtime's.
Result<Candidate> evaluate_named(const job::Job& job, const Query& query,
                                 const hardware::Profile& profile);

// The first `most` plans simulated event by event, on that many threads (0: all cores); the list is
// put in the order of simulated time. What changed: whether another plan now leads, and how far
// simulation and estimate lie apart.
struct Reranking {
  int simulated = 0;
  bool winner_changed = false;
  double largest_gap = 0;  // relative, simulated over estimated
};
Reranking rerank_by_simulation(std::vector<Candidate>& plans, const hardware::Profile& profile,
                               int most, int threads);

}  // namespace trifold::planner

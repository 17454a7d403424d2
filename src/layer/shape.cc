// SPDX-License-Identifier: Apache-2.0
#include "layer/shape.h"

#include <algorithm>

#include "base/math.h"
#include "hardware/fabric.h"

namespace trifold::layer {

Shape shape_of(const job::Job& job) {
  const layout::Layout& l = job.layout;
  Shape s;
  s.tp = l.tp;
  s.sequence_ranks = l.sequence_ranks();
  s.tokens = static_cast<double>(job.training.micro_batch_size * job.training.sequence_length) /
             s.sequence_ranks;
  const bool sharded = l.tp > 1 && (job.techniques.sequence_parallel || job.model.is_moe());
  s.local_tokens = sharded ? s.tokens / l.tp : s.tokens;
  s.linear = job::gemm_dtype(job.training.precision);
  s.tp_domains = hardware::span_of(job.cluster, 0, l.tp, 1).domains;
  s.cp_domains = hardware::span_of(job.cluster, 0, l.sequence_ranks(), l.tp).domains;
  s.ep_domains = hardware::span_of(job.cluster, 0, l.ep * l.etp, 1).domains;
  return s;
}

double distinct_targets(const model::Moe& moe, double parts) {
  const double experts = static_cast<double>(moe.experts);
  const double k = static_cast<double>(moe.top_k);
  if (parts <= 1) return 1;
  if (!moe.group_limited()) return expected_distinct_groups(experts, parts, k);
  const double groups = static_cast<double>(moe.groups);
  const double allowed = static_cast<double>(moe.top_groups);
  const double reachable = experts * allowed / groups;
  if (parts >= groups) return expected_distinct_groups(reachable, allowed * parts / groups, k);
  const double used_groups = expected_distinct_groups(reachable, allowed, k);
  return expected_distinct_groups(groups, parts, used_groups);
}

Exchange exchange_of(const job::Job& job, const ExpertLoad& load) {
  const layout::Layout& l = job.layout;
  const Shape s = shape_of(job);
  const double ep = l.ep, etp = l.etp, k = static_cast<double>(job.model.moe.top_k);
  Exchange x;
  x.ranks = l.ep * l.etp;
  x.domains = s.ep_domains;
  const double domains = x.domains, nl = s.local_tokens, skew = load.imbalance;
  switch (job.techniques.dispatcher) {
    case job::Dispatcher::alltoall: {
      // k copies of every token; 1/ep of them stay. With etp the received rows are then gathered
      // over etp.
      const double copies = nl * k * skew;
      const double ep_in_domain = std::max(1.0, ep / domains);
      x.scaleout_tokens = copies * (1 - 1 / domains);
      x.scaleup_tokens = copies / domains * (1 - 1 / ep_in_domain) + copies * (etp - 1);
      x.arriving_tokens = load.max_tokens_per_rank;
      break;
    }
    case job::Dispatcher::allgather: {
      // Every rank receives every token of the group (a ring, so the slow link carries all of them
      // once).
      const double all = nl * x.ranks;
      x.scaleup_tokens = all * (1 - 1.0 / x.ranks);
      x.scaleout_tokens = domains > 1 ? all * (1 - 1 / domains) : 0;
      x.arriving_tokens = all;
      break;
    }
    case job::Dispatcher::deepep:
    case job::Dispatcher::hybridep: {
      // One copy per distinct destination rank; between domains one copy per distinct domain,
      // fanned out over NVLink.
      const double ranks = distinct_targets(job.model.moe, ep) * etp;
      const double remote = distinct_targets(job.model.moe, domains) * (1 - 1 / domains);
      // Of the copies that land in a domain, the landing rank keeps its own.
      const double in_domain = x.ranks / domains;
      x.scaleup_tokens = nl * ranks * (1 - 1 / in_domain) * skew;
      x.scaleout_tokens = nl * remote * skew;
      x.arriving_tokens = nl * ranks * skew;
      break;
    }
  }
  return x;
}

}  // namespace trifold::layer

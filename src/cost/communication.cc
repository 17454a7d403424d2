// SPDX-License-Identifier: Apache-2.0

// Communication.
//   Inside a domain: the profile's measured curves.
//   Across D domains: rings (all-gather, reduce-scatter, all-reduce) move S (n-1)/n at the slower
//   of NVLink and the domain's NICs together, plus a latency that grows with D (the ratio halves
//   per doubling of nodes at fixed small S: achieved.md 2); all-to-all moves S (D-1)/D over each
//   rank's own NIC beside S/D over NVLink; send/recv uses one NIC. Token dispatch: max of NVLink
//   and NIC time at the dispatcher's efficiency, and what its SMs take for bytes and rows,
//   plus per-transfer latencies (techniques.md check C5; arXiv:2603.07685 Table 7). Known error:
//   5-10 % (tests/observations/facts).

#include <algorithm>
#include <cmath>

#include "cost/price.h"
#include "layer/counts.h"

namespace trifold::cost {

using hardware::Basis;
using hardware::Collective;
using hardware::GroupSpan;

double Pricer::collective_seconds(Collective op, const GroupSpan& span, double bytes) const {
  if (span.ranks <= 1 || bytes <= 0) return 0;
  if (!span.crosses_domains()) return profile_->collective_seconds(op, span.ranks, bytes).value;
  const double n = span.ranks, domains = span.domains, per_domain = n / domains;
  const double nic = span.scaleout.value() * constants_.scaleout_efficiency;
  if (op == Collective::send_recv) return constants_.scaleout_latency_s + bytes / nic;
  if (op == Collective::all_to_all) {
    const double outside = bytes * (1 - 1 / domains) / nic;
    const double inside =
        per_domain > 1
            ? profile_
                  ->collective_seconds(op, std::max(2, span.max_ranks_per_domain), bytes / domains)
                  .value
            : 0;
    return std::max(outside, inside) + constants_.scaleout_latency_s;
  }
  const double moved = bytes * (n - 1) / n * (op == Collective::all_reduce ? 2 : 1);
  const double inside =
      per_domain > 1 ? profile_->collective_seconds(op, span.max_ranks_per_domain, bytes).value : 0;
  const double ring = moved / (nic * per_domain);
  return std::max(inside, ring) +
         constants_.scaleout_latency_s * domains * (op == Collective::all_reduce ? 2 : 1);
}

double Pricer::send_recv_seconds(bool crosses_domains, double bytes) const {
  GroupSpan span;
  span.ranks = 2;
  span.domains = crosses_domains ? 2 : 1;
  span.scaleout = cluster_->scaleout_rate();
  span.scaleup = cluster_->scaleup_bandwidth;
  return collective_seconds(Collective::send_recv, span, bytes);
}

Price Pricer::collective(const layer::Operator& op) const {
  GroupSpan span;
  span.ranks = op.group_ranks;
  span.domains = op.group_domains;
  span.max_ranks_per_domain = std::max(1, op.group_ranks / op.group_domains);
  span.scaleup = cluster_->scaleup_bandwidth;
  span.scaleout = cluster_->scaleout_rate();
  if (!span.crosses_domains()) {
    const hardware::Known known =
        profile_->collective_seconds(op.collective, op.group_ranks, op.bytes);
    return {known.value, known.basis, known.error};
  }
  return {collective_seconds(op.collective, span, op.bytes), Basis::scaled, 0.15};
}

double Pricer::step_end_seconds(int gpus) const {
  const double nodes = std::max(1.0, static_cast<double>(gpus) / cluster_->gpus_per_node);
  return constants_.optimizer_fixed_s + constants_.step_sync_s * std::log2(nodes);
}

int Pricer::dispatcher_sms(const job::Techniques& techniques) const {
  return techniques.dispatcher_sms > 0
             ? techniques.dispatcher_sms
             : dispatchers_[static_cast<std::size_t>(techniques.dispatcher)].default_sms;
}

// A training step tells where rows will go and waits for it, which a benchmark repeating one
// transfer does not.
Price Pricer::routing_exchange(const layer::Operator& op, job::Dispatcher dispatcher) const {
  const bool metadata = dispatcher == job::Dispatcher::hybridep && op.group_domains > 1;
  const int waits = dispatcher == job::Dispatcher::alltoall ? layer::counts::kAllToAllCountWaits
                                                            : layer::counts::kCountWaits;
  return {(metadata ? constants_.ep_metadata_s : 0) +
              (op.blocks ? waits * constants_.ep_sync_latency_s : 0),
          Basis::scaled, 0.3};
}

Price Pricer::dispatch(const layer::Operator& op, const job::Techniques& techniques) const {
  if (op.routes) return routing_exchange(op, techniques.dispatcher);
  const hardware::DispatcherRate& rate =
      dispatchers_[static_cast<std::size_t>(techniques.dispatcher)];
  const int sms = dispatcher_sms(techniques);
  const double up = cluster_->scaleup_bandwidth.value() * rate.scaleup_efficiency;
  const double out = cluster_->scaleout_rate().value() * rate.scaleout_efficiency;
  double seconds = op.scaleup_bytes / up;
  if (rate.bytes_per_s_per_sm > 0 && sms > 0)
    seconds = std::max(
        seconds,
        (op.scaleup_bytes / rate.bytes_per_s_per_sm + op.scaleup_rows * rate.sm_s_per_row) / sms);
  if (op.group_domains > 1)
    seconds = std::max(seconds, op.scaleout_bytes / out) +
              rate.latency_scaleout_s * constants_.ep_scaleout_latency_factor;
  seconds += rate.latency_s;
  return {seconds, rate.basis, rate.error};
}

}  // namespace trifold::cost

// SPDX-License-Identifier: Apache-2.0
// Overlap on one GPU, after shared/data/h200x2/overlap.csv (2x H200, NCCL 2.28, measured
// 2026-11-29) and shared/reference/achieved.md section 9.
//
//   SM share      a transfer that runs on c CTAs holds c of S SMs; a GEMM has what is left, in
//   whole
//                 waves: ceil(tiles / (S - c)) instead of ceil(tiles / S). A one-wave GEMM doubles.
//   occupancy     a persistent GEMM gives no SM back before it ends: a transfer that needs SMs
//   starts
//                 when the running GEMM ends, unless the GEMM leaves enough of them (SM target).
//                 About half of the step shows (`wave`): the last wave runs faster.
//   HBM           transfers on few CTAs are bound by latency, which grows with the load that others
//                 put on HBM: beside a streaming copy they run three times slower, beside a
//                 GEMM 1.3.
//                 Transfers over the NIC have slack: 24 CTAs move 280 GB/s alone, a NIC 50, and
//                 280 / (1 + latency_hbm x load) stays above that.
//   link traffic  a GEMM loses about a tenth beside any NVLink traffic, copy engines included;
//                 beside a NIC's what published runs say (overlap_leak).
//
// Known error: 8 % of compute and 15 % of transfer times beside one another (mean absolute, rows
// not fitted); the worst are small copies on 16 SMs beside a GEMM (half of the measured time).
// Fitted on the even rows by tests/unit/schedule/contention_test.cc, which reports the odd rows.
#include "schedule/contention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/engine.h"

namespace trifold::schedule {

sim::Load gemm_load(const Contention& c, double tiles, double sms_used, double sms,
                    double scaleout) {
  sim::Load load;
  load.use[kSms] = sms_used / sms;
  load.use[kHbm] = c.gemm_hbm;
  load.sensitivity[kScaleUp] = c.gemm_link;
  load.sensitivity[kScaleOut] = scaleout;
  load.fill = c.occupancy * sms_used / sms;
  if (tiles > 0) load.rounds = tiles / sms_used, load.grain = c.wave;
  return load;
}

sim::Load memory_load(const Contention& c) {
  sim::Load load;
  load.use[kSms] = 1;
  load.use[kHbm] = c.memory_hbm;
  return load;
}

sim::Load transfer_load(const Contention& c, Resource link, double ctas, double sms,
                        double hbm_share) {
  sim::Load load;
  load.hold[kSms] = ctas / sms;
  load.use[link] = 1;
  load.use[kHbm] = std::min(1.0, hbm_share);
  if (ctas > 0 && link == kScaleUp) load.sensitivity[kHbm] = c.latency_hbm;
  return load;
}

Beside run_beside(const sim::Load& compute, double compute_s, const sim::Load& transfer,
                  double transfer_s) {
  sim::LoadTable loads;
  const std::uint8_t a = loads.add(compute), b = loads.add(transfer);
  sim::Graph graph;
  const sim::Index domain = graph.add_domain();
  const sim::Index first = graph.add_stream(domain), second = graph.add_stream(domain);
  const double span = 40 * std::max(compute_s, transfer_s);
  const int n = static_cast<int>(span / compute_s), m = static_cast<int>(span / transfer_s);
  for (int i = 0; i < n; ++i) graph.add_task(first, sim::to_picoseconds(compute_s), a);
  for (int i = 0; i < m; ++i) graph.add_task(second, sim::to_picoseconds(transfer_s), b);
  sim::Engine engine;
  const sim::Outcome& o = engine.run(graph, loads);
  TRIFOLD_CHECK(o.complete);
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const sim::Picoseconds both = std::min(o.end[at(n - 1)], o.end[at(n + m - 1)]);
  int done_a = 0, done_b = 0;
  for (int i = 0; i < n; ++i) done_a += o.end[at(i)] <= both;
  for (int i = n; i < n + m; ++i) done_b += o.end[at(i)] <= both;
  return {sim::to_seconds(o.end[at(done_a - 1)]) / done_a,
          sim::to_seconds(o.end[at(n + done_b - 1)]) / done_b};
}

}  // namespace trifold::schedule

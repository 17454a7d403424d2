// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "hardware/profile.h"

// A profile from datasheet rates alone. Ratios come from the GPUs that somebody measured
// (shared/reference/achieved.md section 1 and 4), one set for all:
//   8 ranks, Hopper (450 GB/s): busbw at 512 MiB is 337 for all-gather and reduce-scatter (0.75),
//   311 for all-to-all (0.69), 360-370 for all-reduce without NVLS (0.81); latency 10, 8, 16 us.
//   Send/recv: one NVLink peer at large sizes, 0.75, 10 us.
//   DeepEP: 153 of 200 GB/s on H800, so 0.77; 43..58 of 50 GB/s between nodes, so 0.90; B200 shows
//   15..22 GB/s an SM below the link. HybridEP: 735 GB/s at 16 SMs on B200, so 0.80 and 45 GB/s an
//   SM. NCCL dispatchers reach what their collectives reach (B200: 563 GB/s with 16 SMs).
// Known error: Blackwell's curves bend later (617/900 at 512 MiB is 0.69, but 166 GB/s at 8 MiB),
// so 25 % one sigma.

namespace trifold::hardware {

namespace {

constexpr int kCurveRanks = 8;
constexpr double kCurveError = 0.25;

CollectiveCurve alpha_beta(int ranks, double latency_s, double bytes_per_s) {
  CollectiveCurve curve;
  curve.ranks = ranks;
  curve.error = kCurveError;
  curve.basis = Basis::assumed;
  curve.source = "alpha-beta from the NVLink rate";
  for (double bytes = 1024; bytes <= 4.0 * (1 << 30); bytes *= 4) {
    curve.bytes.push_back(bytes);
    curve.seconds.push_back(latency_s + bytes / bytes_per_s);
  }
  return curve;
}

DispatcherRate rate(double scaleup, double scaleout, double per_sm, double latency_s,
                    double latency_scaleout_s, int sms) {
  DispatcherRate r;
  r.scaleup_efficiency = scaleup;
  r.scaleout_efficiency = scaleout;
  r.bytes_per_s_per_sm = per_sm;
  r.latency_s = latency_s;
  r.latency_scaleout_s = latency_scaleout_s;
  r.default_sms = sms;
  r.error = kCurveError;
  r.source = "ratios of H800 and H100 measurements";
  return r;
}

}  // namespace

Profile assumed_profile(const Cluster& cluster) {
  Profile profile;
  profile.name = "assumed-" + cluster.name;
  profile.provenance.gpu = cluster.gpu.name;
  profile.provenance.source = "datasheet rates and the ratios of other GPUs; nothing measured";
  const double link = cluster.scaleup_bandwidth.value();
  const double share = (kCurveRanks - 1.0) / kCurveRanks;
  const auto put = [&](Collective op, int ranks, double latency_s, double efficiency,
                       double volume) {
    profile.collectives[static_cast<std::size_t>(op)] = {
        alpha_beta(ranks, latency_s, efficiency * link / volume)};
  };
  put(Collective::all_gather, kCurveRanks, 10e-6, 0.75, share);
  put(Collective::reduce_scatter, kCurveRanks, 10e-6, 0.75, share);
  put(Collective::all_reduce, kCurveRanks, 16e-6, 0.81, 2 * share);
  put(Collective::all_to_all, kCurveRanks, 8e-6, 0.69, share);
  put(Collective::send_recv, 2, 10e-6, 0.75, 1);
  profile.dispatchers["alltoall"] = rate(0.69, 0.90, 35e9, 15e-6, 60e-6, 16);
  profile.dispatchers["allgather"] = rate(0.75, 0.90, 35e9, 15e-6, 60e-6, 16);
  profile.dispatchers["deepep"] = rate(0.77, 0.90, 15e9, 20e-6, 100e-6, 20);
  profile.dispatchers["hybridep"] = rate(0.80, 0.90, 45e9, 20e-6, 100e-6, 16);
  for (const ConstantSpec& spec : constant_specs())
    profile.constants[spec.key] = default_constant(spec);
  return profile;
}

}  // namespace trifold::hardware

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What kernels and transfers of one GPU do to each other, as sim::Load. A handful of parameters
// with a meaning, fitted to overlap measurements (contention.cc).

#include "sim/load.h"

namespace trifold::schedule {

// Resources of a GPU in sim's numbering.
enum Resource : int {
  kSms = 0,
  kHbm = 1,
  kScaleUp = 2,
  kScaleOut = 3,
  kToHost = 4,
  kFromHost = 5  // the host link is full duplex
};

struct Contention {
  double gemm_hbm = 0.08;     // load that a large GEMM puts on HBM, as others feel it
  double memory_hbm = 0.52;   // the same of a streaming kernel
  double latency_hbm = 2.93;  // a kernel that moves data with few CTAs slows by 1 + this x load
  double gemm_link = 0.064;   // a GEMM slows by 1 + this x link traffic (power, L2)
  double wave = 0.53;         // how much of a GEMM's wave quantisation shows (0: fluid)
  double occupancy = 1;       // share of its SMs that a running GEMM denies to new kernels
  bool operator==(const Contention&) const = default;
};

// A GEMM of `tiles` output tiles on `sms_used` of `sms`. `scaleout`: what it loses beside NIC
// traffic, which two GPUs could not show.
sim::Load gemm_load(const Contention& c, double tiles, double sms_used, double sms,
                    double scaleout = 0);
// A kernel that streams through HBM on every SM.
sim::Load memory_load(const Contention& c);
// A transfer driven by `ctas` SMs over a link (kScaleUp, kScaleOut), or by a copy engine (ctas 0).
// `hbm_share`: bytes it reads and writes in HBM over its time alone, of the HBM rate.
sim::Load transfer_load(const Contention& c, Resource link, double ctas, double sms,
                        double hbm_share);

// Two streams that are always busy, one with `compute` tasks of `compute_s` seconds alone, one with
// `transfer` tasks: mean time of each beside the other, by running the engine.
struct Beside {
  double compute_s = 0, transfer_s = 0;
};
Beside run_beside(const sim::Load& compute, double compute_s, const sim::Load& transfer,
                  double transfer_s);

}  // namespace trifold::schedule

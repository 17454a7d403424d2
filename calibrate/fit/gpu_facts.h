// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the fitter knows about a GPU before it fits: datasheet rates (data/hardware.json) and which
// rows of which public table speak of it.

#include <string>
#include <vector>

#include "base/json.h"
#include "hardware/cluster.h"

namespace trifold::fit {

struct GpuFacts {
  std::string profile;      // profile name, "h100"
  std::string hardware;     // name in data/hardware.json
  std::string device;       // provenance: what the driver calls it
  std::string gemm;         // gpu column of gemm_compact.csv and moe_compact.csv
  std::string files;        // prefix of the per-GPU files: "h100_sxm"
  std::string facts;        // gpu field of data/observations/facts.json
  std::string scaled_from;  // profile whose tables stand in; "" when it has its own
  bool blackwell = false;
  double bf16 = 0, fp8 = 0, fp4 = 0;           // FLOP/s, dense
  double hbm = 0;                              // B/s
  double scaleup = 0, scaleout = 0, host = 0;  // B/s per GPU and direction
  double nic = 0;  // bytes/s, datasheet rate of the NIC that a cluster file states
  int domain = 8;
  int sms = 132;
  double h2d = 0;  // measured copy rate, B/s; 0: none

  double peak(hardware::Dtype dtype) const;
};

// The GPUs that have a public table, in a fixed order.
Result<std::vector<GpuFacts>> read_gpu_facts(const std::string& data_dir);
const GpuFacts* find_gpu(const std::vector<GpuFacts>& all, const std::string& profile);

}  // namespace trifold::fit

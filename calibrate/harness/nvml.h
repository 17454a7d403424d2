// SPDX-License-Identifier: Apache-2.0
#pragma once

// Clocks, power and throttle reasons through NVML, loaded at run time (its header is often absent
// from the toolkit). Only reads; without the library every answer is empty.

#include <string>

namespace trifold::calibrate {

struct GpuState {
  double sm_mhz = 0;       // 0: not read
  double watts = 0;        // 0: not read
  bool thermal = false;    // the driver slows the clock for heat or hardware protection
  bool power_cap = false;  // the driver holds the power limit
};

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  bool available() const { return library_ != nullptr; }
  std::string driver_version() const;
  // `pci_bus_id` as CUDA writes it, e.g. "0000:1B:00.0".
  void* device(const std::string& pci_bus_id) const;
  GpuState read(void* device) const;

 private:
  void* symbol(const char* name) const;
  void* library_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
};

}  // namespace trifold::calibrate

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/nvml.h"

#include <dlfcn.h>

namespace trifold::calibrate {
namespace {

constexpr int kSmClock = 1;  // nvmlClockType_t
// nvmlClocksEventReasons: software power cap; hardware slowdown, software and hardware thermal,
// hardware power brake.
constexpr unsigned long long kPowerCap = 0x4;
constexpr unsigned long long kThermal = 0x8 | 0x20 | 0x40 | 0x80;

template <class F>
F as(void* symbol) {
  return reinterpret_cast<F>(symbol);
}

}  // namespace

Nvml::Nvml() {
  library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return;
  auto init = as<int (*)()>(symbol("nvmlInit_v2"));
  clock_ = as<int (*)(void*, int, unsigned*)>(symbol("nvmlDeviceGetClockInfo"));
  power_ = as<int (*)(void*, unsigned*)>(symbol("nvmlDeviceGetPowerUsage"));
  void* reasons = symbol("nvmlDeviceGetCurrentClocksEventReasons");
  if (reasons == nullptr) reasons = symbol("nvmlDeviceGetCurrentClocksThrottleReasons");
  reasons_ = as<int (*)(void*, unsigned long long*)>(reasons);
  if (init == nullptr || init() != 0) {
    ::dlclose(library_);
    library_ = nullptr;
  }
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  if (auto shutdown = as<int (*)()>(symbol("nvmlShutdown"))) shutdown();
  ::dlclose(library_);
}

void* Nvml::symbol(const char* name) const { return ::dlsym(library_, name); }

std::string Nvml::driver_version() const {
  if (library_ == nullptr) return {};
  char text[96] = {};
  auto get = as<int (*)(char*, unsigned)>(symbol("nvmlSystemGetDriverVersion"));
  if (get == nullptr || get(text, sizeof(text)) != 0) return {};
  return text;
}

void* Nvml::device(const std::string& pci_bus_id) const {
  if (library_ == nullptr) return nullptr;
  auto get = as<int (*)(const char*, void**)>(symbol("nvmlDeviceGetHandleByPciBusId_v2"));
  void* device = nullptr;
  if (get == nullptr || get(pci_bus_id.c_str(), &device) != 0) return nullptr;
  return device;
}

GpuState Nvml::read(void* device) const {
  GpuState state;
  if (library_ == nullptr || device == nullptr) return state;
  unsigned value = 0;
  if (clock_ != nullptr && clock_(device, kSmClock, &value) == 0) state.sm_mhz = value;
  if (power_ != nullptr && power_(device, &value) == 0) state.watts = value / 1000.0;
  unsigned long long reasons = 0;
  if (reasons_ != nullptr && reasons_(device, &reasons) == 0) {
    state.thermal = (reasons & kThermal) != 0;
    state.power_cap = (reasons & kPowerCap) != 0;
  }
  return state;
}

}  // namespace trifold::calibrate

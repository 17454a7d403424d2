// SPDX-License-Identifier: Apache-2.0
#pragma once

// One GPU as a rank sees it: streams, library handles, one arena of plain device memory. Faults are
// Results that name host, rank and call; CUDA_TRY and friends return them.

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "calibrate/harness/nvml.h"
#include "calibrate/kernels/kernels.h"

namespace trifold::calibrate {

// Host and rank for messages, set once by each rank's thread.
void set_fault_place(const std::string& place);
Error fault(const char* library, const char* call, const char* what, const char* file, int line);
// A point that cannot run here (out of memory, unsupported): skipped with its reason.
Error skip(std::string why);
bool is_skip(const Error& error);

#define CUDA_TRY(call)                                                                    \
  do {                                                                                    \
    const cudaError_t trifold_code = (call);                                              \
    if (trifold_code != cudaSuccess)                                                      \
      return ::trifold::calibrate::fault("CUDA", #call, cudaGetErrorString(trifold_code), \
                                         __FILE__, __LINE__);                             \
  } while (false)
#define CUBLAS_TRY(call)                                                                       \
  do {                                                                                         \
    const cublasStatus_t trifold_code = (call);                                                \
    if (trifold_code == CUBLAS_STATUS_NOT_SUPPORTED)                                           \
      return ::trifold::calibrate::skip(std::string("cuBLAS does not support ") + #call);      \
    if (trifold_code != CUBLAS_STATUS_SUCCESS)                                                 \
      return ::trifold::calibrate::fault("cuBLAS", #call, cublasGetStatusString(trifold_code), \
                                         __FILE__, __LINE__);                                  \
  } while (false)
#define NCCL_TRY(call)                                                                    \
  do {                                                                                    \
    const ncclResult_t trifold_code = (call);                                             \
    if (trifold_code != ncclSuccess && trifold_code != ncclInProgress)                    \
      return ::trifold::calibrate::fault("NCCL", #call, ncclGetErrorString(trifold_code), \
                                         __FILE__, __LINE__);                             \
  } while (false)

// Bump allocation out of one cudaMalloc; reset between points.
class Arena {
 public:
  Result<void> open(std::size_t bytes);
  void close();
  Result<void*> take(std::size_t bytes);  // 256-byte aligned; a skip when it does not fit
  template <class T>
  Result<T*> take_array(std::size_t count) {
    TRIFOLD_ASSIGN(p, take(count * sizeof(T)));
    return static_cast<T*>(p);
  }
  void reset() { used_ = 0; }
  std::size_t free_bytes() const { return size_ - used_; }
  std::size_t mark() const { return used_; }
  void rewind(std::size_t mark) { used_ = mark; }

 private:
  char* base_ = nullptr;
  std::size_t size_ = 0, used_ = 0;
};

inline constexpr std::size_t kSideStreams = 4;  // of each of the two main streams
inline constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

struct Device {
  int index = 0;
  std::string name, uuid_hash, driver, cuda, cublas, nccl, pci;
  int sms = 0, major = 0, minor = 0;
  std::size_t l2_bytes = 0, memory_bytes = 0;
  cudaStream_t stream = nullptr, second = nullptr;  // the second one has high priority
  std::vector<cudaStream_t> sides;  // kSideStreams for stream, then as many for second
  std::vector<void*> workspaces;    // [0] stream, [1] second, [2..] sides
  cudaEvent_t start = nullptr, stop = nullptr, fork = nullptr;
  std::vector<cudaEvent_t> joins, side_forks;  // one a side; one a main stream
  cublasLtHandle_t lt = nullptr;
  cublasHandle_t blas = nullptr;
  Arena arena;
  Nvml nvml;
  void* nvml_device = nullptr;
  kernels::ClockStamp* stamps = nullptr;  // four, pinned: two for clock_now, two around a sample
  double top_mhz = 0;                     // the highest SM clock seen

  std::uint64_t next_seed = 1;
  std::uint64_t seed() { return next_seed++; }
};

// How many GPUs the driver shows; an environment error without a driver or GPU.
Result<int> visible_gpus();
Result<void> open_device(Device& device, int index, double memory_share);
void close_device(Device& device) noexcept;

// The SM clock now, from cycles over time on the device (NVML's answer lags). Waits for the stream.
Result<double> clock_now(Device& device);
// Between two stamps; 0 when they come from different multiprocessors.
double clock_between(const kernels::ClockStamp& a, const kernels::ClockStamp& b);
// Sleeps until the clock is back at its top, so that what ran before does not show; at most
// `most_ms`.
Result<void> cool(Device& device, double most_ms);

// Waits for a stream by polling: gives up after `timeout_s`, or at once when `stopped()` says that
// another rank failed (a NCCL kernel would wait for it for ever).
Result<void> wait_for(cudaStream_t stream, double timeout_s, const std::function<bool()>& stopped);

// Device copies for checks.
template <class T>
Result<std::vector<T>> to_host(const void* device, std::size_t count) {
  std::vector<T> host(count);
  CUDA_TRY(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace trifold::calibrate

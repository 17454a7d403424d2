// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/random.h"
#include "calibrate/harness/bootstrap.h"

namespace trifold::calibrate {
namespace {

thread_local std::string fault_place;
constexpr const char* kSkip = "skipped";

std::string version_text(int version, int major_unit, int minor_unit) {
  return std::to_string(version / major_unit) + "." +
         std::to_string(version % major_unit / minor_unit);
}

Result<void> describe(Device& d) {
  cudaDeviceProp properties{};
  CUDA_TRY(cudaGetDeviceProperties(&properties, d.index));
  d.name = properties.name;
  d.sms = properties.multiProcessorCount;
  d.major = properties.major;
  d.minor = properties.minor;
  d.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  d.memory_bytes = properties.totalGlobalMem;
  char hash[32];
  std::snprintf(hash, sizeof(hash), "%016llx",
                static_cast<unsigned long long>(fnv1a(&properties.uuid, sizeof(properties.uuid))));
  d.uuid_hash = hash;
  char pci[32] = {};
  CUDA_TRY(cudaDeviceGetPCIBusId(pci, sizeof(pci), d.index));
  d.pci = pci;
  int runtime = 0, driver = 0, nccl = 0;
  CUDA_TRY(cudaRuntimeGetVersion(&runtime));
  CUDA_TRY(cudaDriverGetVersion(&driver));
  NCCL_TRY(ncclGetVersion(&nccl));
  d.cuda = version_text(runtime, 1000, 10);
  d.driver = d.nvml.driver_version();
  if (d.driver.empty()) d.driver = "CUDA " + version_text(driver, 1000, 10);
  d.cublas = std::to_string(cublasLtGetVersion());
  d.nccl = std::to_string(nccl / 10000) + "." + std::to_string(nccl / 100 % 100) + "." +
           std::to_string(nccl % 100);
  d.nvml_device = d.nvml.device(d.pci);
  return {};
}

Result<void> open_streams(Device& d) {
  int least = 0, greatest = 0;
  CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_TRY(cudaStreamCreateWithPriority(&d.stream, cudaStreamNonBlocking, least));
  CUDA_TRY(cudaStreamCreateWithPriority(&d.second, cudaStreamNonBlocking, greatest));
  d.sides.resize(2 * kSideStreams);
  d.joins.resize(d.sides.size());
  d.side_forks.resize(2);
  for (cudaStream_t& side : d.sides)
    CUDA_TRY(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  for (std::vector<cudaEvent_t>* events : {&d.joins, &d.side_forks})
    for (cudaEvent_t& event : *events)
      CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA_TRY(cudaEventCreateWithFlags(&d.fork, cudaEventDisableTiming));
  CUDA_TRY(cudaEventCreate(&d.start));
  CUDA_TRY(cudaEventCreate(&d.stop));
  return {};
}

}  // namespace

void set_fault_place(const std::string& place) { fault_place = place; }

Error fault(const char* library, const char* call, const char* what, const char* file, int line) {
  const char* slash = std::strrchr(file, '/');
  return Error{
      ErrorCode::environment, std::string(library) + ": " + what + " in " + call,
      fault_place + ", " + (slash != nullptr ? slash + 1 : file) + ":" + std::to_string(line),
      "the points so far are kept; the same command resumes"};
}

Error skip(std::string why) { return Error{ErrorCode::infeasible, std::move(why), kSkip, ""}; }

bool is_skip(const Error& error) {
  return error.code == ErrorCode::infeasible && error.where == kSkip;
}

Result<void> Arena::open(std::size_t bytes) {
  for (; bytes >= (std::size_t{1} << 28); bytes = bytes / 8 * 7) {
    void* p = nullptr;
    const cudaError_t code = cudaMalloc(&p, bytes);
    if (code == cudaSuccess) {
      base_ = static_cast<char*>(p);
      size_ = bytes;
      return {};
    }
    if (code != cudaErrorMemoryAllocation) CUDA_TRY(code);
    (void)cudaGetLastError();
  }
  return Error{ErrorCode::environment, "less than 256 MiB of device memory is free", fault_place,
               "another process holds it?"};
}

void Arena::close() {
  if (base_ != nullptr) (void)cudaFree(base_);
  base_ = nullptr;
  size_ = used_ = 0;
}

Result<void*> Arena::take(std::size_t bytes) {
  const std::size_t rounded = (bytes + 255) / 256 * 256;
  if (rounded > size_ - used_)
    return skip("out of device memory (" + std::to_string(bytes >> 20) + " MiB more)");
  void* p = base_ + used_;
  used_ += rounded;
  return p;
}

Result<int> visible_gpus() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0)
    return Error{ErrorCode::environment,
                 std::string("no usable NVIDIA GPU: ") +
                     (code != cudaSuccess ? cudaGetErrorString(code) : "none is visible"),
                 host_name(), "run on a GPU machine, or refit points with --fit"};
  return count;
}

Result<void> open_device(Device& d, int index, double memory_share) {
  d.index = index;
  CUDA_TRY(cudaSetDevice(index));
  TRIFOLD_TRY(describe(d));
  TRIFOLD_TRY(open_streams(d));
  d.workspaces.resize(2 + d.sides.size());
  for (void*& workspace : d.workspaces) CUDA_TRY(cudaMalloc(&workspace, kWorkspaceBytes));
  CUBLAS_TRY(cublasLtCreate(&d.lt));
  CUBLAS_TRY(cublasCreate(&d.blas));
  CUBLAS_TRY(cublasSetStream(d.blas, d.stream));
  CUBLAS_TRY(cublasSetWorkspace(d.blas, d.workspaces[0], kWorkspaceBytes));
  // Modules load lazily, and a load can wait for a NCCL kernel that waits for us: load these now.
  CUDA_TRY(kernels::spin(1, d.stream));
  CUDA_TRY(kernels::nothing(d.stream));
  CUDA_TRY(cudaMallocHost(&d.stamps, 4 * sizeof(kernels::ClockStamp)));
  CUDA_TRY(kernels::clock_stamp(&d.stamps[2], d.stream));
  // An idle GPU takes some milliseconds to come up.
  for (int i = 0; i < 100; ++i) {
    TRIFOLD_ASSIGN(mhz, clock_now(d));
    d.top_mhz = std::max(d.top_mhz, mhz);
  }
  CUDA_TRY(kernels::copy_blocks(d.workspaces[0], d.workspaces[1], 4096, 0, d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  std::size_t free_bytes = 0, total = 0;
  CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
  return d.arena.open(static_cast<std::size_t>(static_cast<double>(free_bytes) * memory_share));
}

void close_device(Device& d) noexcept {
  (void)cudaSetDevice(d.index);
  if (d.blas != nullptr) (void)cublasDestroy(d.blas);
  if (d.lt != nullptr) (void)cublasLtDestroy(d.lt);
  for (void* workspace : d.workspaces) (void)cudaFree(workspace);
  d.arena.close();
  if (d.stamps != nullptr) (void)cudaFreeHost(d.stamps);
  for (cudaStream_t stream : d.sides) (void)cudaStreamDestroy(stream);
  for (const std::vector<cudaEvent_t>* events : {&d.joins, &d.side_forks})
    for (cudaEvent_t event : *events) (void)cudaEventDestroy(event);
  for (cudaEvent_t event : {d.start, d.stop, d.fork})
    if (event != nullptr) (void)cudaEventDestroy(event);
  for (cudaStream_t stream : {d.stream, d.second})
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
}

double clock_between(const kernels::ClockStamp& a, const kernels::ClockStamp& b) {
  if (a.sm != b.sm || b.ns <= a.ns || b.cycles <= a.cycles) return 0;
  return 1e3 * static_cast<double>(b.cycles - a.cycles) / static_cast<double>(b.ns - a.ns);
}

Result<double> clock_now(Device& d) {
  constexpr double kSpan_us = 30;
  CUDA_TRY(kernels::clock_stamps(kSpan_us, d.stamps, d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  return clock_between(d.stamps[0], d.stamps[1]);
}

Result<void> cool(Device& d, double most_ms) {
  constexpr double kNearTop = 0.99;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    TRIFOLD_ASSIGN(mhz, clock_now(d));
    d.top_mhz = std::max(d.top_mhz, mhz);
    const std::chrono::duration<double, std::milli> waited =
        std::chrono::steady_clock::now() - start;
    if (mhz >= kNearTop * d.top_mhz || waited.count() >= most_ms) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<void> wait_for(cudaStream_t stream, double timeout_s, const std::function<bool()>& stopped) {
  const auto start = std::chrono::steady_clock::now();
  for (long polls = 0;; ++polls) {
    const cudaError_t code = cudaStreamQuery(stream);
    if (code == cudaSuccess) return {};
    if (code != cudaErrorNotReady) CUDA_TRY(code);
    if (polls % 256 != 0) continue;
    if (stopped && stopped())
      return Error{ErrorCode::environment, "another rank failed", fault_place, ""};
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > timeout_s)
      return Error{ErrorCode::environment,
                   "no progress in " + std::to_string(static_cast<int>(timeout_s)) +
                       " s: a collective waits for a rank that does not come",
                   fault_place, "the points so far are kept"};
    if (waited.count() > 0.05) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace trifold::calibrate

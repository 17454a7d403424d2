// SPDX-License-Identifier: Apache-2.0
// Copies on a chosen number of multiprocessors, a spin that lets the host run ahead, a look at the
// clocks, and a kernel that does nothing.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

__global__ void __launch_bounds__(512)
    copy_kernel(const uint4* __restrict__ from, uint4* __restrict__ to, std::size_t vectors) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < vectors; i += 4 * stride) {
    const uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride],
                d = from[i + 3 * stride];
    to[i] = a;
    to[i + stride] = b;
    to[i + 2 * stride] = c;
    to[i + 3 * stride] = d;
  }
  for (; i < vectors; i += stride) to[i] = from[i];
}

__device__ unsigned long long now_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__global__ void spin_kernel(unsigned long long nanoseconds) {
  const unsigned long long start = now_ns();
  while (now_ns() - start < nanoseconds) __nanosleep(200);
}

// The global timer may step by a microsecond: both ends are read right after a step.
__device__ ClockStamp stamp_now() {
  const unsigned long long before = now_ns();
  unsigned long long ns = before;
  while (ns == before) ns = now_ns();
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return {static_cast<std::uint64_t>(clock64()), ns, sm};
}

__global__ void stamp_kernel(ClockStamp* out) { *out = stamp_now(); }

__global__ void stamps_kernel(unsigned long long nanoseconds, ClockStamp* out) {
  const ClockStamp first = stamp_now();
  while (now_ns() - first.ns < nanoseconds) {
  }
  out[0] = first;
  out[1] = stamp_now();
}

__global__ void nothing_kernel() {}

}  // namespace

cudaError_t copy_blocks(const void* from, void* to, std::size_t bytes, int blocks,
                        cudaStream_t stream) {
  const std::size_t vectors = bytes / 16;
  const int full = grid_for(static_cast<std::int64_t>(vectors + 3) / 4, 512, 1 << 16);
  const int grid = blocks > 0 ? blocks : full;
  copy_kernel<<<grid, 512, 0, stream>>>(static_cast<const uint4*>(from), static_cast<uint4*>(to),
                                        vectors);
  return cudaGetLastError();
}

cudaError_t spin(double microseconds, cudaStream_t stream) {
  const double bounded = microseconds < 2e5 ? microseconds : 2e5;
  spin_kernel<<<1, 1, 0, stream>>>(static_cast<unsigned long long>(bounded * 1000));
  return cudaGetLastError();
}

cudaError_t clock_stamp(ClockStamp* out, cudaStream_t stream) {
  stamp_kernel<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}

cudaError_t clock_stamps(double microseconds, ClockStamp* out, cudaStream_t stream) {
  stamps_kernel<<<1, 1, 0, stream>>>(static_cast<unsigned long long>(microseconds * 1000), out);
  return cudaGetLastError();
}

cudaError_t nothing(cudaStream_t stream) {
  nothing_kernel<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace trifold::kernels

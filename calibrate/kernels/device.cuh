// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels share: 16-byte vectors of bf16, and reductions over warps and blocks.

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace trifold::kernels {

struct alignas(16) Vector8 {
  __nv_bfloat162 pairs[4];
};

__device__ inline void unpack(const Vector8& v, float (&out)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(v.pairs[i]);
    out[2 * i] = pair.x;
    out[2 * i + 1] = pair.y;
  }
}

__device__ inline Vector8 pack(const float (&in)[8]) {
  Vector8 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v.pairs[i] = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
  return v;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// Every thread gets the sum. `scratch` holds 33 floats; blockDim.x is a multiple of 32.
__device__ inline float block_sum(float x, float* scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  if (warp == 0) {
    x = warp_sum(lane < warps ? scratch[lane] : 0.0f);
    if (lane == 0) scratch[32] = x;
  }
  __syncthreads();
  return scratch[32];
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

inline int grid_for(std::int64_t items, int threads, int limit = 1 << 30) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return static_cast<int>(blocks < limit ? blocks : limit);
}

}  // namespace trifold::kernels

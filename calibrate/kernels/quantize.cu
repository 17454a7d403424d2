// SPDX-License-Identifier: Apache-2.0
// FP8 E4M3 with one scale per 1x128 block, and the transposed copy (blocks along the rows) that the
// weight gradient needs, from one read of a 128x128 tile.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

constexpr int kTile = 128;
constexpr int kThreads = 512;
constexpr int kPitch = kTile + 2;  // bf16 elements: 65 words a row, so a column hits every bank
constexpr float kMaxE4m3 = 448.0f;

// q = x / scale with scale = amax / 448; an all-zero block gets scale 1.
__device__ float scale_of(float amax) { return amax > 0 ? amax / kMaxE4m3 : 1.0f; }

__device__ unsigned char e4m3(float x) {
  return static_cast<unsigned char>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
}

__device__ void load_tile(const __nv_bfloat16* input, int columns, int row0, int column0,
                          __nv_bfloat16* tile) {
  for (int i = threadIdx.x; i < kTile * kTile / 8; i += kThreads) {
    const int r = i / (kTile / 8), v = i % (kTile / 8);
    const auto* from = input + std::int64_t{row0 + r} * columns + column0 + v * 8;
    const Vector8 value = *reinterpret_cast<const Vector8*>(from);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<__nv_bfloat162*>(tile + r * kPitch + v * 8 + 2 * j) = value.pairs[j];
  }
}

// A warp a line of 128: along rows (step 1) or along columns (step kPitch); lane l holds elements
// 4l .. 4l+3 and writes them as four bytes.
template <bool transposed>
__device__ void quantize_lines(const __nv_bfloat16* tile, int line0, int block, int lines,
                               std::int64_t pitch, unsigned char* q, float* scales) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int line = warp; line < kTile; line += kThreads / 32) {
    float x[4], amax = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = 4 * lane + j;
      x[j] = __bfloat162float(transposed ? tile[at * kPitch + line] : tile[line * kPitch + at]);
      amax = fmaxf(amax, fabsf(x[j]));
    }
    const float scale = scale_of(warp_max(amax)), inverse = 1.0f / scale;
    uchar4 bytes = make_uchar4(e4m3(x[0] * inverse), e4m3(x[1] * inverse), e4m3(x[2] * inverse),
                               e4m3(x[3] * inverse));
    *reinterpret_cast<uchar4*>(q + std::int64_t{line0 + line} * pitch + block * kTile + 4 * lane) =
        bytes;
    if (lane == 0) scales[std::int64_t{block} * lines + line0 + line] = scale;
  }
}

__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const __nv_bfloat16* input, int rows, int columns, unsigned char* q,
                    float* scales, unsigned char* qt, float* scales_t) {
  __shared__ __align__(16) __nv_bfloat16 tile[kTile * kPitch];
  const int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile;
  load_tile(input, columns, row0, column0, tile);
  __syncthreads();
  quantize_lines<false>(tile, row0, blockIdx.x, rows, columns, q, scales);
  if (qt != nullptr) quantize_lines<true>(tile, column0, blockIdx.y, columns, rows, qt, scales_t);
}

}  // namespace

cudaError_t quantize_1x128(const void* input, int rows, int columns, void* q, float* scales,
                           void* qt, float* scales_t, cudaStream_t stream) {
  if (rows % kTile != 0 || columns % kTile != 0 || rows / kTile > 65535)
    return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(columns / kTile), static_cast<unsigned>(rows / kTile));
  quantize_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(input), rows,
                                                 columns, static_cast<unsigned char*>(q), scales,
                                                 static_cast<unsigned char*>(qt), scales_t);
  return cudaGetLastError();
}

}  // namespace trifold::kernels

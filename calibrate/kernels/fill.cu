// SPDX-License-Identifier: Apache-2.0
// Random data (normals, since zeros draw less power and hide errors) and the sampled float64
// reference of a GEMM. The generator is a counter hash (splitmix64), so data depends on seed and
// index alone.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

__device__ std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ float unit(std::uint32_t bits) { return (bits + 0.5f) * 2.3283064e-10f; }

__device__ float2 normals(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = mix(seed * 0x632be59bd9b4e019ull + index);
  const float radius = sqrtf(-2.0f * __logf(unit(static_cast<std::uint32_t>(bits)) + 1e-12f));
  float sine, cosine;
  __sincosf(6.2831853f * unit(static_cast<std::uint32_t>(bits >> 32)), &sine, &cosine);
  return make_float2(radius * cosine, radius * sine);
}

__device__ void store(void* p, Element type, std::size_t i, float x) {
  if (type == Element::f32)
    static_cast<float*>(p)[i] = x;
  else if (type == Element::bf16)
    static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(x);
  else
    static_cast<__nv_fp8_e4m3*>(p)[i] = __nv_fp8_e4m3(x);
}

__global__ void fill_normal_kernel(void* p, Element type, std::size_t count, float scale,
                                   std::uint64_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; 2 * i < count;
       i += stride) {
    const float2 pair = normals(seed, i);
    store(p, type, 2 * i, pair.x * scale);
    if (2 * i + 1 < count) store(p, type, 2 * i + 1, pair.y * scale);
  }
}

__global__ void fill_uniform_kernel(float* p, std::size_t count, float low, float high,
                                    std::uint64_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    p[i] = low + (high - low) * unit(static_cast<std::uint32_t>(mix(seed ^ (i * 2 + 1))));
}

__device__ double load(const Operand& m, std::int64_t outer, std::int64_t k) {
  const std::int64_t at = outer * m.outer_stride + k * m.k_stride;
  double x = 0;
  if (m.type == Element::f32)
    x = static_cast<const float*>(m.data)[at];
  else if (m.type == Element::bf16)
    x = __bfloat162float(static_cast<const __nv_bfloat16*>(m.data)[at]);
  else
    x = static_cast<float>(static_cast<const __nv_fp8_e4m3*>(m.data)[at]);
  if (m.scale != nullptr) x *= m.scale[(outer / m.outer_block) * m.so + (k / m.k_block) * m.sk];
  return x;
}

__global__ void sampled_gemm_kernel(Operand a, Operand b, std::int64_t depth, const int* rows,
                                    const int* columns, double* out) {
  __shared__ double partial[256];
  const int sample = blockIdx.x;
  double sum = 0;
  for (std::int64_t k = threadIdx.x; k < depth; k += blockDim.x)
    sum += load(a, rows[sample], k) * load(b, columns[sample], k);
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[sample] = partial[0];
}

}  // namespace

cudaError_t fill_normal(void* p, Element type, std::size_t count, float scale, std::uint64_t seed,
                        cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int blocks = grid_for(static_cast<std::int64_t>((count + 1) / 2), 256, 8192);
  fill_normal_kernel<<<blocks, 256, 0, stream>>>(p, type, count, scale, seed);
  return cudaGetLastError();
}

cudaError_t fill_uniform(float* p, std::size_t count, float low, float high, std::uint64_t seed,
                         cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const int blocks = grid_for(static_cast<std::int64_t>(count), 256, 8192);
  fill_uniform_kernel<<<blocks, 256, 0, stream>>>(p, count, low, high, seed);
  return cudaGetLastError();
}

cudaError_t sampled_gemm(const Operand& a, const Operand& b, std::int64_t k, const int* rows,
                         const int* columns, int samples, double* out, cudaStream_t stream) {
  sampled_gemm_kernel<<<samples, 256, 0, stream>>>(a, b, k, rows, columns, out);
  return cudaGetLastError();
}

}  // namespace trifold::kernels

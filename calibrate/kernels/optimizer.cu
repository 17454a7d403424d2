// SPDX-License-Identifier: Apache-2.0
// AdamW over f32 masters (30 bytes a parameter) and softmax cross entropy with its gradient.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

__device__ float adam_one(const AdamConfig& c, float w, float g, float& m, float& v) {
  m = c.beta1 * m + (1 - c.beta1) * g;
  v = c.beta2 * v + (1 - c.beta2) * g * g;
  const float step = (m / c.correction1) / (sqrtf(v / c.correction2) + c.epsilon);
  return w - c.rate * (step + c.decay * w);
}

__global__ void adam_kernel(AdamConfig c, float4* master, float4* first, float4* second,
                            const float4* gradient, __nv_bfloat162* weight, std::int64_t quads) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < quads;
       i += stride) {
    float4 w = master[i], m = first[i], v = second[i];
    const float4 g = gradient[i];
    w.x = adam_one(c, w.x, g.x, m.x, v.x);
    w.y = adam_one(c, w.y, g.y, m.y, v.y);
    w.z = adam_one(c, w.z, g.z, m.z, v.z);
    w.w = adam_one(c, w.w, g.w, m.w, v.w);
    master[i] = w;
    first[i] = m;
    second[i] = v;
    weight[2 * i] = __floats2bfloat162_rn(w.x, w.y);
    weight[2 * i + 1] = __floats2bfloat162_rn(w.z, w.w);
  }
}

constexpr int kThreads = 512;

// One block a token: an online maximum and sum, then the gradient (p - onehot) * scale.
__global__ void cross_entropy_kernel(__nv_bfloat16* logits, const int* labels, int vocabulary,
                                     float scale, float* loss) {
  __shared__ float scratch[33], tops[32];
  auto* row = reinterpret_cast<__nv_bfloat162*>(logits + std::int64_t{blockIdx.x} * vocabulary);
  const int pairs = vocabulary / 2, label = labels[blockIdx.x];
  const float target = __bfloat162float(logits[std::int64_t{blockIdx.x} * vocabulary + label]);
  float top = -3.0e38f, sum = 0;
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    const float2 x = __bfloat1622float2(row[i]);
    const float higher = fmaxf(top, fmaxf(x.x, x.y));
    sum = sum * __expf(top - higher) + __expf(x.x - higher) + __expf(x.y - higher);
    top = higher;
  }
  const float warp_top = warp_max(top);
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = warp_top;
  __syncthreads();
  float block_top = tops[0];
  for (int w = 1; w < kThreads / 32; ++w) block_top = fmaxf(block_top, tops[w]);
  sum = block_sum(sum * __expf(top - block_top), scratch);
  if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + block_top - target;
  const float inverse = scale / sum;
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    const float2 x = __bfloat1622float2(row[i]);
    float a = __expf(x.x - block_top) * inverse, b = __expf(x.y - block_top) * inverse;
    if (2 * i == label) a -= scale;
    if (2 * i + 1 == label) b -= scale;
    row[i] = __floats2bfloat162_rn(a, b);
  }
}

}  // namespace

cudaError_t adam(const AdamConfig& config, float* master, float* first, float* second,
                 const float* gradient, void* weight, std::int64_t count, cudaStream_t stream) {
  if (count % 4 != 0) return cudaErrorInvalidValue;
  adam_kernel<<<grid_for(count / 4, 256), 256, 0, stream>>>(
      config, reinterpret_cast<float4*>(master), reinterpret_cast<float4*>(first),
      reinterpret_cast<float4*>(second), reinterpret_cast<const float4*>(gradient),
      static_cast<__nv_bfloat162*>(weight), count / 4);
  return cudaGetLastError();
}

cudaError_t cross_entropy(void* logits, const int* labels, int tokens, int vocabulary, float scale,
                          float* loss, cudaStream_t stream) {
  if (vocabulary % 2 != 0) return cudaErrorInvalidValue;
  cross_entropy_kernel<<<tokens, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(logits), labels,
                                                        vocabulary, scale, loss);
  return cudaGetLastError();
}

}  // namespace trifold::kernels

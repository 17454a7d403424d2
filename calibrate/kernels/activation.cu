// SPDX-License-Identifier: Apache-2.0
// SwiGLU, RMSNorm and RoPE: memory-bound, 16 bytes a thread.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void swiglu_forward_kernel(const Vector8* input, const float* probabilities,
                                      std::int64_t total, int vectors, Vector8* output) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total;
       i += stride) {
    const std::int64_t row = i / vectors, v = i % vectors;
    float gate[8], up[8], out[8];
    unpack(input[row * 2 * vectors + v], gate);
    unpack(input[row * 2 * vectors + vectors + v], up);
    const float weight = probabilities != nullptr ? probabilities[row] : 1.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] = gate[j] * sigmoid(gate[j]) * up[j] * weight;
    output[i] = pack(out);
  }
}

// d silu(g) = s (1 + g (1 - s)), s = sigmoid(g).
__device__ float swiglu_gradient(const float (&dy)[8], const float (&gate)[8], const float (&up)[8],
                                 float weight, float (&dgate)[8], float (&dup)[8]) {
  float dot = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float s = sigmoid(gate[j]), silu = gate[j] * s;
    dot += dy[j] * silu * up[j];
    dgate[j] = dy[j] * weight * up[j] * s * (1 + gate[j] * (1 - s));
    dup[j] = dy[j] * weight * silu;
  }
  return dot;
}

__global__ void swiglu_backward_kernel(const Vector8* gradient, const Vector8* input,
                                       std::int64_t total, int vectors, Vector8* input_gradient) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total;
       i += stride) {
    const std::int64_t row = i / vectors, v = i % vectors;
    float dy[8], gate[8], up[8], dgate[8], dup[8];
    unpack(gradient[i], dy);
    unpack(input[row * 2 * vectors + v], gate);
    unpack(input[row * 2 * vectors + vectors + v], up);
    swiglu_gradient(dy, gate, up, 1.0f, dgate, dup);
    input_gradient[row * 2 * vectors + v] = pack(dgate);
    input_gradient[row * 2 * vectors + vectors + v] = pack(dup);
  }
}

// With probabilities a block owns a row, since the row's probability gets a gradient.
__global__ void weighted_swiglu_backward_kernel(const Vector8* gradient, const Vector8* input,
                                                const float* probabilities, int vectors,
                                                Vector8* input_gradient,
                                                float* probability_gradient) {
  __shared__ float scratch[33];
  const std::int64_t row = blockIdx.x;
  const float weight = probabilities[row];
  float dot = 0;
  for (int v = threadIdx.x; v < vectors; v += kThreads) {
    float dy[8], gate[8], up[8], dgate[8], dup[8];
    unpack(gradient[row * vectors + v], dy);
    unpack(input[row * 2 * vectors + v], gate);
    unpack(input[row * 2 * vectors + vectors + v], up);
    dot += swiglu_gradient(dy, gate, up, weight, dgate, dup);
    input_gradient[row * 2 * vectors + v] = pack(dgate);
    input_gradient[row * 2 * vectors + vectors + v] = pack(dup);
  }
  dot = block_sum(dot, scratch);
  if (threadIdx.x == 0) probability_gradient[row] = dot;
}

constexpr int kNormVectors = 8;  // held in registers: widths up to 256 * 8 * 8 = 16384

__global__ void rmsnorm_kernel(const Vector8* input, const Vector8* weight, int vectors, int width,
                               float epsilon, Vector8* output, float* inverse_rms) {
  __shared__ float scratch[33];
  const std::int64_t row = blockIdx.x;
  Vector8 held[kNormVectors];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kNormVectors; ++i) {
    const int v = threadIdx.x + i * kThreads;
    if (v < vectors) {
      held[i] = input[row * vectors + v];
      float x[8];
      unpack(held[i], x);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += x[j] * x[j];
    }
  }
  const float inverse = rsqrtf(block_sum(sum, scratch) / width + epsilon);
  if (threadIdx.x == 0) inverse_rms[row] = inverse;
#pragma unroll
  for (int i = 0; i < kNormVectors; ++i) {
    const int v = threadIdx.x + i * kThreads;
    if (v < vectors) {
      float x[8], w[8];
      unpack(held[i], x);
      unpack(weight[v], w);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] *= inverse * w[j];
      output[row * vectors + v] = pack(x);
    }
  }
}

__global__ void rope_kernel(Vector8* x, const float* cosines, const float* sines,
                            std::int64_t total, int heads, int half) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const int vectors = half / 8;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total;
       i += stride) {
    const std::int64_t head = i / vectors;
    const int v = static_cast<int>(i % vectors);
    const float* cosine = cosines + head / heads * half + v * 8;
    const float* sine = sines + head / heads * half + v * 8;
    Vector8* low = x + head * 2 * vectors + v;
    Vector8* high = low + vectors;
    float a[8], b[8], p[8], q[8];
    unpack(*low, a);
    unpack(*high, b);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      p[j] = a[j] * cosine[j] - b[j] * sine[j];
      q[j] = b[j] * cosine[j] + a[j] * sine[j];
    }
    *low = pack(p);
    *high = pack(q);
  }
}

}  // namespace

cudaError_t swiglu_forward(const void* input, const float* probabilities, std::int64_t rows,
                           int width, void* output, cudaStream_t stream) {
  if (width % 8 != 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const std::int64_t total = rows * (width / 8);
  swiglu_forward_kernel<<<grid_for(total, kThreads), kThreads, 0, stream>>>(
      static_cast<const Vector8*>(input), probabilities, total, width / 8,
      static_cast<Vector8*>(output));
  return cudaGetLastError();
}

cudaError_t swiglu_backward(const void* gradient, const void* input, const float* probabilities,
                            std::int64_t rows, int width, void* input_gradient,
                            float* probability_gradient, cudaStream_t stream) {
  if (width % 8 != 0) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const auto* dy = static_cast<const Vector8*>(gradient);
  const auto* x = static_cast<const Vector8*>(input);
  auto* dx = static_cast<Vector8*>(input_gradient);
  const std::int64_t total = rows * (width / 8);
  if (probabilities == nullptr)
    swiglu_backward_kernel<<<grid_for(total, kThreads), kThreads, 0, stream>>>(dy, x, total,
                                                                               width / 8, dx);
  else
    weighted_swiglu_backward_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        dy, x, probabilities, width / 8, dx, probability_gradient);
  return cudaGetLastError();
}

cudaError_t rmsnorm(const void* input, const void* weight, int rows, int width, float epsilon,
                    void* output, float* inverse_rms, cudaStream_t stream) {
  if (width % 8 != 0 || width > kThreads * kNormVectors * 8) return cudaErrorInvalidValue;
  rmsnorm_kernel<<<rows, kThreads, 0, stream>>>(
      static_cast<const Vector8*>(input), static_cast<const Vector8*>(weight), width / 8, width,
      epsilon, static_cast<Vector8*>(output), inverse_rms);
  return cudaGetLastError();
}

cudaError_t rope(void* x, const float* cosines, const float* sines, int tokens, int heads, int dim,
                 cudaStream_t stream) {
  if (dim % 16 != 0) return cudaErrorInvalidValue;
  const std::int64_t total = std::int64_t{tokens} * heads * (dim / 16);
  rope_kernel<<<grid_for(total, kThreads), kThreads, 0, stream>>>(static_cast<Vector8*>(x), cosines,
                                                                  sines, total, heads, dim / 2);
  return cudaGetLastError();
}

}  // namespace trifold::kernels

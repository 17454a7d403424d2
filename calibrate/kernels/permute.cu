// SPDX-License-Identifier: Apache-2.0
// Token permutation. Token-centric: a block reads a token once (16 bytes a thread) and writes its k
// copies, or reads its k rows and writes the token once: (T + T k) rows of traffic.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxK = 32;

__global__ void permute_kernel(const Vector8* tokens, const int* slots, const float* probabilities,
                               int k, int vectors, Vector8* rows, const float* carried,
                               float* row_probabilities) {
  const std::int64_t token = blockIdx.x;
  __shared__ int row[kMaxK];
  __shared__ float weight[kMaxK];
  if (static_cast<int>(threadIdx.x) < k) {
    row[threadIdx.x] = slots[token * k + threadIdx.x];
    weight[threadIdx.x] = probabilities != nullptr ? probabilities[token * k + threadIdx.x] : 1.0f;
    if (row_probabilities != nullptr)
      row_probabilities[row[threadIdx.x]] = carried[token * k + threadIdx.x];
  }
  __syncthreads();
  for (int v = threadIdx.x; v < vectors; v += kThreads) {
    const Vector8 value = tokens[token * vectors + v];
    if (probabilities == nullptr) {
      for (int j = 0; j < k; ++j) rows[std::int64_t{row[j]} * vectors + v] = value;
    } else {
      float x[8];
      unpack(value, x);
      for (int j = 0; j < k; ++j) {
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) y[i] = x[i] * weight[j];
        rows[std::int64_t{row[j]} * vectors + v] = pack(y);
      }
    }
  }
}

__global__ void unpermute_kernel(const Vector8* rows, const int* slots, const float* probabilities,
                                 int k, int vectors, Vector8* tokens) {
  const std::int64_t token = blockIdx.x;
  __shared__ int row[kMaxK];
  __shared__ float weight[kMaxK];
  if (static_cast<int>(threadIdx.x) < k) {
    row[threadIdx.x] = slots[token * k + threadIdx.x];
    weight[threadIdx.x] = probabilities != nullptr ? probabilities[token * k + threadIdx.x] : 1.0f;
  }
  __syncthreads();
  for (int v = threadIdx.x; v < vectors; v += kThreads) {
    float sum[8] = {};
#pragma unroll 4
    for (int j = 0; j < k; ++j) {
      float x[8];
      unpack(rows[std::int64_t{row[j]} * vectors + v], x);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += x[i] * weight[j];
    }
    tokens[token * vectors + v] = pack(sum);
  }
}

__global__ void unpermute_backward_kernel(const Vector8* token_gradient, const Vector8* rows,
                                          const int* slots, const float* probabilities, int k,
                                          int vectors, Vector8* row_gradient,
                                          float* probability_gradient) {
  const std::int64_t token = blockIdx.x;
  __shared__ float scratch[33];
  for (int j = 0; j < k; ++j) {
    const std::int64_t row = slots[token * k + j];
    const float weight = probabilities[token * k + j];
    float dot = 0;
    for (int v = threadIdx.x; v < vectors; v += kThreads) {
      float g[8], x[8], y[8];
      unpack(token_gradient[token * vectors + v], g);
      unpack(rows[row * vectors + v], x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        y[i] = g[i] * weight;
        dot += g[i] * x[i];
      }
      row_gradient[row * vectors + v] = pack(y);
    }
    dot = block_sum(dot, scratch);
    if (threadIdx.x == 0) probability_gradient[token * k + j] = dot;
  }
}

bool valid(int token_count, int k, int hidden) {
  return token_count > 0 && k >= 1 && k <= kMaxK && hidden % 8 == 0;
}

}  // namespace

cudaError_t permute(const void* tokens, const int* slots, const float* probabilities,
                    int token_count, int k, int hidden, void* rows, const float* carried,
                    float* row_probabilities, cudaStream_t stream) {
  if (!valid(token_count, k, hidden)) return cudaErrorInvalidValue;
  permute_kernel<<<token_count, kThreads, 0, stream>>>(
      static_cast<const Vector8*>(tokens), slots, probabilities, k, hidden / 8,
      static_cast<Vector8*>(rows), carried, row_probabilities);
  return cudaGetLastError();
}

cudaError_t unpermute(const void* rows, const int* slots, const float* probabilities,
                      int token_count, int k, int hidden, void* tokens, cudaStream_t stream) {
  if (!valid(token_count, k, hidden)) return cudaErrorInvalidValue;
  unpermute_kernel<<<token_count, kThreads, 0, stream>>>(static_cast<const Vector8*>(rows), slots,
                                                         probabilities, k, hidden / 8,
                                                         static_cast<Vector8*>(tokens));
  return cudaGetLastError();
}

cudaError_t unpermute_backward(const void* token_gradient, const void* rows, const int* slots,
                               const float* probabilities, int token_count, int k, int hidden,
                               void* row_gradient, float* probability_gradient,
                               cudaStream_t stream) {
  if (!valid(token_count, k, hidden)) return cudaErrorInvalidValue;
  unpermute_backward_kernel<<<token_count, kThreads, 0, stream>>>(
      static_cast<const Vector8*>(token_gradient), static_cast<const Vector8*>(rows), slots,
      probabilities, k, hidden / 8, static_cast<Vector8*>(row_gradient), probability_gradient);
  return cudaGetLastError();
}

}  // namespace trifold::kernels

// SPDX-License-Identifier: Apache-2.0
// Router: scores, group-limited top-k with an expert bias, and the map from token copies to rows
// sorted by expert (histogram, scan, slot). One warp a token; scores live in shared memory.
#include "calibrate/kernels/device.cuh"
#include "calibrate/kernels/kernels.h"

namespace trifold::kernels {
namespace {

constexpr int kWarps = 4;  // tokens of a block
constexpr int kMapThreads = 256;
constexpr int kMapCopies = 2048;  // copies a block of the map handles
constexpr float kLow = -3.0e38f;

struct Best {
  float value;
  int index;
};

// The greatest value, the lowest index among equals: what a stable sort would pick.
__device__ Best warp_best(Best b) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float value = __shfl_xor_sync(0xffffffffu, b.value, step);
    const int index = __shfl_xor_sync(0xffffffffu, b.index, step);
    if (value > b.value || (value == b.value && index < b.index)) b = {value, index};
  }
  return b;
}

__device__ Best lane_best(const float* choice, int count, int lane) {
  Best b{kLow, lane < count ? lane : 1 << 30};  // in range even when every score is NaN
  for (int e = lane; e < count; e += 32)
    if (choice[e] > b.value) b = {choice[e], e};
  return b;
}

// Scores of the token into `score`: sigmoid of each logit, or softmax over all.
__device__ void scores_of(const RouterConfig& c, const float* logits, float* score, int lane) {
  if (c.sigmoid) {
    for (int e = lane; e < c.experts; e += 32) score[e] = 1.0f / (1.0f + expf(-logits[e]));
    return;
  }
  float top = kLow;
  for (int e = lane; e < c.experts; e += 32) top = fmaxf(top, logits[e]);
  top = warp_max(top);
  float sum = 0;
  for (int e = lane; e < c.experts; e += 32) {
    score[e] = expf(logits[e] - top);
    sum += score[e];
  }
  sum = warp_sum(sum);
  for (int e = lane; e < c.experts; e += 32) score[e] /= sum;
}

// Experts outside the best groups leave the choice. Lane g scores group g (at most 32 groups).
__device__ void limit_groups(const RouterConfig& c, float* choice, int lane) {
  const int size = c.experts / c.groups;
  float best = kLow, second = kLow;
  if (lane < c.groups)
    for (int e = lane * size; e < (lane + 1) * size; ++e) {
      if (choice[e] > best) {
        second = best;
        best = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
  const float group = lane < c.groups ? best + (size > 1 ? second : 0.0f) : kLow;
  int ahead = 0;
  for (int g = 0; g < c.groups; ++g) {
    const float other = __shfl_sync(0xffffffffu, group, g);
    ahead += other > group || (other == group && g < lane);
  }
  const unsigned kept = __ballot_sync(0xffffffffu, lane < c.groups && ahead < c.top_groups);
  __syncwarp();  // a ballot orders no memory: every lane has read its group before one writes
  for (int e = lane; e < c.experts; e += 32)
    if ((kept >> (e / size) & 1u) == 0) choice[e] = kLow;
}

__global__ void topk_kernel(RouterConfig c, const float* logits, const float* bias, int* indices,
                            float* probabilities) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int token = blockIdx.x * kWarps + warp;
  if (token >= c.tokens) return;
  float* score = shared + warp * 2 * c.experts;
  float* choice = score + c.experts;
  scores_of(c, logits + std::int64_t{token} * c.experts, score, lane);
  __syncwarp();
  for (int e = lane; e < c.experts; e += 32)
    choice[e] = score[e] + (bias != nullptr ? bias[e] : 0.0f);
  __syncwarp();
  if (c.groups > 1) {
    limit_groups(c, choice, lane);
    __syncwarp();
  }
  float mine = 0;
  int mine_index = 0;
  for (int j = 0; j < c.k; ++j) {
    const Best best = warp_best(lane_best(choice, c.experts, lane));
    // An entry is read and written by one lane only: no barrier between the rounds.
    if (lane == best.index % 32) choice[best.index] = kLow;
    if (lane == j) {
      mine = score[best.index];
      mine_index = best.index;
    }
  }
  const float sum = warp_sum(lane < c.k ? mine : 0.0f);
  if (lane < c.k) {
    const std::int64_t at = std::int64_t{token} * c.k + lane;
    indices[at] = mine_index;
    probabilities[at] = mine * c.scale / (c.normalise ? sum + 1e-20f : 1.0f);
  }
}

__global__ void histogram_kernel(const int* indices, int copies, int experts, int* histogram) {
  extern __shared__ int counts[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  const int begin = blockIdx.x * kMapCopies, end = min(copies, begin + kMapCopies);
  for (int i = begin + threadIdx.x; i < end; i += blockDim.x) atomicAdd(&counts[indices[i]], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    histogram[blockIdx.x * experts + e] = counts[e];
}

// One block: per expert a running sum over the blocks, then an exclusive scan over the experts.
__global__ void scan_kernel(int* histogram, int blocks, int experts, int* counts, int* offsets) {
  extern __shared__ int total[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    int sum = 0;
    for (int b = 0; b < blocks; ++b) {
      const int here = histogram[b * experts + e];
      histogram[b * experts + e] = sum;
      sum += here;
    }
    total[e] = sum;
    counts[e] = sum;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    int carry = 0;
    for (int base = 0; base < experts; base += 32) {
      const int e = base + static_cast<int>(threadIdx.x);
      int value = e < experts ? total[e] : 0;
      const int own = value;
      for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, value, step);
        if (static_cast<int>(threadIdx.x) >= step) value += below;
      }
      if (e < experts) offsets[e] = carry + value - own;
      carry += __shfl_sync(0xffffffffu, value, 31);
    }
    if (threadIdx.x == 0) offsets[experts] = carry;
  }
}

__global__ void slot_kernel(const int* indices, int copies, int experts, const int* histogram,
                            const int* offsets, int* slots) {
  extern __shared__ int next[];
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    next[e] = offsets[e] + histogram[blockIdx.x * experts + e];
  __syncthreads();
  const int begin = blockIdx.x * kMapCopies, end = min(copies, begin + kMapCopies);
  for (int i = begin + threadIdx.x; i < end; i += blockDim.x)
    slots[i] = atomicAdd(&next[indices[i]], 1);
}

__global__ void bias_kernel(const int* counts, int experts, float rate, float* bias) {
  __shared__ float scratch[33];
  float sum = 0;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) sum += counts[e];
  const float mean = block_sum(sum, scratch) / experts;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    const float gap = mean - counts[e];
    bias[e] += rate * (gap > 0 ? 1.0f : gap < 0 ? -1.0f : 0.0f);
  }
}

int map_blocks(int copies) { return (copies + kMapCopies - 1) / kMapCopies; }

}  // namespace

cudaError_t router_topk(const RouterConfig& c, const float* logits, const float* bias, int* indices,
                        float* probabilities, cudaStream_t stream) {
  if (c.k < 1 || c.k > 32 || c.k > c.experts || c.experts > 1024 || c.groups < 1 || c.groups > 32 ||
      c.experts % c.groups != 0 || c.top_groups < 1 ||
      (c.groups > 1 && c.k > c.experts / c.groups * c.top_groups))
    return cudaErrorInvalidValue;
  const int blocks = (c.tokens + kWarps - 1) / kWarps;
  const std::size_t shared = sizeof(float) * 2 * kWarps * static_cast<std::size_t>(c.experts);
  topk_kernel<<<blocks, 32 * kWarps, shared, stream>>>(c, logits, bias, indices, probabilities);
  return cudaGetLastError();
}

std::size_t permutation_workspace(int copies, int experts) {
  return static_cast<std::size_t>(map_blocks(copies)) * static_cast<std::size_t>(experts);
}

cudaError_t permutation_map(const int* indices, int copies, int experts, int* counts, int* offsets,
                            int* slots, int* workspace, cudaStream_t stream) {
  const std::size_t shared = sizeof(int) * static_cast<std::size_t>(experts);
  const int blocks = map_blocks(copies);
  histogram_kernel<<<blocks, kMapThreads, shared, stream>>>(indices, copies, experts, workspace);
  scan_kernel<<<1, 1024, shared, stream>>>(workspace, blocks, experts, counts, offsets);
  slot_kernel<<<blocks, kMapThreads, shared, stream>>>(indices, copies, experts, workspace, offsets,
                                                       slots);
  return cudaGetLastError();
}

cudaError_t update_expert_bias(const int* counts, int experts, float rate, float* bias,
                               cudaStream_t stream) {
  bias_kernel<<<1, 256, 0, stream>>>(counts, experts, rate, bias);
  return cudaGetLastError();
}

}  // namespace trifold::kernels

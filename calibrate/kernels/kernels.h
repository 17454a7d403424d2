// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels that a MoE layer needs, as plain C++ launchers. Every launcher returns the launch's
// error. Matrices are row-major; bf16 pointers are void*. Row counts and offsets fit in 32 bits
// where `int` is used; element counts are 64-bit.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace trifold::kernels {

enum class Element : int { f32, bf16, e4m3, i32 };
constexpr std::size_t element_size(Element e) {
  return e == Element::f32 || e == Element::i32 ? 4 : e == Element::bf16 ? 2 : 1;
}

// fill.cu -----------------------------------------------------------------------------------------
cudaError_t fill_normal(void* p, Element type, std::size_t count, float scale, std::uint64_t seed,
                        cudaStream_t stream);
cudaError_t fill_uniform(float* p, std::size_t count, float low, float high, std::uint64_t seed,
                         cudaStream_t stream);
// float64 dot products of sampled elements: out[s] = alpha * sum_k a[i,k] sa(i,k) b[j,k] sb(j,k).
struct Operand {
  const void* data = nullptr;
  Element type = Element::bf16;
  std::int64_t outer_stride = 0, k_stride = 1;
  const float* scale = nullptr;  // scale[(outer / outer_block) * so + (k / k_block) * sk]
  std::int64_t outer_block = 1, k_block = 1, so = 0, sk = 0;
};
cudaError_t sampled_gemm(const Operand& a, const Operand& b, std::int64_t k, const int* rows,
                         const int* columns, int samples, double* out, cudaStream_t stream);

// router.cu ---------------------------------------------------------------------------------------
struct RouterConfig {
  int tokens = 0, experts = 0, k = 0;
  bool sigmoid = false;            // else softmax over all experts
  int groups = 1, top_groups = 1;  // group-limited: a group's score is the sum of its best two
  float scale = 1;                 // of the probabilities
  bool normalise = true;           // probabilities of the chosen sum to `scale`
};
// logits [tokens, experts] f32; bias [experts] or nullptr (moves the choice, not the
// probabilities); indices, probabilities [tokens, k].
cudaError_t router_topk(const RouterConfig& config, const float* logits, const float* bias,
                        int* indices, float* probabilities, cudaStream_t stream);
// counts [experts], offsets [experts + 1], slots [tokens * k]: the row of each copy among the rows
// sorted by expert. workspace: permutation_workspace ints.
std::size_t permutation_workspace(int copies, int experts);
cudaError_t permutation_map(const int* indices, int copies, int experts, int* counts, int* offsets,
                            int* slots, int* workspace, cudaStream_t stream);
// The auxiliary-loss-free update (DeepSeek-V3): bias += rate * sign(mean load - load).
cudaError_t update_expert_bias(const int* counts, int experts, float rate, float* bias,
                               cudaStream_t stream);

// permute.cu --------------------------------------------------------------------------------------
// rows[slots[t*k+j]] = tokens[t] (times probabilities[t*k+j] when given); hidden % 8 == 0.
// row_probabilities[slots[...]] = probabilities[...] when given.
cudaError_t permute(const void* tokens, const int* slots, const float* probabilities,
                    int token_count, int k, int hidden, void* rows, const float* carried,
                    float* row_probabilities, cudaStream_t stream);
// tokens[t] = sum_j rows[slots[t*k+j]] (times probabilities[t*k+j] when given).
cudaError_t unpermute(const void* rows, const int* slots, const float* probabilities,
                      int token_count, int k, int hidden, void* tokens, cudaStream_t stream);
// Backward of unpermute with probabilities: rows' gradient and the probabilities' gradient.
cudaError_t unpermute_backward(const void* token_gradient, const void* rows, const int* slots,
                               const float* probabilities, int token_count, int k, int hidden,
                               void* row_gradient, float* probability_gradient,
                               cudaStream_t stream);

// activation.cu -----------------------------------------------------------------------------------
// input [rows, 2 width] = (gate, up); output = silu(gate) * up (* probability of the row, which is
// the memory-efficient permutation: scaling before the second linear).
cudaError_t swiglu_forward(const void* input, const float* probabilities, std::int64_t rows,
                           int width, void* output, cudaStream_t stream);
cudaError_t swiglu_backward(const void* gradient, const void* input, const float* probabilities,
                            std::int64_t rows, int width, void* input_gradient,
                            float* probability_gradient, cudaStream_t stream);
cudaError_t rmsnorm(const void* input, const void* weight, int rows, int width, float epsilon,
                    void* output, float* inverse_rms, cudaStream_t stream);
// In place on x [tokens, heads, dim]: pairs (i, i + dim/2) turn by position * base^(-2i/dim).
cudaError_t rope(void* x, const float* cosines, const float* sines, int tokens, int heads, int dim,
                 cudaStream_t stream);

// quantize.cu -------------------------------------------------------------------------------------
// input [rows, columns] bf16, both multiples of 128. q: e4m3 with a scale a row and 128 columns
// (scales[columns/128][rows]); qt [columns, rows] with a scale a column and 128 rows
// (scales_t[rows/128][columns]). qt may be nullptr.
cudaError_t quantize_1x128(const void* input, int rows, int columns, void* q, float* scales,
                           void* qt, float* scales_t, cudaStream_t stream);

// optimizer.cu ------------------------------------------------------------------------------------
struct AdamConfig {
  float rate = 1e-3f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, decay = 0.1f;
  float correction1 = 1, correction2 = 1;  // 1 - beta^step
};
// 30 bytes a parameter: reads master, both moments and the gradient (f32), writes master, moments
// and the bf16 weight. count % 4 == 0.
cudaError_t adam(const AdamConfig& config, float* master, float* first, float* second,
                 const float* gradient, void* weight, std::int64_t count, cudaStream_t stream);
// loss[t]; the logits become their gradient, scaled.
cudaError_t cross_entropy(void* logits, const int* labels, int tokens, int vocabulary, float scale,
                          float* loss, cudaStream_t stream);

// copy.cu -----------------------------------------------------------------------------------------
// 16 bytes a thread and step, on `blocks` blocks of 512 threads (one a multiprocessor): an
// SM-limited copy. 0: as many as fill the GPU. bytes % 16 == 0.
cudaError_t copy_blocks(const void* from, void* to, std::size_t bytes, int blocks,
                        cudaStream_t stream);
cudaError_t spin(double microseconds, cudaStream_t stream);  // one thread reads the global timer
// Cycles of the multiprocessor that ran it and the global timer: two of them give the clock
// between.
struct ClockStamp {
  std::uint64_t cycles = 0, ns = 0;
  std::uint32_t sm = 0;
};
cudaError_t clock_stamp(ClockStamp* out, cudaStream_t stream);
// Two stamps, this far apart, on one multiprocessor.
cudaError_t clock_stamps(double microseconds, ClockStamp* out, cudaStream_t stream);
cudaError_t nothing(cudaStream_t stream);

}  // namespace trifold::kernels

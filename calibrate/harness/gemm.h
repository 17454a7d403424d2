// SPDX-License-Identifier: Apache-2.0
#pragma once

// GEMMs of the three passes through cuBLASLt, by the forward's sizes: y[m,n] = x[m,k] w[n,k]^T.
// dgrad: dx[m,k] = dy[m,n] w[n,k]. wgrad: dw[n,k] += dy[m,n]^T x[m,k] in f32 (or bf16, beta 0).
// FP8 on Hopper is TN only, so its dgrad and wgrad read operands whose contraction axis is
// contiguous (the transposed copies that quantize_1x128 writes).

#include <memory>

#include "calibrate/harness/device.h"
#include "hardware/profile.h"

namespace trifold::calibrate {

struct GemmShape {
  hardware::Dtype dtype = hardware::Dtype::bf16;
  hardware::GemmPass pass = hardware::GemmPass::forward;
  std::int64_t m = 0, n = 0, k = 0;  // of the forward pass
  bool accumulate = true;            // wgrad: f32 output with beta 1
  bool f32_output = false;           // forward: f32 output (router logits)
  int batch = 1;                     // strided batch, all of one shape
  int sm_target = 0;                 // 0: all
};

// Sizes of the product actually run: rows x columns over depth, out[rows, columns] row-major.
struct GemmSizes {
  std::int64_t rows, columns, depth;
};
GemmSizes gemm_sizes(const GemmShape& shape);

struct GemmBuffers {
  void* left = nullptr;   // rows side: x, dy or dy^T
  void* right = nullptr;  // columns side: w, w or x
  void* out = nullptr;
  float* left_scale = nullptr;
  float* right_scale = nullptr;
};
struct GemmBytes {
  std::size_t left, right, out, left_scale, right_scale;  // scales in floats
  std::size_t total() const { return left + right + out + 4 * (left_scale + right_scale); }
};
GemmBytes gemm_bytes(const GemmShape& shape);

// Descriptors and the heuristic's best algorithm, made once a shape.
class GemmPlan {
 public:
  static Result<GemmPlan> make(Device& device, const GemmShape& shape, const GemmBuffers& buffers);
  Result<void> run(Device& device, const GemmBuffers& buffers, int workspace,
                   cudaStream_t stream) const;
  const GemmShape& shape() const { return state_->shape; }

 private:
  struct State {
    GemmShape shape;
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    float beta = 0;
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State();
  };
  std::unique_ptr<State> state_;
};

Result<GemmBuffers> take_gemm(Device& device, const GemmShape& shape);
Result<void> fill_gemm(Device& device, const GemmShape& shape, const GemmBuffers& buffers);
// Does the output hold the product, at 64 sampled elements against float64 dot products?
Result<bool> sampled_agreement(Device& device, const GemmShape& shape, const GemmBuffers& buffers);
// Runs once over a poisoned output, then sampled_agreement.
Result<bool> check_gemm(Device& device, const GemmPlan& plan, const GemmBuffers& buffers);

}  // namespace trifold::calibrate

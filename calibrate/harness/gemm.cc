// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/gemm.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "base/random.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;
using hardware::GemmPass;
using kernels::Element;

bool is_fp8(Dtype dtype) { return dtype == Dtype::fp8_tensor || dtype == Dtype::fp8_block; }

Element input_element(Dtype dtype) { return is_fp8(dtype) ? Element::e4m3 : Element::bf16; }

bool f32_output(const GemmShape& s) {
  return s.f32_output || (s.pass == GemmPass::wgrad && s.accumulate);
}

// Is the contraction axis contiguous? bf16 keeps the tensors as training holds them.
bool left_k_contiguous(const GemmShape& s) { return is_fp8(s.dtype) || s.pass != GemmPass::wgrad; }
bool right_k_contiguous(const GemmShape& s) {
  return is_fp8(s.dtype) || s.pass == GemmPass::forward;
}

// Block scales: activations and gradients 1x128, weights 128x128; wgrad has 1x128 on both sides.
bool right_is_blocks(const GemmShape& s) { return s.pass != GemmPass::wgrad; }

std::size_t vector_scales(std::int64_t outer, std::int64_t depth) {
  return static_cast<std::size_t>(outer * ceil_div(depth, 128));
}
std::int64_t block_pitch(std::int64_t depth) { return round_up(ceil_div(depth, 128), 4); }

// cuBLASLt is column-major: D^T = right^T-side first. A is `right`, B is `left`.
Result<void> layout(cublasLtMatrixLayout_t* out, cudaDataType_t type, std::int64_t rows,
                    std::int64_t columns, std::int64_t leading, int batch, std::int64_t stride) {
  CUBLAS_TRY(cublasLtMatrixLayoutCreate(out, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), leading));
  if (batch > 1) {
    CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof(batch)));
    CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof(stride)));
  }
  return {};
}

template <class T>
Result<void> attribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t key, const T& value) {
  CUBLAS_TRY(cublasLtMatmulDescSetAttribute(d, key, &value, sizeof(value)));
  return {};
}

Result<void> set_scales(cublasLtMatmulDesc_t d, const GemmShape& s, const GemmBuffers& b) {
  if (!is_fp8(s.dtype)) return {};
  const void* right = b.right_scale;
  const void* left = b.left_scale;
  TRIFOLD_TRY(attribute(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, right));
  TRIFOLD_TRY(attribute(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, left));
  // Training accumulates fast in the forward pass alone (Transformer Engine's default).
  const std::int8_t fast = s.dtype == Dtype::fp8_tensor && s.pass == GemmPass::forward ? 1 : 0;
  TRIFOLD_TRY(attribute(d, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast));
  if (s.dtype == Dtype::fp8_block) {
    const std::int32_t vector = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    const std::int32_t block = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    TRIFOLD_TRY(
        attribute(d, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, right_is_blocks(s) ? block : vector));
    TRIFOLD_TRY(attribute(d, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, vector));
  }
  return {};
}

}  // namespace

GemmSizes gemm_sizes(const GemmShape& s) {
  switch (s.pass) {
    case GemmPass::forward:
      return {s.m, s.n, s.k};
    case GemmPass::dgrad:
      return {s.m, s.k, s.n};
    case GemmPass::wgrad:
      return {s.n, s.k, s.m};
  }
  return {s.m, s.n, s.k};
}

GemmBytes gemm_bytes(const GemmShape& s) {
  const GemmSizes g = gemm_sizes(s);
  const auto in = static_cast<std::int64_t>(kernels::element_size(input_element(s.dtype)));
  const auto batch = static_cast<std::int64_t>(s.batch);
  GemmBytes bytes{};
  bytes.left = static_cast<std::size_t>(g.rows * g.depth * in * batch);
  bytes.right = static_cast<std::size_t>(g.columns * g.depth * in * batch);
  bytes.out = static_cast<std::size_t>(g.rows * g.columns * (f32_output(s) ? 4 : 2) * batch);
  if (s.dtype == Dtype::fp8_tensor) bytes.left_scale = bytes.right_scale = 1;
  if (s.dtype == Dtype::fp8_block) {
    bytes.left_scale = vector_scales(g.rows, g.depth);
    bytes.right_scale =
        right_is_blocks(s)
            ? static_cast<std::size_t>(ceil_div(g.columns, 128) * block_pitch(g.depth))
            : vector_scales(g.columns, g.depth);
  }
  return bytes;
}

GemmPlan::State::~State() {
  if (a != nullptr) (void)cublasLtMatrixLayoutDestroy(a);
  if (b != nullptr) (void)cublasLtMatrixLayoutDestroy(b);
  if (c != nullptr) (void)cublasLtMatrixLayoutDestroy(c);
  if (operation != nullptr) (void)cublasLtMatmulDescDestroy(operation);
}

Result<GemmPlan> GemmPlan::make(Device& device, const GemmShape& s, const GemmBuffers& buffers) {
  GemmPlan plan;
  plan.state_ = std::make_unique<State>();
  State& st = *plan.state_;
  st.shape = s;
  st.beta = s.pass == GemmPass::wgrad && s.accumulate ? 1.0f : 0.0f;
  const GemmSizes g = gemm_sizes(s);
  const cudaDataType_t in = is_fp8(s.dtype) ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  const cudaDataType_t out = f32_output(s) ? CUDA_R_32F : CUDA_R_16BF;
  CUBLAS_TRY(cublasLtMatmulDescCreate(&st.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const std::int32_t op_a = right_k_contiguous(s) ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::int32_t op_b = left_k_contiguous(s) ? CUBLAS_OP_N : CUBLAS_OP_T;
  TRIFOLD_TRY(attribute(st.operation, CUBLASLT_MATMUL_DESC_TRANSA, op_a));
  TRIFOLD_TRY(attribute(st.operation, CUBLASLT_MATMUL_DESC_TRANSB, op_b));
  if (s.sm_target > 0) {
    const std::int32_t target = s.sm_target;
    TRIFOLD_TRY(attribute(st.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target));
  }
  TRIFOLD_TRY(set_scales(st.operation, s, buffers));
  const bool at = op_a == CUBLAS_OP_T, bt = op_b == CUBLAS_OP_T;
  TRIFOLD_TRY(layout(&st.a, in, at ? g.depth : g.columns, at ? g.columns : g.depth,
                     at ? g.depth : g.columns, s.batch, g.columns * g.depth));
  TRIFOLD_TRY(layout(&st.b, in, bt ? g.rows : g.depth, bt ? g.depth : g.rows, bt ? g.rows : g.depth,
                     s.batch, g.rows * g.depth));
  TRIFOLD_TRY(layout(&st.c, out, g.columns, g.rows, g.columns, s.batch, g.rows * g.columns));
  cublasLtMatmulPreference_t preference = nullptr;
  CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
  const std::size_t workspace = kWorkspaceBytes;
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(device.lt, st.operation, st.a, st.b, st.c, st.c,
                                            preference, 1, &found, &count);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0))
    return skip("cuBLASLt has no algorithm");
  CUBLAS_TRY(status);
  st.algorithm = found.algo;
  return plan;
}

Result<void> GemmPlan::run(Device& device, const GemmBuffers& b, int workspace,
                           cudaStream_t stream) const {
  const float one = 1;
  if (is_fp8(state_->shape.dtype)) TRIFOLD_TRY(set_scales(state_->operation, state_->shape, b));
  CUBLAS_TRY(cublasLtMatmul(
      device.lt, state_->operation, &one, b.right, state_->a, b.left, state_->b, &state_->beta,
      b.out, state_->c, b.out, state_->c, &state_->algorithm,
      device.workspaces[static_cast<std::size_t>(workspace)], kWorkspaceBytes, stream));
  return {};
}

Result<GemmBuffers> take_gemm(Device& device, const GemmShape& shape) {
  const GemmBytes bytes = gemm_bytes(shape);
  GemmBuffers b;
  TRIFOLD_ASSIGN(left, device.arena.take(bytes.left));
  TRIFOLD_ASSIGN(right, device.arena.take(bytes.right));
  TRIFOLD_ASSIGN(out, device.arena.take(bytes.out));
  TRIFOLD_ASSIGN(left_scale, device.arena.take_array<float>(bytes.left_scale));
  TRIFOLD_ASSIGN(right_scale, device.arena.take_array<float>(bytes.right_scale));
  b.left = left;
  b.right = right;
  b.out = out;
  b.left_scale = left_scale;
  b.right_scale = right_scale;
  return b;
}

Result<void> fill_gemm(Device& d, const GemmShape& s, const GemmBuffers& b) {
  const GemmBytes bytes = gemm_bytes(s);
  const Element in = input_element(s.dtype);
  const std::size_t size = kernels::element_size(in);
  CUDA_TRY(kernels::fill_normal(b.left, in, bytes.left / size, 1.0f, d.seed(), d.stream));
  CUDA_TRY(kernels::fill_normal(b.right, in, bytes.right / size, 1.0f, d.seed(), d.stream));
  CUDA_TRY(kernels::fill_uniform(b.left_scale, bytes.left_scale, 0.5f, 2.0f, d.seed(), d.stream));
  CUDA_TRY(kernels::fill_uniform(b.right_scale, bytes.right_scale, 0.5f, 2.0f, d.seed(), d.stream));
  if (f32_output(s)) CUDA_TRY(cudaMemsetAsync(b.out, 0, bytes.out, d.stream));
  return {};
}

namespace {

kernels::Operand operand(const void* data, const GemmShape& s, bool k_contiguous,
                         std::int64_t outer, std::int64_t depth, const float* scale, bool blocks) {
  kernels::Operand o;
  o.data = data;
  o.type = input_element(s.dtype);
  o.outer_stride = k_contiguous ? depth : 1;
  o.k_stride = k_contiguous ? 1 : outer;
  if (s.dtype == Dtype::fp8_tensor) {
    o.scale = scale;
    o.outer_block = o.k_block = std::int64_t{1} << 40;
  } else if (s.dtype == Dtype::fp8_block) {
    o.scale = scale;
    o.k_block = 128;
    o.outer_block = blocks ? 128 : 1;
    o.so =
        blocks ? block_pitch(depth) : 1;  // vectors lie outer-contiguous, blocks depth-contiguous
    o.sk = blocks ? 1 : outer;
  }
  return o;
}

constexpr int kSamples = 64;

struct SampleSet {
  std::vector<int> rows, columns;
};

SampleSet draw(const GemmSizes& g, std::uint64_t seed) {
  Random random(seed);
  SampleSet set;
  for (int i = 0; i < kSamples; ++i) {
    set.rows.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(g.rows))));
    set.columns.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(g.columns))));
  }
  set.rows[0] = set.columns[0] = 0;  // corners
  set.rows[1] = static_cast<int>(g.rows - 1);
  set.columns[1] = static_cast<int>(g.columns - 1);
  return set;
}

float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x = 0;
  static_assert(sizeof(x) == sizeof(wide));
  __builtin_memcpy(&x, &wide, sizeof(x));
  return x;
}

}  // namespace

Result<bool> check_gemm(Device& d, const GemmPlan& plan, const GemmBuffers& b) {
  const GemmShape& s = plan.shape();
  const bool accumulates = s.pass == GemmPass::wgrad && s.accumulate;
  CUDA_TRY(cudaMemsetAsync(b.out, accumulates ? 0 : 0xff, gemm_bytes(s).out, d.stream));
  TRIFOLD_TRY(plan.run(d, b, 0, d.stream));
  return sampled_agreement(d, s, b);
}

Result<bool> sampled_agreement(Device& d, const GemmShape& s, const GemmBuffers& b) {
  const GemmSizes g = gemm_sizes(s);
  const bool wide = f32_output(s);
  const std::size_t mark = d.arena.mark();
  TRIFOLD_ASSIGN(where, d.arena.take_array<int>(2 * kSamples));
  TRIFOLD_ASSIGN(expected, d.arena.take_array<double>(kSamples));
  d.arena.rewind(mark);
  const SampleSet set = draw(g, d.seed());
  CUDA_TRY(cudaMemcpyAsync(where, set.rows.data(), kSamples * 4, cudaMemcpyHostToDevice, d.stream));
  CUDA_TRY(cudaMemcpyAsync(where + kSamples, set.columns.data(), kSamples * 4,
                           cudaMemcpyHostToDevice, d.stream));
  CUDA_TRY(kernels::sampled_gemm(
      operand(b.left, s, left_k_contiguous(s), g.rows, g.depth, b.left_scale, false),
      operand(b.right, s, right_k_contiguous(s), g.columns, g.depth, b.right_scale,
              right_is_blocks(s)),
      g.depth, where, where + kSamples, kSamples, expected, d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  TRIFOLD_ASSIGN(reference, to_host<double>(expected, kSamples));
  double error = 0, norm = 0;
  for (int i = 0; i < kSamples; ++i) {
    const auto at = static_cast<std::size_t>(set.rows[static_cast<std::size_t>(i)] * g.columns +
                                             set.columns[static_cast<std::size_t>(i)]);
    double got = 0;
    if (wide) {
      float x = 0;
      CUDA_TRY(cudaMemcpy(&x, static_cast<float*>(b.out) + at, 4, cudaMemcpyDeviceToHost));
      got = x;
    } else {
      std::uint16_t x = 0;
      CUDA_TRY(cudaMemcpy(&x, static_cast<std::uint16_t*>(b.out) + at, 2, cudaMemcpyDeviceToHost));
      got = bf16_to_float(x);
    }
    error += (got - reference[static_cast<std::size_t>(i)]) *
             (got - reference[static_cast<std::size_t>(i)]);
    norm += reference[static_cast<std::size_t>(i)] * reference[static_cast<std::size_t>(i)];
  }
  // bf16 output rounds at 2^-9 (0.2 %); Hopper's FP8 accumulates with 14 bits when fast.
  const double bound = is_fp8(s.dtype) ? 0.02 : wide ? 1e-3 : 5e-3;
  return std::isfinite(error) && std::sqrt(error) <= bound * std::sqrt(norm);
}

}  // namespace trifold::calibrate

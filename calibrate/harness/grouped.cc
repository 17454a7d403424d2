// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/grouped.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;
using hardware::GemmPass;
using kernels::Element;

bool fp8(const GroupedShape& s) { return s.dtype != Dtype::bf16; }
Element element(const GroupedShape& s) { return fp8(s) ? Element::e4m3 : Element::bf16; }
std::int64_t width(const GroupedShape& s) { return fp8(s) ? 1 : 2; }

struct Packed {
  std::int64_t left, right, out;  // elements
};

Packed packed_elements(const GroupedShape& s) {
  const std::int64_t total = s.total_rows();
  const auto weights = static_cast<std::int64_t>(s.rows.size()) * s.n * s.k;
  switch (s.pass) {
    case GemmPass::forward:
      return {total * s.k, weights, total * s.n};
    case GemmPass::dgrad:
      return {total * s.n, weights, total * s.k};
    case GemmPass::wgrad:
      return {total * s.n, total * s.k, weights};
  }
  return {0, 0, 0};
}

std::int64_t out_width(const GroupedShape& s) { return s.pass == GemmPass::wgrad ? 4 : 2; }

void* offset(void* p, std::int64_t bytes) { return static_cast<char*>(p) + bytes; }

}  // namespace

const char* backend_name(Backend backend) {
  switch (backend) {
    case Backend::grouped:
      return "grouped";
    case Backend::loop:
      return "loop";
    case Backend::streams:
      return "streams";
    case Backend::strided:
      return "strided";
  }
  return "?";
}

std::int64_t GroupedShape::total_rows() const {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

std::size_t grouped_bytes(const GroupedShape& s) {
  const Packed p = packed_elements(s);
  return static_cast<std::size_t>((p.left + p.right) * width(s) + p.out * out_width(s));
}

Result<GemmBuffers> take_grouped(Device& device, const GroupedShape& s) {
  const Packed p = packed_elements(s);
  GemmBuffers b;
  TRIFOLD_ASSIGN(left, device.arena.take(static_cast<std::size_t>(p.left * width(s))));
  TRIFOLD_ASSIGN(right, device.arena.take(static_cast<std::size_t>(p.right * width(s))));
  TRIFOLD_ASSIGN(out, device.arena.take(static_cast<std::size_t>(p.out * out_width(s))));
  TRIFOLD_ASSIGN(left_scale, device.arena.take_array<float>(1));
  TRIFOLD_ASSIGN(right_scale,
                 device.arena.take_array<float>(1));  // cuBLASLt wants 16-byte alignment
  b.left = left;
  b.right = right;
  b.out = out;
  b.left_scale = left_scale;
  b.right_scale = right_scale;
  return b;
}

Result<void> fill_grouped(Device& d, const GroupedShape& s, const GemmBuffers& b) {
  const Packed p = packed_elements(s);
  CUDA_TRY(kernels::fill_normal(b.left, element(s), static_cast<std::size_t>(p.left), 1.0f,
                                d.seed(), d.stream));
  CUDA_TRY(kernels::fill_normal(b.right, element(s), static_cast<std::size_t>(p.right), 1.0f,
                                d.seed(), d.stream));
  for (float* scale : {b.left_scale, b.right_scale})
    CUDA_TRY(kernels::fill_uniform(scale, 1, 0.5f, 2.0f, d.seed(), d.stream));
  if (s.pass == GemmPass::wgrad)
    CUDA_TRY(cudaMemsetAsync(b.out, 0, static_cast<std::size_t>(p.out) * 4, d.stream));
  return {};
}

std::vector<std::int64_t> balanced_rows(std::int64_t total, int experts) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(experts), total / experts);
  for (std::int64_t i = 0; i < total % experts; ++i) ++rows[static_cast<std::size_t>(i)];
  return rows;
}

std::vector<std::int64_t> zipf_rows(std::int64_t total, int experts, double exponent) {
  const std::vector<double> shares = zipf_shares(experts, exponent);
  std::vector<std::int64_t> rows;
  std::int64_t left = total;
  for (double share : shares) {
    // Multiples of 16, as FP8 and most frameworks pad; the first expert takes the remainder.
    const auto want = static_cast<std::int64_t>(share * static_cast<double>(total)) / 16 * 16;
    rows.push_back(std::min(want, left));
    left -= rows.back();
  }
  rows[0] += left;
  return rows;
}

std::vector<std::int64_t> scattered_rows(std::int64_t total, int experts, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < total; ++i)
    ++rows[random.below(static_cast<std::uint64_t>(experts))];
  return rows;
}

GemmShape GroupedGemm::gemm_of(std::int64_t rows) const {
  GemmShape g;
  g.dtype = shape_.dtype;
  g.pass = shape_.pass;
  g.m = rows;
  g.n = shape_.n;
  g.k = shape_.k;
  return g;
}

GemmBuffers GroupedGemm::of_expert(const GemmBuffers& packed, std::size_t e) const {
  const std::int64_t first = first_row_[e], w = width(shape_);
  const auto weight = static_cast<std::int64_t>(e) * shape_.n * shape_.k;
  GemmBuffers b = packed;
  switch (shape_.pass) {
    case GemmPass::forward:
      b.left = offset(packed.left, first * shape_.k * w);
      b.right = offset(packed.right, weight * w);
      b.out = offset(packed.out, first * shape_.n * 2);
      break;
    case GemmPass::dgrad:
      b.left = offset(packed.left, first * shape_.n * w);
      b.right = offset(packed.right, weight * w);
      b.out = offset(packed.out, first * shape_.k * 2);
      break;
    case GemmPass::wgrad:
      b.left = offset(packed.left, first * shape_.n * w);
      b.right = offset(packed.right, first * shape_.k * w);
      b.out = offset(packed.out, weight * 4);
      break;
  }
  return b;
}

Result<GroupedGemm> GroupedGemm::make(Device& device, const GroupedShape& shape,
                                      const GemmBuffers& packed) {
  GroupedGemm g;
  g.shape_ = shape;
  std::int64_t first = 0;
  for (const std::int64_t rows : shape.rows) {
    g.first_row_.push_back(first);
    first += rows;
  }
  if (shape.backend == Backend::strided) {
    for (const std::int64_t rows : shape.rows)
      if (rows != shape.rows[0]) return skip("a strided batch needs equal counts");
    GemmShape batch = g.gemm_of(shape.rows[0]);
    batch.batch = static_cast<int>(shape.rows.size());
    TRIFOLD_ASSIGN(plan, GemmPlan::make(device, batch, packed));
    g.strided_ = std::make_shared<GemmPlan>(std::move(plan));
  }
  std::map<std::int64_t, std::shared_ptr<GemmPlan>> by_rows;
  for (std::size_t e = 0; e < shape.rows.size(); ++e) {
    std::shared_ptr<GemmPlan> plan;
    if (shape.rows[e] > 0) {
      std::shared_ptr<GemmPlan>& known = by_rows[shape.rows[e]];
      if (known == nullptr) {
        TRIFOLD_ASSIGN(made,
                       GemmPlan::make(device, g.gemm_of(shape.rows[e]), g.of_expert(packed, e)));
        known = std::make_shared<GemmPlan>(std::move(made));
      }
      plan = known;
    }
    g.plans_.push_back(plan);
  }
  if (shape.backend == Backend::grouped) {
    if (fp8(shape)) return skip("cublasGemmGroupedBatchedEx has no FP8");
    if (shape.pass == GemmPass::wgrad)
      return skip("cublasGemmGroupedBatchedEx has no f32 output of bf16 inputs");
    TRIFOLD_ASSIGN(pointers, device.arena.take_array<const void*>(3 * shape.rows.size()));
    g.pointers_ = pointers;
    TRIFOLD_TRY(g.set_pointers(device, packed));
  }
  return g;
}

Result<void> GroupedGemm::set_pointers(Device& device, const GemmBuffers& packed) {
  std::vector<const void*> a, b, c;
  op_a_.clear(), op_b_.clear(), m_.clear(), n_.clear(), k_.clear();
  lda_.clear(), ldb_.clear(), ldc_.clear();
  for (std::size_t e = 0; e < shape_.rows.size(); ++e) {
    if (shape_.rows[e] == 0) continue;
    const GemmBuffers one = of_expert(packed, e);
    const GemmSizes g = gemm_sizes(gemm_of(shape_.rows[e]));
    const bool transposed = shape_.pass == GemmPass::forward;  // the weight's contraction axis
    op_a_.push_back(transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    op_b_.push_back(CUBLAS_OP_N);
    m_.push_back(static_cast<int>(g.columns));
    n_.push_back(static_cast<int>(g.rows));
    k_.push_back(static_cast<int>(g.depth));
    lda_.push_back(static_cast<int>(transposed ? g.depth : g.columns));
    ldb_.push_back(static_cast<int>(g.depth));
    ldc_.push_back(static_cast<int>(g.columns));
    a.push_back(one.right);
    b.push_back(one.left);
    c.push_back(one.out);
  }
  group_size_.assign(m_.size(), 1);
  alpha_.assign(m_.size(), 1.0f);
  beta_.assign(m_.size(), 0.0f);
  std::vector<const void*> all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  CUDA_TRY(cudaMemcpyAsync(pointers_, all.data(), all.size() * sizeof(void*),
                           cudaMemcpyHostToDevice, device.stream));
  CUDA_TRY(cudaStreamSynchronize(device.stream));
  pointers_of_ = packed.left;
  return {};
}

Result<void> GroupedGemm::loop(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                               int workspace) {
  for (std::size_t e = 0; e < plans_.size(); ++e)
    if (plans_[e] != nullptr)
      TRIFOLD_TRY(plans_[e]->run(device, of_expert(packed, e), workspace, stream));
  return {};
}

// Each of two concurrent callers has its own side streams: in shared ones the second caller's
// experts would wait for all of the first's.
Result<void> GroupedGemm::streams(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                                  int workspace) {
  const std::size_t first = workspace == 1 ? kSideStreams : 0;
  const cudaEvent_t fork = device.side_forks[workspace == 1 ? 1 : 0];
  CUDA_TRY(cudaEventRecord(fork, stream));
  for (std::size_t side = first; side < first + kSideStreams; ++side)
    CUDA_TRY(cudaStreamWaitEvent(device.sides[side], fork, 0));
  std::size_t turn = 0;
  for (std::size_t e = 0; e < plans_.size(); ++e) {
    if (plans_[e] == nullptr) continue;
    const std::size_t side = first + turn++ % kSideStreams;
    TRIFOLD_TRY(plans_[e]->run(device, of_expert(packed, e), static_cast<int>(2 + side),
                               device.sides[side]));
  }
  for (std::size_t side = first; side < first + kSideStreams; ++side) {
    CUDA_TRY(cudaEventRecord(device.joins[side], device.sides[side]));
    CUDA_TRY(cudaStreamWaitEvent(stream, device.joins[side], 0));
  }
  return {};
}

Result<void> GroupedGemm::grouped(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                                  int workspace) {
  if (packed.left != pointers_of_)
    return Error{ErrorCode::internal, "grouped GEMM run over other buffers than it was made for",
                 "grouped.cc", ""};
  const std::size_t count = m_.size();
  CUBLAS_TRY(cublasSetStream(device.blas, stream));
  CUBLAS_TRY(cublasSetWorkspace(device.blas, device.workspaces[static_cast<std::size_t>(workspace)],
                                kWorkspaceBytes));
  CUBLAS_TRY(cublasGemmGroupedBatchedEx(
      device.blas, op_a_.data(), op_b_.data(), m_.data(), n_.data(), k_.data(), alpha_.data(),
      pointers_, CUDA_R_16BF, lda_.data(), pointers_ + count, CUDA_R_16BF, ldb_.data(),
      beta_.data(), const_cast<void* const*>(pointers_ + 2 * count), CUDA_R_16BF, ldc_.data(),
      static_cast<int>(count), group_size_.data(), CUBLAS_COMPUTE_32F));
  return {};
}

Result<void> GroupedGemm::run(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                              int workspace) {
  switch (shape_.backend) {
    case Backend::grouped:
      return grouped(device, packed, stream, workspace);
    case Backend::loop:
      return loop(device, packed, stream, workspace);
    case Backend::streams:
      return streams(device, packed, stream, workspace);
    case Backend::strided:
      return strided_->run(device, packed, workspace, stream);
  }
  return {};
}

Result<bool> GroupedGemm::check(Device& device, const GemmBuffers& packed) {
  const Packed p = packed_elements(shape_);
  CUDA_TRY(cudaMemsetAsync(packed.out, shape_.pass == GemmPass::wgrad ? 0 : 0xff,
                           static_cast<std::size_t>(p.out * out_width(shape_)), device.stream));
  TRIFOLD_TRY(run(device, packed, device.stream));
  CUDA_TRY(cudaStreamSynchronize(device.stream));
  std::vector<std::size_t> busy;
  for (std::size_t e = 0; e < plans_.size(); ++e)
    if (plans_[e] != nullptr) busy.push_back(e);
  if (busy.empty()) return true;
  for (const std::size_t e : {busy.front(), busy.back()}) {
    const GemmBuffers one = of_expert(packed, e);
    TRIFOLD_ASSIGN(right, sampled_agreement(device, gemm_of(shape_.rows[e]), one));
    if (!right) return false;
  }
  return true;
}

}  // namespace trifold::calibrate

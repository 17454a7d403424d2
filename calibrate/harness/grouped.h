// SPDX-License-Identifier: Apache-2.0
#pragma once

// The experts' GEMMs by four back ends: cublasGemmGroupedBatchedEx (one launch; counts on the
// host), a loop on one stream, a loop over four streams, and one strided batch (equal counts only).
// Rows are packed by expert; sizes are the forward's (rows, n out, k in).

#include <memory>
#include <string>
#include <vector>

#include "calibrate/harness/gemm.h"

namespace trifold::calibrate {

enum class Backend { grouped, loop, streams, strided };
const char* backend_name(Backend backend);

struct GroupedShape {
  hardware::Dtype dtype = hardware::Dtype::bf16;
  hardware::GemmPass pass = hardware::GemmPass::forward;
  Backend backend = Backend::loop;
  std::vector<std::int64_t> rows;  // of each expert
  std::int64_t n = 0, k = 0;
  std::int64_t total_rows() const;
};

// Packed operands: left rows [total, n or k], weights [experts, n, k], out. For wgrad the left is
// dy [total, n], the right is x [total, k], the output f32 [experts, n, k].
class GroupedGemm {
 public:
  // Takes descriptor memory from the arena; plans are shared by experts of equal counts.
  static Result<GroupedGemm> make(Device& device, const GroupedShape& shape,
                                  const GemmBuffers& packed);
  // `workspace` indexes Device::workspaces and picks the side streams: 0 for what runs on
  // Device::stream, 1 for Device::second.
  Result<void> run(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                   int workspace = 0);
  // One expert against sampled float64; the first and the last that have rows.
  Result<bool> check(Device& device, const GemmBuffers& packed);

 private:
  GemmBuffers of_expert(const GemmBuffers& packed, std::size_t expert) const;
  GemmShape gemm_of(std::int64_t rows) const;
  Result<void> loop(Device& device, const GemmBuffers& packed, cudaStream_t stream, int workspace);
  Result<void> streams(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                       int workspace);
  Result<void> grouped(Device& device, const GemmBuffers& packed, cudaStream_t stream,
                       int workspace);
  Result<void> set_pointers(Device& device, const GemmBuffers& packed);

  GroupedShape shape_;
  std::vector<std::shared_ptr<GemmPlan>> plans_;  // by expert; null without rows
  std::shared_ptr<GemmPlan> strided_;
  std::vector<std::int64_t> first_row_;
  // cublasGemmGroupedBatchedEx: one group an expert with rows.
  std::vector<cublasOperation_t> op_a_, op_b_;
  std::vector<int> m_, n_, k_, lda_, ldb_, ldc_, group_size_;
  std::vector<float> alpha_, beta_;
  const void** pointers_ = nullptr;    // device: a, b, c of every group
  const void* pointers_of_ = nullptr;  // the buffers they were written for
};

Result<GemmBuffers> take_grouped(Device& device, const GroupedShape& shape);
Result<void> fill_grouped(Device& device, const GroupedShape& shape, const GemmBuffers& buffers);
std::size_t grouped_bytes(const GroupedShape& shape);

// `total` rows over `experts`: equal, each to a random one (what balanced routing gives), or Zipf
// shares (largest first); exact in sum.
std::vector<std::int64_t> balanced_rows(std::int64_t total, int experts);
std::vector<std::int64_t> scattered_rows(std::int64_t total, int experts, std::uint64_t seed);
std::vector<std::int64_t> zipf_rows(std::int64_t total, int experts, double exponent);

}  // namespace trifold::calibrate

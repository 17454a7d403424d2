// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/tokens.h"

namespace trifold::hardware {

// Who runs the GEMMs of a rank's experts. Streams: one GEMM an expert over four streams, which is
// what Transformer Engine launches and what Profile::grouped_gemm holds. Loop: the same on one
// stream. The others launch once: cuBLAS' strided batch (experts of equal size),
// cublasGemmGroupedBatchedEx, DeepGEMM (FP8 blockwise), and CUTLASS inside TensorRT-LLM's fused MoE
// operator.
enum class GroupedKernel : std::uint8_t { streams, loop, strided, batched, deepgemm, cutlass };
inline constexpr Token<GroupedKernel> kGroupedKernels[] = {
    {GroupedKernel::streams, "streams"},   {GroupedKernel::loop, "loop"},
    {GroupedKernel::strided, "strided"},   {GroupedKernel::batched, "batched"},
    {GroupedKernel::deepgemm, "deepgemm"}, {GroupedKernel::cutlass, "cutlass"}};
inline constexpr int kGroupedKernelCount = 6;
constexpr bool launches_once(GroupedKernel kernel) { return kernel >= GroupedKernel::strided; }

}  // namespace trifold::hardware

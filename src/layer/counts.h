// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many kernels and host operations a framework call takes. Counted from what Megatron-LM with
// Transformer Engine does for each module, not fitted; the cost of one is a profile constant
// (kernel_gap_s, host_op_s). Published anchors (arXiv:2603.07685): the router with its
// preprocessing launches 72 kernels, 31 with router fusion, 17 with DeepEP too.
//
// A "host operation" is one framework call on the critical thread (a PyTorch operator, an autograd
// node, a library launch): about 6-12 us. A Transformer Engine linear does about eight before its
// GEMM starts (module hooks, workspace, tensor preparation, autograd); in low precision its
// quantisers add calls.

#include "hardware/cluster.h"

namespace trifold::layer::counts {

inline constexpr float kLinearHost = 8, kLinearHostBackward = 10;
inline constexpr float kElementwiseHost = 2, kElementwiseHostBackward = 3;
inline constexpr float kAttentionHost = 14, kAttentionHostBackward = 10;
inline constexpr float kCollectiveHost = 4;

// Router and dispatch preprocessing, forward; backward launches about as many again.
inline constexpr float kRouterKernels = 72, kRouterKernelsFused = 31, kRouterKernelsFlex = 17;

// Dispatch: autograd function, buffer set-up, launches; the all-to-all path also copies counts to
// the host and waits.
inline constexpr float kAllToAllHost = 24, kFlexHost = 12;
// With capacity and padding shapes are static: no counts are exchanged and nothing is waited for.
inline constexpr float kStaticAllToAllHost = 8;

// Round trips that a dispatch of new routing costs the device: the host waits for row counts before
// it can size buffers (fused_a2a.py, token_dispatcher.py); NCCL's path gathers them over the group
// first.
inline constexpr int kCountWaits = 1, kAllToAllCountWaits = 2;

// Grouped linear: one GEMM launch an expert (multi-stream cuBLAS), each with descriptors and a
// heuristic query.
inline constexpr float kExpertGemmHost = 2.1f;

// Merged forward-backward runs a layer as ten schedule nodes (A, D, X, C and what follows, each
// way); a node switches streams, waits for an event and records one, detaches its tensors and
// enters autograd.
inline constexpr float kMergedLayerHost = 10 * 12;

// Unfused permutation: masks, sorts, gathers and scatters one by one; sorting chunks splits and
// concatenates one view a (source rank, local expert) pair.
inline constexpr float kUnfusedPermuteHost = 20, kUnfusedLocalPermuteHost = 6,
                       kChunkViewHost = 0.15f;

// Quantise calls: kernels and host operations per tensor. Block formats swizzle scales for the
// tensor cores as well.
constexpr float quantize_kernels(hardware::Dtype d) {
  switch (d) {
    case hardware::Dtype::fp8_tensor:
      return 4;  // clear of the amax, amax, its scale, cast with transpose
    case hardware::Dtype::fp8_block:
      return 1;
    case hardware::Dtype::mxfp8:
      return 4;  // cast; swizzled scales of both copies and of the weight beside them
    case hardware::Dtype::nvfp4:
      return 5;  // amax, Hadamard, cast, two swizzles
    default:
      return 0;
  }
}
// A per-tensor quantise is one call that allocates and launches its four. The narrower formats
// allocate four buffers and clear the scales of both copies (4), then swizzle three times, a buffer
// and a launch each (6); NVFP4 has an amax and a Hadamard transform besides.
constexpr float quantize_host(hardware::Dtype d) {
  switch (d) {
    case hardware::Dtype::fp8_tensor:
      return 2;
    case hardware::Dtype::fp8_block:
      return 1.2f;
    case hardware::Dtype::mxfp8:
      return 10;
    case hardware::Dtype::nvfp4:
      return 12;
    default:
      return 0;
  }
}

// HBM bytes per element of a quantise pass that writes the row-wise and the column-wise copy.
// Source: modelling.md 3.
constexpr double quantize_bytes(hardware::Dtype d, hardware::GpuArch arch) {
  switch (d) {
    case hardware::Dtype::fp8_tensor:
      return arch == hardware::GpuArch::hopper ? 6.0 : 5.0;
    case hardware::Dtype::fp8_block:
    case hardware::Dtype::mxfp8:
      return 4.06;
    case hardware::Dtype::nvfp4:
      return 7.1;  // amax 2; row-wise 2.56; column-wise with Hadamard 2.56
    default:
      return 0.0;
  }
}

// Bytes per element of a linear's input that tensor parallelism gathers: values and scales.
constexpr double gathered_bytes(hardware::Dtype d) {
  switch (d) {
    case hardware::Dtype::fp8_tensor:
      return 1;
    case hardware::Dtype::fp8_block:
    case hardware::Dtype::mxfp8:
      return 1 + 1.0 / 32;
    case hardware::Dtype::nvfp4:
      return 0.5625;
    default:
      return 2;
  }
}

}  // namespace trifold::layer::counts

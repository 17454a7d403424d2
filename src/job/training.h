// SPDX-License-Identifier: Apache-2.0
#pragma once

// Training: batch, sequence, number formats and optimizer. Tokens as in
// shared/data/observations/README.md.

#include <cstdint>

#include "base/tokens.h"
#include "hardware/cluster.h"

namespace trifold::job {

enum class Precision : std::uint8_t { bf16, fp8_delayed, fp8_tensor, fp8_block, mxfp8, nvfp4 };
inline constexpr Token<Precision> kPrecisions[] = {{Precision::bf16, "bf16"},
                                                   {Precision::fp8_delayed, "fp8_delayed"},
                                                   {Precision::fp8_tensor, "fp8_tensor"},
                                                   {Precision::fp8_block, "fp8_block"},
                                                   {Precision::mxfp8, "mxfp8"},
                                                   {Precision::nvfp4, "nvfp4"}};
constexpr bool is_low_precision(Precision p) { return p != Precision::bf16; }
// The format of linear layers' GEMMs; fp8_delayed computes as fp8_tensor.
hardware::Dtype gemm_dtype(Precision precision);

// Formats of optimizer state and of gradient buffers.
enum class StateType : std::uint8_t { fp32, bf16, fp16, fp8 };
inline constexpr Token<StateType> kStateTypes[] = {{StateType::fp32, "fp32"},
                                                   {StateType::bf16, "bf16"},
                                                   {StateType::fp16, "fp16"},
                                                   {StateType::fp8, "fp8"}};
constexpr int bytes_of(StateType t) {
  return t == StateType::fp32 ? 4 : t == StateType::fp8 ? 1 : 2;
}

enum class OptimizerName : std::uint8_t { adam, muon, sgd };
inline constexpr Token<OptimizerName> kOptimizerNames[] = {
    {OptimizerName::adam, "adam"}, {OptimizerName::muon, "muon"}, {OptimizerName::sgd, "sgd"}};

struct Optimizer {
  OptimizerName name = OptimizerName::adam;
  bool distributed = true;  // ZeRO-1: states sharded over dp*cp (dense) and edp (experts)
  StateType main_params = StateType::fp32;
  StateType main_grads = StateType::fp32;
  StateType moments = StateType::fp32;
  StateType grad_reduce = StateType::fp32;
  bool fp8_param_gather = false;  // parameters are kept in the low format
  bool precision_aware() const {
    return main_params != StateType::fp32 || main_grads != StateType::fp32 ||
           moments != StateType::fp32;
  }
  // What backward accumulates into: one buffer, of the type that is reduced (Megatron's
  // grad_reduce_in_fp32).
  StateType gradient_buffer() const {
    return bytes_of(grad_reduce) < bytes_of(main_grads) ? grad_reduce : main_grads;
  }
  bool operator==(const Optimizer&) const = default;
};

struct Training {
  std::int64_t sequence_length = 4096;  // tokens
  std::int64_t global_batch_size = 1;   // sequences a step
  std::int64_t micro_batch_size = 1;    // sequences a micro-batch
  Precision precision = Precision::bf16;
  Optimizer optimizer;
  bool operator==(const Training&) const = default;
};

}  // namespace trifold::job

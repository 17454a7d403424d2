// SPDX-License-Identifier: Apache-2.0
#pragma once

// Causal attention through cuDNN's graph API, without cudnn-frontend: the flash-attention pattern
// as a graph of matmul, pointwise, reduction and reshape operations. Layout BSHD, bf16.

#include <memory>
#include <vector>

#include "calibrate/harness/device.h"

namespace trifold::calibrate {

struct AttentionShape {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, sequence = 0, qk_dim = 128, v_dim = 128;
  bool backward = false;
};

struct AttentionBuffers {
  void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
  float* stats = nullptr;  // log-sum-exp of each row
  // backward
  void *d_o = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float *softmax_sum = nullptr, *dq_sum = nullptr;  // scratch that the graph names
};

bool attention_built();

// Skips when cuDNN is absent or has no engine for the graph.
class Attention {
 public:
  static Result<Attention> make(Device& device, const AttentionShape& shape);
  // Backward clears dq_sum first, as part of the operation.
  Result<void> run(const AttentionBuffers& buffers, cudaStream_t stream);
  Attention(Attention&&) noexcept;
  Attention& operator=(Attention&&) noexcept;
  ~Attention();

 private:
  Attention();
  struct State;
  std::unique_ptr<State> state_;
};

Result<AttentionBuffers> take_attention(Device& device, const AttentionShape& shape);
std::size_t attention_bytes(const AttentionShape& shape);

}  // namespace trifold::calibrate

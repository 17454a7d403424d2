// SPDX-License-Identifier: Apache-2.0
#pragma once

// A whole MoE layer on this rank, from the pieces that the points measure: router, permute,
// all-to-all, grouped GEMM, SwiGLU, grouped GEMM, all-to-all, unpermute; forward and backward.
// Routing is fixed when the layer is made (counts known to the host), so passes can be captured in
// a graph. Probabilities scale before the second linear (memory-efficient permutation).

#include <optional>
#include <string>
#include <vector>

#include "calibrate/harness/grouped.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {

struct LayerShape {
  std::string model;
  int hidden = 0, width = 0, experts = 0, k = 0;
  bool sigmoid = false;
  int tokens = 4096;  // of a rank and micro-batch
};

enum class Step : int {
  router,
  permute,
  dispatch,
  sort,
  fc1,
  activation,
  fc2,
  unsort,
  combine,
  unpermute
};
inline constexpr const char* kSteps[] = {"router",  "permute",    "dispatch", "sort",
                                         "fc1",     "activation", "fc2",      "unsort",
                                         "combine", "unpermute"};
inline constexpr int kStepCount = 10;

// Weights and their f32 gradients, shared by micro-batches.
struct LayerWeights {
  void *router = nullptr, *fc1 = nullptr, *fc2 = nullptr;
  float *router_gradient = nullptr, *fc1_gradient = nullptr, *fc2_gradient = nullptr;
};
Result<LayerWeights> take_weights(Device& device, const LayerShape& shape, int ep);

class MoeLayer {
 public:
  // Collective over the ranks of `ep` (1 or the world): agrees on the counts.
  static Result<MoeLayer> make(Rank& rank, const LayerShape& shape, const LayerWeights& weights,
                               const Communicator* communicator, int ep, Backend backend);
  // `between` is called after each step, for timing; may be empty.
  using Between = std::function<Result<void>(Step)>;
  Result<void> forward(cudaStream_t stream, int workspace, const Between& between = {});
  Result<void> backward(cudaStream_t stream, int workspace, const Between& between = {});

  std::int64_t rows() const { return local_rows_; }
  std::int64_t busiest_expert() const;
  // Forward against float64 for a few tokens, identities of the backward pass. Small shapes only:
  // every rank's weights travel to the host. Collective.
  Result<bool> check(cudaStream_t stream);

 private:
  Result<void> take(Device& d);
  Result<void> route(Rank& rank, int ep);
  Result<void> plan(Device& d, Backend backend);
  Result<void> exchange(bool there, const void* from, void* to, std::size_t row_bytes,
                        cudaStream_t s);
  Result<void> to_experts(const void* rows, void* sorted, const float* weights,
                          float* sorted_weights, cudaStream_t s, const Between& between);
  Result<void> from_experts(const void* sorted, void* rows, cudaStream_t s, const Between& between);
  Result<bool> check_forward(cudaStream_t stream);
  Result<bool> check_backward(cudaStream_t stream);

  Result<std::vector<double>> all_weights(const void* local, std::size_t count);

  Device* device_ = nullptr;
  Control* control_ = nullptr;
  const Communicator* communicator_ = nullptr;
  LayerShape shape_;
  LayerWeights weights_;
  int ep_ = 1;
  std::int64_t copies_ = 0, local_rows_ = 0;
  std::vector<std::int64_t> expert_rows_;    // of the local experts
  std::vector<std::size_t> send_, receive_;  // rows to and from each rank
  std::optional<GemmPlan> router_gemm_, router_dgrad_, router_wgrad_;
  std::optional<GroupedGemm> fc1_, fc2_, fc1_dgrad_, fc2_dgrad_, fc1_wgrad_, fc2_wgrad_;
  // Token side.
  void *x_ = nullptr, *y_ = nullptr, *dy_ = nullptr, *dx_ = nullptr, *logit_gradient_ = nullptr;
  float *logits_ = nullptr, *probabilities_ = nullptr, *row_probabilities_ = nullptr;
  int *chosen_ = nullptr, *counts_ = nullptr, *offsets_ = nullptr, *slots_ = nullptr,
      *map_work_ = nullptr, *sort_slots_ = nullptr;
  void *send_rows_ = nullptr, *back_rows_ = nullptr;  // copies of tokens, by global expert
  // Expert side, rows by local expert.
  void *received_ = nullptr, *rows_ = nullptr, *fc1_out_ = nullptr, *fc2_in_ = nullptr,
       *fc2_out_ = nullptr, *fc2_in_gradient_ = nullptr, *fc1_out_gradient_ = nullptr,
       *row_gradient_ = nullptr, *out_gradient_ = nullptr;
  float *received_probabilities_ = nullptr, *sorted_probabilities_ = nullptr,
        *probability_gradient_ = nullptr;
};

}  // namespace trifold::calibrate

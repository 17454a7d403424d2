// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layout: who computes what. The dense grid tp x (cp or ulysses) x dp x pp and the expert grid etp
// x ep x edp x pp lie over the same ranks (Parallel Folding); only pp is shared. Source:
// shared/reference/megatron.md sections 3 and 4.

#include <cstdint>
#include <string>

#include "base/tokens.h"

namespace trifold::layout {

// Leftmost varies fastest. tp_cp_ep_pp_dp needs dp == edp (or pp == 1).
enum class RankOrder : std::uint8_t { tp_cp_ep_dp_pp, tp_cp_ep_pp_dp };
inline constexpr Token<RankOrder> kRankOrders[] = {{RankOrder::tp_cp_ep_dp_pp, "tp-cp-ep-dp-pp"},
                                                   {RankOrder::tp_cp_ep_pp_dp, "tp-cp-ep-pp-dp"}};

struct Layout {
  int tp = 1;
  int cp = 1;
  int ulysses_sp = 1;  // MegaScale: attention sharded by sequence, heads swapped by all-to-all;
                       // sits on the cp axis
  int pp = 1;
  int vpp = 1;  // virtual stages (chunks) per pipeline rank
  int ep = 1;
  int etp = 1;
  bool fsdp =
      false;  // parameters, gradients and optimizer sharded over dp (dense) and edp (experts)
  RankOrder order = RankOrder::tp_cp_ep_dp_pp;
  std::string pipeline_layout;         // Megatron's string; empty: cut by the fields below
  bool account_for_embedding = false;  // the embedding (loss) counts as a layer when stages are cut
  bool account_for_loss = false;
  int first_stage_layers = 0;  // 0: as the others
  int last_stage_layers = 0;

  int sequence_ranks() const { return cp * ulysses_sp; }  // ranks that share one sequence
  int dense_model_size() const { return tp * sequence_ranks() * pp; }
  int expert_model_size() const { return etp * ep * pp; }
  // Valid only where the sizes divide (job/legality.h).
  int dp(int gpus) const { return gpus / dense_model_size(); }
  int edp(int gpus) const { return gpus / expert_model_size(); }
  bool operator==(const Layout&) const = default;
};

}  // namespace trifold::layout

// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one block (a layer of some kind), the embedding, the head with its loss, and an MTP depth do
// for one micro-batch on one rank: operators of every pass as a DAG (Boost.Graph), frozen into flat
// arrays in topological order.

#include <cstdint>
#include <vector>

#include "job/job.h"
#include "layer/operator.h"

namespace trifold::layer {

enum class BlockRole : std::uint8_t { layer, embedding, head, mtp_projection };

struct Block {
  BlockRole role = BlockRole::layer;
  model::LayerKind kind;
  std::vector<Operator> operators;        // topological order within each pass
  std::vector<std::uint16_t> edge_begin;  // size operators + 1, CSR
  std::vector<std::uint16_t> edges;       // successors
  std::vector<Operator> spare;            // storage that a rebuild reuses
};

// Rebuilds `block` in place (keeps its storage). CHECKs that the graph is acyclic.
void build_block(const job::Job& job, BlockRole role, model::LayerKind kind, Block& block);

// The operators alone, without edges: all that a price needs.
void build_operators(const job::Job& job, BlockRole role, model::LayerKind kind, Block& block);

// Everything of a Job that build_block reads, packed for caching: two Jobs with equal keys have
// equal blocks and equal prices on one cluster and profile.
struct BlockKey {  // 128-bit fingerprint, then role and kind
  std::uint64_t words[3] = {0, 0, 0};
  // Of job_key alone: the fingerprint of what blocks without experts read, which many Jobs share.
  std::uint64_t plain[2] = {0, 0}, recompute = 0;
  bool operator==(const BlockKey&) const = default;
};
// The part that all blocks of a Job share (computed once a Job), and the key of one of its blocks.
BlockKey job_key(const job::Job& job);
BlockKey block_key(const BlockKey& job_key, BlockRole role, model::LayerKind kind);

struct BlockKeyHash {
  std::size_t operator()(const BlockKey& key) const {
    std::uint64_t h = 0;
    for (std::uint64_t w : key.words) h = (h ^ w) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    return static_cast<std::size_t>(h);
  }
};

}  // namespace trifold::layer

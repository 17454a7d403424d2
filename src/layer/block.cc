// SPDX-License-Identifier: Apache-2.0
#include "layer/block.h"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/random.h"
#include "layer/builder.h"

namespace trifold::layer {

namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS>;

// What backward reruns: forward operators of a recomputed module, except the collective that leaves
// it (its output is not needed again).
bool reruns(const Operator& op, EnumSet<job::Recompute> recompute) {
  return op.pass == Pass::forward && (op.modules & recompute.bits()) != 0;
}

// Forward, then recompute, then backward in reverse: the order in which a rank executes them.
void arrange(Block& block, EnumSet<job::Recompute> recompute) {
  std::vector<Operator>&from = block.operators, &to = block.spare;
  to.clear();
  for (const Operator& op : from)
    if (op.pass == Pass::forward) to.push_back(op);
  const std::size_t forward = to.size();
  for (std::size_t i = 0; i < forward && !recompute.empty(); ++i)
    if (reruns(to[i], recompute)) {
      to.push_back(to[i]);
      to.back().pass = Pass::recompute;
    }
  for (std::size_t i = from.size(); i-- > 0;)
    if (from[i].pass != Pass::forward) to.push_back(from[i]);
  from.swap(to);
}

// One chain a direction; the shared expert is a branch that leaves after the norm and joins at the
// end; weight gradients hang off the data gradient that made their input.
Graph link(const std::vector<Operator>& ops) {
  Graph graph(ops.size());
  int main[2] = {-1, -1}, branch[2] = {-1, -1}, fork[2] = {-1, -1};
  int last_recompute = -1;
  const auto edge = [&](int from, int to) {
    if (from >= 0)
      boost::add_edge(static_cast<std::size_t>(from), static_cast<std::size_t>(to), graph);
  };
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    const Operator& op = ops[static_cast<std::size_t>(i)];
    const int d = op.pass == Pass::forward ? 0 : 1;
    if (op.pass == Pass::recompute) {
      edge(last_recompute, i);
      last_recompute = i;
    } else if (op.pass == Pass::wgrad) {
      edge(op.segment == Segment::shared && branch[d] >= 0 ? branch[d] : main[d], i);
      edge(last_recompute, i);
    } else if (op.segment == Segment::shared) {
      if (branch[d] < 0) fork[d] = main[d];
      edge(branch[d] >= 0 ? branch[d] : fork[d], i);
      branch[d] = i;
    } else {
      edge(main[d], i);
      if (d == 1 && main[d] < 0) edge(last_recompute, i);
      main[d] = i;
    }
  }
  for (int d = 0; d < 2; ++d)
    if (branch[d] >= 0 && main[d] > branch[d]) edge(branch[d], main[d]);
  return graph;
}

void freeze(const Graph& graph, Block& block) {
  std::vector<std::size_t> order;
  order.reserve(block.operators.size());
  boost::topological_sort(graph, std::back_inserter(order));  // throws not_a_dag on a cycle
  TRIFOLD_CHECK(order.size() == block.operators.size());
  block.edge_begin.clear();
  block.edges.clear();
  for (std::size_t i = 0; i < block.operators.size(); ++i) {
    block.edge_begin.push_back(static_cast<std::uint16_t>(block.edges.size()));
    for (auto [it, end] = boost::out_edges(i, graph); it != end; ++it)
      block.edges.push_back(static_cast<std::uint16_t>(boost::target(*it, graph)));
  }
  block.edge_begin.push_back(static_cast<std::uint16_t>(block.edges.size()));
}

}  // namespace

void build_operators(const job::Job& job, BlockRole role, model::LayerKind kind, Block& block) {
  block.role = role;
  block.kind = kind;
  block.operators.clear();
  Builder b(job, block);
  switch (role) {
    case BlockRole::layer:
      build_attention(b, kind.moe, kind.windowed);
      if (kind.moe)
        build_moe(b);
      else
        build_dense_ffn(b);
      break;
    case BlockRole::embedding:
      build_embedding(b);
      break;
    case BlockRole::head:
      build_head(b);
      break;
    case BlockRole::mtp_projection:
      build_mtp_projection(b);
      break;
  }
  block.edge_begin.clear();
  block.edges.clear();
  arrange(block, role == BlockRole::layer ? job.techniques.recompute : EnumSet<job::Recompute>{});
}

void build_block(const job::Job& job, BlockRole role, model::LayerKind kind, Block& block) {
  build_operators(job, role, kind, block);
  freeze(link(block.operators), block);
}

BlockKey job_key(const job::Job& job) {
  const job::Techniques& t = job.techniques;
  const layout::Layout& l = job.layout;
  const model::Model& m = job.model;
  const model::Attention& a = m.attention;
  // What blocks without experts read, recompute aside.
  const std::int64_t plain[] = {
      m.hidden,
      m.vocab,
      m.dense_ffn,
      a.heads,
      a.kv_heads,
      a.head_dim,
      a.q_lora_rank,
      a.kv_lora_rank,
      a.qk_nope_dim,
      a.qk_rope_dim,
      a.v_dim,
      a.window,
      m.is_moe() ? 1 : 0,
      (static_cast<std::int64_t>(a.kind) << 32) | (static_cast<std::int64_t>(m.activation) << 24) |
          (a.qk_norm << 5) | (a.output_gate << 4) | (m.rope.none << 3) | (m.linear_bias << 2) |
          (m.post_norms << 1),
      job.training.sequence_length,
      job.training.micro_batch_size,
      (static_cast<std::int64_t>(job.training.precision) << 8) |
          static_cast<std::int64_t>(job.training.optimizer.gradient_buffer()),
      (static_cast<std::int64_t>(l.tp) << 32) | l.cp,
      l.ulysses_sp,
      (static_cast<std::int64_t>(t.cp_comm) << 16) |
          (static_cast<std::int64_t>(t.implementation) << 8) |
          (static_cast<std::int64_t>(t.attention_backend) << 4) | (t.sequence_parallel << 2) |
          (t.processes_bound_to_cpus ? 1 : 0),
      static_cast<std::int64_t>(t.cuda_graph.bits() | (t.fusions.bits() << 16))};
  const std::int64_t experts[] = {
      m.moe.experts,
      m.moe.top_k,
      m.moe.expert_ffn,
      m.moe.shared_ffn,
      m.moe.groups,
      m.moe.top_groups,
      (static_cast<std::int64_t>(l.ep) << 32) | l.etp,
      (static_cast<std::int64_t>(t.dispatcher) << 56) |
          (static_cast<std::int64_t>(t.dispatcher_sms) << 32) |
          (static_cast<std::int64_t>(t.dispatch_precision) << 24) |
          (static_cast<std::int64_t>(t.grouped_gemm) << 8) |
          (t.memory_efficient_permutation ? 1 : 0),
      static_cast<std::int64_t>(t.recompute.bits()),
      (static_cast<std::int64_t>(t.routing.balance) << 8) |
          static_cast<std::int64_t>(t.routing.distribution) |
          (static_cast<std::int64_t>(t.routing.echo_spare_experts) << 16) |
          (static_cast<std::int64_t>(t.routing.pad_to_capacity) << 40),
      t.routing.seed,
      static_cast<std::int64_t>(t.routing.capacity_factor * 1e6)};
  // Two independent multiply-xor lanes: 128 bits, one pass.
  std::uint64_t x = 0x9e3779b97f4a7c15ull, y = 0xc2b2ae3d27d4eb4full;
  const auto mix = [&](std::uint64_t v) {
    x = (x ^ v) * 0xff51afd7ed558ccdull;
    x ^= x >> 32;
    y = (y + v) * 0xc4ceb9fe1a85ec53ull;
    y ^= y >> 29;
  };
  BlockKey key;
  for (std::int64_t v : plain) mix(static_cast<std::uint64_t>(v));
  key.plain[0] = x, key.plain[1] = y, key.recompute = t.recompute.bits();
  for (std::int64_t v : experts) mix(static_cast<std::uint64_t>(v));
  for (double p : t.routing.parameters) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &p, sizeof bits);
    mix(bits);
  }
  key.words[0] = x;
  key.words[1] = y;
  return key;
}

BlockKey block_key(const BlockKey& job, BlockRole role, model::LayerKind kind) {
  BlockKey key;
  const bool experts = role == BlockRole::layer && kind.moe;
  key.words[0] = experts ? job.words[0] : job.plain[0];
  key.words[1] = experts ? job.words[1] : job.plain[1];
  key.words[2] = (static_cast<std::uint64_t>(role) << 8) | static_cast<std::uint64_t>(kind.index());
  if (role == BlockRole::layer && !experts) key.words[2] |= job.recompute << 16;
  return key;
}

}  // namespace trifold::layer

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collects the operators of a block. Forward operators are added in execution order; each brings
// its backward twins, which block.cc reverses, links into a graph and freezes.

#include "layer/block.h"
#include "layer/shape.h"

namespace trifold::layer {

class Builder {
 public:
  Builder(const job::Job& job, Block& block);

  const job::Job& job;
  const model::Model& model;
  const job::Techniques& techniques;
  Shape shape;
  ExpertLoad load;
  Exchange exchange;

  // Where the next operators belong: segment, recompute modules that would rerun them, CUDA-graph
  // scope.
  void segment(Segment segment) { segment_ = segment; }
  void modules(EnumSet<job::Recompute> modules) {
    modules_ = static_cast<std::uint16_t>(modules.bits());
  }
  void scope(job::GraphScope scope) { scope_ = static_cast<std::uint8_t>(scope); }
  void no_scope() { scope_ = 0xff; }
  void routing(bool routing) { routing_ = routing; }

  void add(Operator op, Pass pass);
  // y[m, n] = x[m, k] W^T: three GEMMs and their quantise passes; `low` false keeps it in bf16.
  void linear(const char* name, double m, double n, double k, bool low = true);
  // The same for every local expert, on the slowest rank's rows.
  void grouped_linear(const char* name, double n, double k);
  void elementwise(const char* name, double forward_bytes, double backward_bytes,
                   float forward_kernels = 1, float backward_kernels = 1, float extra_host = 0);
  // A collective of one pass. `bytes` as nccl-tests counts.
  void collective(const char* name, Pass pass, Family family, hardware::Collective op, double bytes,
                  int ranks, int domains, int repeat = 1);
  // Over the tensor-parallel group, on the micro-batch's tokens x hidden.
  void tp_collective(const char* name, Pass pass, hardware::Collective op);

 private:
  void quantize(const char* name, double elements, Pass pass, float tensors);
  Block& block_;
  Segment segment_ = Segment::attention;
  std::uint16_t modules_ = 0;
  std::uint8_t scope_ = 0xff;
  bool routing_ = false;
};

void build_attention(Builder& b, bool moe, bool windowed);
void build_dense_ffn(Builder& b);
void build_moe(Builder& b);
void build_embedding(Builder& b);
void build_head(Builder& b);
void build_mtp_projection(Builder& b);

}  // namespace trifold::layer

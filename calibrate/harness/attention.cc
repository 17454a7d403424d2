// SPDX-License-Identifier: Apache-2.0
// The operation graphs follow the composite that NVIDIA's cudnn-frontend (MIT) hands to the back
// end, since cuDNN recognises that pattern: S = QK^T, scale, causal select, softmax with its
// log-sum-exp, PV; and for the backward pass dV, dP, dS, dK, dQ (with a f32 dQ to add into).
#include "calibrate/harness/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#ifdef TRIFOLD_WITH_CUDNN
#include <cudnn_graph.h>
#endif

namespace trifold::calibrate {

std::size_t attention_bytes(const AttentionShape& s) {
  const std::int64_t rows = s.batch * s.sequence;
  const std::int64_t qkv = rows * (s.heads * s.qk_dim + s.kv_heads * (s.qk_dim + s.v_dim)) * 2;
  const std::int64_t out = rows * s.heads * (s.v_dim * 2 + 4);
  const std::int64_t more = rows * s.heads * (s.v_dim * 2 + 4 + s.qk_dim * 4) + qkv;
  return static_cast<std::size_t>(qkv + out + (s.backward ? more : 0));
}

Result<AttentionBuffers> take_attention(Device& d, const AttentionShape& s) {
  using kernels::Element;
  const auto rows = static_cast<std::size_t>(s.batch * s.sequence);
  const std::size_t q = rows * static_cast<std::size_t>(s.heads * s.qk_dim);
  const std::size_t k = rows * static_cast<std::size_t>(s.kv_heads * s.qk_dim);
  const std::size_t v = rows * static_cast<std::size_t>(s.kv_heads * s.v_dim);
  const std::size_t o = rows * static_cast<std::size_t>(s.heads * s.v_dim);
  const std::size_t lines = rows * static_cast<std::size_t>(s.heads);
  AttentionBuffers b;
  struct Want {
    void** p;
    std::size_t count;
    std::size_t width;
    bool filled;
  };
  std::vector<Want> wants = {
      {&b.q, q, 2, true}, {&b.k, k, 2, true}, {&b.v, v, 2, true}, {&b.o, o, 2, false}};
  if (s.backward)
    wants.insert(wants.end(), {Want{&b.d_o, o, 2, true}, Want{&b.dq, q, 2, false},
                               Want{&b.dk, k, 2, false}, Want{&b.dv, v, 2, false}});
  for (const Want& w : wants) {
    TRIFOLD_ASSIGN(p, d.arena.take(w.count * w.width));
    if (w.filled) CUDA_TRY(kernels::fill_normal(p, Element::bf16, w.count, 1, d.seed(), d.stream));
    *w.p = p;
  }
  TRIFOLD_ASSIGN(stats, d.arena.take_array<float>(lines));
  b.stats = stats;
  if (s.backward) {
    TRIFOLD_ASSIGN(sum, d.arena.take_array<float>(lines));
    TRIFOLD_ASSIGN(dq_sum, d.arena.take_array<float>(q));
    b.softmax_sum = sum;
    b.dq_sum = dq_sum;
  }
  return b;
}

#ifndef TRIFOLD_WITH_CUDNN

struct Attention::State {};
bool attention_built() { return false; }
Result<Attention> Attention::make(Device&, const AttentionShape&) {
  return skip("built without cuDNN");
}
Result<void> Attention::run(const AttentionBuffers&, cudaStream_t) {
  return skip("built without cuDNN");
}

#else

namespace {

// Everything that the graph API refuses is a skip with its reason: support is found by trying.
#define CUDNN_TRY(call)                                                               \
  do {                                                                                \
    const cudnnStatus_t trifold_code = (call);                                        \
    if (trifold_code != CUDNN_STATUS_SUCCESS) return cudnn_skip(#call, trifold_code); \
  } while (false)

Error cudnn_skip(const char* call, cudnnStatus_t code) {
  char detail[512] = {};
  cudnnGetLastErrorString(detail, sizeof(detail));
  return skip(std::string("cuDNN: ") + cudnnGetErrorString(code) + " in " +
              std::string(call).substr(0, 80) + ": " + detail);
}

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& o) noexcept { std::swap(p_, o.p_); }
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Descriptor() {
    if (p_ != nullptr) (void)cudnnBackendDestroyDescriptor(p_);
  }
  Result<void> create(cudnnBackendDescriptorType_t type) {
    CUDNN_TRY(cudnnBackendCreateDescriptor(type, &p_));
    return {};
  }
  Result<void> set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, const void* values) {
    CUDNN_TRY(cudnnBackendSetAttribute(p_, name, type, count, values));
    return {};
  }
  template <class T>
  Result<void> set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   const T& value) {
    return set(name, type, 1, &value);
  }
  Result<void> finalize() {
    CUDNN_TRY(cudnnBackendFinalize(p_));
    return {};
  }
  cudnnBackendDescriptor_t get() const { return p_; }

 private:
  cudnnBackendDescriptor_t p_ = nullptr;
};

using Dims = std::array<std::int64_t, 4>;

struct Tensor {
  Descriptor descriptor;
  std::int64_t uid = 0;
};
using TensorIndex = std::size_t;

Dims packed(const Dims& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }
// {batch, heads, sequence, dim} over BSHD memory, and the transpose of its last two axes.
Dims bshd(std::int64_t h, std::int64_t s, std::int64_t d) { return {s * h * d, d, h * d, 1}; }
Dims turned(const Dims& d) { return {d[0], d[1], d[3], d[2]}; }

class Builder {
 public:
  Result<TensorIndex> tensor(const Dims& dims, const Dims& strides, cudnnDataType_t type,
                             bool is_virtual, bool by_value = false) {
    Tensor t;
    t.uid = static_cast<std::int64_t>(tensors_.size()) + 1;
    TRIFOLD_TRY(t.descriptor.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    const std::int64_t alignment = 16;
    TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type));
    TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data()));
    TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data()));
    TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, t.uid));
    TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment));
    TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual));
    if (by_value)
      TRIFOLD_TRY(t.descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value));
    TRIFOLD_TRY(t.descriptor.finalize());
    tensors_.push_back(std::move(t));
    return tensors_.size() - 1;
  }
  Result<TensorIndex> local(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor(dims, packed(dims), type, true);
  }
  Result<TensorIndex> scalar() {
    return tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
  }
  std::int64_t uid(TensorIndex t) const { return tensors_[t].uid; }

  Result<void> matmul(TensorIndex a, TensorIndex b, TensorIndex c) {
    Descriptor math, op;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    TRIFOLD_TRY(math.create(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
    TRIFOLD_TRY(math.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute));
    TRIFOLD_TRY(math.finalize());
    TRIFOLD_TRY(op.create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, math.get()));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a)));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b)));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c)));
    return keep(std::move(math), std::move(op));
  }

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    TensorIndex x, y;
    std::int64_t b = -1, t = -1, axis = -1;  // -1: none
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  };
  Result<void> pointwise(const Pointwise& p) {
    Descriptor math, op;
    TRIFOLD_TRY(math.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    TRIFOLD_TRY(math.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, p.mode));
    TRIFOLD_TRY(math.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, p.compute));
    if (p.axis >= 0) TRIFOLD_TRY(math.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, p.axis));
    TRIFOLD_TRY(math.finalize());
    TRIFOLD_TRY(op.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, math.get()));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(p.x)));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(p.y)));
    if (p.b >= 0)
      TRIFOLD_TRY(
          link(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(static_cast<TensorIndex>(p.b))));
    if (p.t >= 0)
      TRIFOLD_TRY(
          link(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(static_cast<TensorIndex>(p.t))));
    return keep(std::move(math), std::move(op));
  }
  Result<void> binary(cudnnPointwiseMode_t mode, TensorIndex x, TensorIndex b, TensorIndex y) {
    return pointwise({mode, x, y, static_cast<std::int64_t>(b)});
  }
  Result<void> unary(cudnnPointwiseMode_t mode, TensorIndex x, TensorIndex y) {
    return pointwise({mode, x, y});
  }

  Result<void> reduce(cudnnReduceTensorOp_t operation, TensorIndex x, TensorIndex y) {
    Descriptor math, op;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    TRIFOLD_TRY(math.create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
    TRIFOLD_TRY(
        math.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation));
    TRIFOLD_TRY(math.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute));
    TRIFOLD_TRY(math.finalize());
    TRIFOLD_TRY(op.create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, math.get()));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x)));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y)));
    return keep(std::move(math), std::move(op));
  }

  Result<void> reshape(TensorIndex x, TensorIndex y) {
    Descriptor op;
    TRIFOLD_TRY(op.create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x)));
    TRIFOLD_TRY(link(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y)));
    return keep(Descriptor(), std::move(op));
  }

  // top-left causal: column > row becomes minus infinity. gen_index, compare, select.
  Result<TensorIndex> causal(TensorIndex scores, const Dims& dims, TensorIndex minus_infinity) {
    TRIFOLD_ASSIGN(row, local(dims, CUDNN_DATA_INT32));
    TRIFOLD_ASSIGN(column, local(dims, CUDNN_DATA_INT32));
    TRIFOLD_ASSIGN(keep_mask, local(dims, CUDNN_DATA_BOOLEAN));
    TRIFOLD_ASSIGN(masked, local(dims));
    TRIFOLD_TRY(pointwise({CUDNN_POINTWISE_GEN_INDEX, scores, row, -1, -1, 2}));
    TRIFOLD_TRY(pointwise({CUDNN_POINTWISE_GEN_INDEX, scores, column, -1, -1, 3}));
    TRIFOLD_TRY(pointwise({CUDNN_POINTWISE_CMP_GE, row, keep_mask,
                           static_cast<std::int64_t>(column), -1, -1, CUDNN_DATA_BOOLEAN}));
    TRIFOLD_TRY(pointwise({CUDNN_POINTWISE_BINARY_SELECT, scores, masked,
                           static_cast<std::int64_t>(minus_infinity),
                           static_cast<std::int64_t>(keep_mask)}));
    return masked;
  }

  Result<void> plan(cudnnHandle_t handle, Descriptor& out, std::int64_t& workspace);

 private:
  cudnnBackendDescriptor_t at(TensorIndex t) const { return tensors_[t].descriptor.get(); }
  Result<void> link(Descriptor& op, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t d) {
    return op.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, d);
  }
  Result<void> keep(Descriptor math, Descriptor op) {
    TRIFOLD_TRY(op.finalize());
    maths_.push_back(std::move(math));
    operations_.push_back(std::move(op));
    return {};
  }

  std::vector<Tensor> tensors_;
  std::vector<Descriptor> maths_, operations_;
  Descriptor graph_, heuristics_;
  std::vector<Descriptor> configs_;
};

// The first engine that the heuristics name and that finalises.
Result<void> Builder::plan(cudnnHandle_t handle, Descriptor& out, std::int64_t& workspace) {
  std::vector<cudnnBackendDescriptor_t> ops;
  for (const Descriptor& op : operations_) ops.push_back(op.get());
  TRIFOLD_TRY(graph_.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  TRIFOLD_TRY(graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         static_cast<std::int64_t>(ops.size()), ops.data()));
  TRIFOLD_TRY(graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  TRIFOLD_TRY(graph_.finalize());
  const cudnnBackendDescriptor_t graph = graph_.get();
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  TRIFOLD_TRY(heuristics_.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  TRIFOLD_TRY(
      heuristics_.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph));
  TRIFOLD_TRY(heuristics_.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
  TRIFOLD_TRY(heuristics_.finalize());
  constexpr std::int64_t kMost = 8;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMost; ++i) {
    configs_.emplace_back();
    TRIFOLD_TRY(configs_.back().create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(configs_.back().get());
  }
  std::int64_t count = 0;
  CUDNN_TRY(cudnnBackendGetAttribute(heuristics_.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &count, raw.data()));
  Error last = skip("cuDNN: no engine for this graph");
  for (std::int64_t i = 0; i < std::min(count, kMost); ++i) {
    Descriptor plan;
    TRIFOLD_TRY(plan.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    TRIFOLD_TRY(plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle));
    TRIFOLD_TRY(plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                         raw[static_cast<std::size_t>(i)]));
    Result<void> finalised = plan.finalize();
    if (!finalised) {
      last = std::move(finalised).error();
      continue;
    }
    std::int64_t elements = 0;
    CUDNN_TRY(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &elements, &workspace));
    out = std::move(plan);
    return {};
  }
  return last;
}

// uids in the order of AttentionBuffers; 0: absent.
struct Names {
  std::int64_t q = 0, k = 0, v = 0, o = 0, stats = 0, scale = 0, infinity = 0, one = 0;
  std::int64_t d_o = 0, dq = 0, dk = 0, dv = 0, softmax_sum = 0, dq_sum = 0;
};

struct Sizes {
  Dims q, k, v, o, scores, line;  // k and v as {batch, heads, sequence, dim}
  explicit Sizes(const AttentionShape& s)
      : q{s.batch, s.heads, s.sequence, s.qk_dim},
        k{s.batch, s.kv_heads, s.sequence, s.qk_dim},
        v{s.batch, s.kv_heads, s.sequence, s.v_dim},
        o{s.batch, s.heads, s.sequence, s.v_dim},
        scores{s.batch, s.heads, s.sequence, s.sequence},
        line{s.batch, s.heads, s.sequence, 1} {}
};

Dims memory_of(const Dims& d) { return bshd(d[1], d[2], d[3]); }

Result<void> forward_graph(Builder& g, const AttentionShape& shape, Names& n) {
  const Sizes z(shape);
  const auto bf16 = CUDNN_DATA_BFLOAT16;
  TRIFOLD_ASSIGN(q, g.tensor(z.q, memory_of(z.q), bf16, false));
  TRIFOLD_ASSIGN(k, g.tensor(turned(z.k), turned(memory_of(z.k)), bf16, false));
  TRIFOLD_ASSIGN(v, g.tensor(z.v, memory_of(z.v), bf16, false));
  TRIFOLD_ASSIGN(o, g.tensor(z.o, memory_of(z.o), bf16, false));
  TRIFOLD_ASSIGN(stats, g.tensor(z.line, packed(z.line), CUDNN_DATA_FLOAT, false));
  TRIFOLD_ASSIGN(scale, g.scalar());
  TRIFOLD_ASSIGN(infinity, g.scalar());
  TRIFOLD_ASSIGN(product, g.local(z.scores));
  TRIFOLD_ASSIGN(scaled, g.local(z.scores));
  TRIFOLD_TRY(g.matmul(q, k, product));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_MUL, product, scale, scaled));
  TRIFOLD_ASSIGN(masked, g.causal(scaled, z.scores, infinity));
  TRIFOLD_ASSIGN(top, g.local(z.line));
  TRIFOLD_ASSIGN(lowered, g.local(z.scores));
  TRIFOLD_ASSIGN(powers, g.local(z.scores));
  TRIFOLD_ASSIGN(sum, g.local(z.line));
  TRIFOLD_ASSIGN(logarithm, g.local(z.line));
  TRIFOLD_ASSIGN(p, g.local(z.scores, bf16));
  TRIFOLD_TRY(g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, top));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_SUB, masked, top, lowered));
  TRIFOLD_TRY(g.unary(CUDNN_POINTWISE_EXP, lowered, powers));
  TRIFOLD_TRY(g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum));
  TRIFOLD_TRY(g.unary(CUDNN_POINTWISE_LOG, sum, logarithm));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_ADD, top, logarithm, stats));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_DIV, powers, sum, p));
  TRIFOLD_TRY(g.matmul(p, v, o));
  n.q = g.uid(q), n.k = g.uid(k), n.v = g.uid(v), n.o = g.uid(o), n.stats = g.uid(stats);
  n.scale = g.uid(scale), n.infinity = g.uid(infinity);
  return {};
}

// out = left^T right over the queries; with fewer kv heads, the sum over each head group.
Result<void> gradient_of_kv(Builder& g, TensorIndex left, TensorIndex right, const Dims& full,
                            bool grouped, TensorIndex out) {
  if (!grouped) return g.matmul(left, right, out);
  TRIFOLD_ASSIGN(every_head, g.local(full, CUDNN_DATA_BFLOAT16));
  TRIFOLD_TRY(g.matmul(left, right, every_head));
  return g.reduce(CUDNN_REDUCE_TENSOR_ADD, every_head, out);
}

struct BackwardTensors {
  TensorIndex q, k, v, o, stats, scale, infinity, one, d_o, dq, dk, dv, softmax_sum, dq_sum;
};

Result<BackwardTensors> backward_tensors(Builder& g, const AttentionShape& shape, Names& n) {
  const Sizes z(shape);
  const auto bf16 = CUDNN_DATA_BFLOAT16, f32 = CUDNN_DATA_FLOAT;
  TRIFOLD_ASSIGN(q, g.tensor(z.q, memory_of(z.q), bf16, false));
  TRIFOLD_ASSIGN(k, g.tensor(turned(z.k), turned(memory_of(z.k)), bf16, false));
  TRIFOLD_ASSIGN(v, g.tensor(turned(z.v), turned(memory_of(z.v)), bf16, false));
  TRIFOLD_ASSIGN(o, g.tensor(z.o, memory_of(z.o), bf16, false));
  TRIFOLD_ASSIGN(d_o, g.tensor(z.o, memory_of(z.o), bf16, false));
  TRIFOLD_ASSIGN(dq, g.tensor(z.q, memory_of(z.q), bf16, false));
  TRIFOLD_ASSIGN(dk, g.tensor(z.k, memory_of(z.k), bf16, false));
  TRIFOLD_ASSIGN(dv, g.tensor(z.v, memory_of(z.v), bf16, false));
  TRIFOLD_ASSIGN(stats, g.tensor(z.line, packed(z.line), f32, false));
  TRIFOLD_ASSIGN(softmax_sum, g.tensor(z.line, packed(z.line), f32, false));
  TRIFOLD_ASSIGN(dq_sum, g.tensor(z.q, packed(z.q), f32, false));
  TRIFOLD_ASSIGN(scale, g.scalar());
  TRIFOLD_ASSIGN(infinity, g.scalar());
  TRIFOLD_ASSIGN(one, g.scalar());
  n.q = g.uid(q), n.k = g.uid(k), n.v = g.uid(v), n.o = g.uid(o), n.stats = g.uid(stats);
  n.scale = g.uid(scale), n.infinity = g.uid(infinity), n.one = g.uid(one);
  n.d_o = g.uid(d_o), n.dq = g.uid(dq), n.dk = g.uid(dk), n.dv = g.uid(dv);
  n.softmax_sum = g.uid(softmax_sum), n.dq_sum = g.uid(dq_sum);
  return BackwardTensors{q,   k,   v,  o,  stats, scale,       infinity,
                         one, d_o, dq, dk, dv,    softmax_sum, dq_sum};
}

// `inner` is the declared type of dS and of K's reshape, where the pattern is matched by type.
Result<void> backward_graph(Builder& g, const AttentionShape& shape, Names& n,
                            cudnnDataType_t inner) {
  const Sizes z(shape);
  const auto bf16 = CUDNN_DATA_BFLOAT16;
  const bool grouped = shape.heads != shape.kv_heads;
  TRIFOLD_ASSIGN(t, backward_tensors(g, shape, n));
  // Row sums of dO * O.
  const Dims odd = {z.o[1] * z.o[2] * z.o[3], z.o[2] * z.o[3], z.o[1] * z.o[3], 1};
  TRIFOLD_ASSIGN(product, g.tensor(z.o, odd, CUDNN_DATA_FLOAT, true));
  TRIFOLD_ASSIGN(row_sum, g.local(z.line));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_MUL, t.d_o, t.o, product));
  TRIFOLD_TRY(g.reduce(CUDNN_REDUCE_TENSOR_ADD, product, row_sum));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_MUL, row_sum, t.one, t.softmax_sum));
  // P = exp(scaled scores - stats), and dV.
  TRIFOLD_ASSIGN(scores, g.local(z.scores));
  TRIFOLD_ASSIGN(scaled, g.local(z.scores));
  TRIFOLD_ASSIGN(lowered, g.local(z.scores));
  TRIFOLD_TRY(g.matmul(t.q, t.k, scores));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_MUL, scores, t.scale, scaled));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_SUB, scaled, t.stats, lowered));
  TRIFOLD_ASSIGN(masked, g.causal(lowered, z.scores, t.infinity));
  TRIFOLD_ASSIGN(p, g.local(z.scores));
  TRIFOLD_TRY(g.unary(CUDNN_POINTWISE_EXP, masked, p));
  const Dims flipped = {z.scores[0], z.scores[1], z.scores[3], z.scores[2]};
  const Dims flipped_strides = turned(packed(z.scores));
  TRIFOLD_ASSIGN(p_t, g.tensor(flipped, flipped_strides, bf16, true));
  TRIFOLD_TRY(g.reshape(p, p_t));
  const Dims dv_full = {z.o[0], z.o[1], z.v[2], z.v[3]}, dk_full = {z.q[0], z.q[1], z.k[2], z.k[3]};
  TRIFOLD_TRY(gradient_of_kv(g, p_t, t.d_o, dv_full, grouped, t.dv));
  // dS = (dO V^T - row sum) P scale, then dK and dQ.
  TRIFOLD_ASSIGN(dp, g.local(z.scores));
  TRIFOLD_ASSIGN(centred, g.local(z.scores));
  TRIFOLD_ASSIGN(weighted, g.local(z.scores));
  TRIFOLD_ASSIGN(ds, g.local(z.scores, inner));
  TRIFOLD_TRY(g.matmul(t.d_o, t.v, dp));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_SUB, dp, t.softmax_sum, centred));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_MUL, centred, p, weighted));
  TRIFOLD_TRY(g.binary(CUDNN_POINTWISE_MUL, weighted, t.scale, ds));
  TRIFOLD_ASSIGN(ds_t, g.tensor(flipped, flipped_strides, bf16, true));
  TRIFOLD_TRY(g.reshape(ds, ds_t));
  TRIFOLD_TRY(gradient_of_kv(g, ds_t, t.q, dk_full, grouped, t.dk));
  TRIFOLD_ASSIGN(k_plain, g.tensor(z.k, memory_of(z.k), inner, true));
  TRIFOLD_TRY(g.reshape(t.k, k_plain));
  TRIFOLD_TRY(g.matmul(ds, k_plain, t.dq_sum));
  return g.unary(CUDNN_POINTWISE_IDENTITY, t.dq_sum, t.dq);
}

}  // namespace

struct Attention::State {
  AttentionShape shape;
  cudnnHandle_t handle = nullptr;
  Builder builder;
  Names names;
  Descriptor plan;
  void* workspace = nullptr;
  std::size_t dq_bytes = 0;
  float scale = 1, infinity = -std::numeric_limits<float>::infinity(), one = 1;
  ~State() {
    if (handle != nullptr) (void)cudnnDestroy(handle);
  }
};

bool attention_built() { return true; }

Result<Attention> Attention::make(Device& device, const AttentionShape& shape) {
  Attention attention;
  attention.state_ = std::make_unique<State>();
  State& s = *attention.state_;
  s.shape = shape;
  s.scale = 1.0f / std::sqrt(static_cast<float>(shape.qk_dim));
  s.dq_bytes =
      static_cast<std::size_t>(shape.batch * shape.heads * shape.sequence * shape.qk_dim * 4);
  CUDNN_TRY(cudnnCreate(&s.handle));
  CUDNN_TRY(cudnnSetStream(s.handle, device.stream));
  std::int64_t bytes = 0;
  Result<void> planned = skip("no graph tried");
  // cudnn-frontend declares f32; other releases of cuDNN want the operands' own type.
  for (const cudnnDataType_t inner : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}) {
    s.builder = Builder();
    s.names = Names();
    planned = shape.backward ? backward_graph(s.builder, shape, s.names, inner)
                             : forward_graph(s.builder, shape, s.names);
    if (planned) planned = s.builder.plan(s.handle, s.plan, bytes);
    if (planned || !shape.backward) break;
  }
  if (!planned) return std::move(planned).error();
  if (bytes > 0) {
    TRIFOLD_ASSIGN(workspace, device.arena.take(static_cast<std::size_t>(bytes)));
    s.workspace = workspace;
  }
  return attention;
}

Result<void> Attention::run(const AttentionBuffers& b, cudaStream_t stream) {
  State& s = *state_;
  const Names& n = s.names;
  if (s.shape.backward) CUDA_TRY(cudaMemsetAsync(b.dq_sum, 0, s.dq_bytes, stream));
  const std::pair<std::int64_t, void*> all[] = {{n.q, b.q},
                                                {n.k, b.k},
                                                {n.v, b.v},
                                                {n.o, b.o},
                                                {n.stats, b.stats},
                                                {n.scale, &s.scale},
                                                {n.infinity, &s.infinity},
                                                {n.one, &s.one},
                                                {n.d_o, b.d_o},
                                                {n.dq, b.dq},
                                                {n.dk, b.dk},
                                                {n.dv, b.dv},
                                                {n.softmax_sum, b.softmax_sum},
                                                {n.dq_sum, b.dq_sum}};
  std::vector<std::int64_t> uids;
  std::vector<void*> pointers;
  for (const auto& [uid, pointer] : all)
    if (uid != 0) {
      uids.push_back(uid);
      pointers.push_back(pointer);
    }
  Descriptor pack;
  TRIFOLD_TRY(pack.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  const auto count = static_cast<std::int64_t>(uids.size());
  TRIFOLD_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids.data()));
  TRIFOLD_TRY(
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data()));
  TRIFOLD_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, s.workspace));
  TRIFOLD_TRY(pack.finalize());
  CUDNN_TRY(cudnnSetStream(s.handle, stream));
  CUDNN_TRY(cudnnBackendExecute(s.handle, s.plan.get(), pack.get()));
  return {};
}

#endif

Attention::Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;
Attention::~Attention() = default;

}  // namespace trifold::calibrate

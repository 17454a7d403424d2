// SPDX-License-Identifier: Apache-2.0
#include "calibrate/layer/moe_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "calibrate/kernels/reference.h"

namespace trifold::calibrate {
namespace {

using hardware::GemmPass;
using kernels::Element;

Result<void*> filled(Device& d, std::size_t count, float scale) {
  TRIFOLD_ASSIGN(p, d.arena.take(count * 2));
  CUDA_TRY(kernels::fill_normal(p, Element::bf16, count, scale, d.seed(), d.stream));
  return p;
}

Result<void> tell(const MoeLayer::Between& between, Step step) {
  if (between) TRIFOLD_TRY(between(step));
  return {};
}

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x = 0;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}

Result<std::vector<double>> doubles(const void* p, std::size_t count) {
  TRIFOLD_ASSIGN(raw, to_host<std::uint16_t>(p, count));
  std::vector<double> out(count);
  std::transform(raw.begin(), raw.end(), out.begin(), from_bf16);
  return out;
}

GemmShape router_shape(const LayerShape& s, GemmPass pass) {
  GemmShape g;
  g.pass = pass;
  g.m = s.tokens;
  g.n = s.experts;
  g.k = s.hidden;
  g.f32_output = pass == GemmPass::forward;
  return g;
}

kernels::RouterConfig router_config(const LayerShape& s) {
  kernels::RouterConfig c;
  c.tokens = s.tokens;
  c.experts = s.experts;
  c.k = s.k;
  c.sigmoid = s.sigmoid;
  if (s.sigmoid && s.experts == 256) {
    c.groups = 8;
    c.top_groups = 4;
    c.scale = 2.5f;
  }
  return c;
}

}  // namespace

Result<LayerWeights> take_weights(Device& d, const LayerShape& s, int ep) {
  LayerWeights w;
  const auto local = static_cast<std::size_t>(s.experts / ep);
  const auto h = static_cast<std::size_t>(s.hidden), f = static_cast<std::size_t>(s.width);
  const std::size_t router = static_cast<std::size_t>(s.experts) * h;
  // Variance-preserving, so that activations stay near one.
  const float in = 1 / std::sqrt(static_cast<float>(s.hidden));
  const float out = 1 / std::sqrt(static_cast<float>(s.width));
  TRIFOLD_ASSIGN(wr, filled(d, router, in));
  TRIFOLD_ASSIGN(w1, filled(d, local * 2 * f * h, in));
  TRIFOLD_ASSIGN(w2, filled(d, local * h * f, out));
  TRIFOLD_ASSIGN(gr, d.arena.take_array<float>(router));
  TRIFOLD_ASSIGN(g1, d.arena.take_array<float>(local * 2 * f * h));
  TRIFOLD_ASSIGN(g2, d.arena.take_array<float>(local * h * f));
  CUDA_TRY(cudaMemsetAsync(gr, 0, router * 4, d.stream));
  CUDA_TRY(cudaMemsetAsync(g1, 0, local * 2 * f * h * 4, d.stream));
  CUDA_TRY(cudaMemsetAsync(g2, 0, local * h * f * 4, d.stream));
  w.router = wr, w.fc1 = w1, w.fc2 = w2;
  w.router_gradient = gr, w.fc1_gradient = g1, w.fc2_gradient = g2;
  return w;
}

Result<MoeLayer> MoeLayer::make(Rank& rank, const LayerShape& shape, const LayerWeights& weights,
                                const Communicator* communicator, int ep, Backend backend) {
  MoeLayer layer;
  layer.device_ = &rank.device;
  layer.control_ = &rank.control;
  layer.communicator_ = communicator;
  layer.shape_ = shape;
  layer.weights_ = weights;
  layer.ep_ = ep;
  layer.copies_ = std::int64_t{shape.tokens} * shape.k;
  Device& d = rank.device;
  const auto t = static_cast<std::size_t>(shape.tokens), h = static_cast<std::size_t>(shape.hidden);
  const auto e = static_cast<std::size_t>(shape.experts);
  const auto copies = static_cast<std::size_t>(layer.copies_);
  TRIFOLD_ASSIGN(x, filled(d, t * h, 1));
  TRIFOLD_ASSIGN(dy, filled(d, t * h, 1));
  TRIFOLD_ASSIGN(logit_gradient, filled(d, t * e, 1e-3f));
  layer.x_ = x, layer.dy_ = dy, layer.logit_gradient_ = logit_gradient;
  TRIFOLD_ASSIGN(logits, d.arena.take_array<float>(t * e));
  TRIFOLD_ASSIGN(probabilities, d.arena.take_array<float>(copies));
  TRIFOLD_ASSIGN(row_probabilities, d.arena.take_array<float>(copies));
  TRIFOLD_ASSIGN(chosen, d.arena.take_array<int>(copies));
  TRIFOLD_ASSIGN(counts, d.arena.take_array<int>(e));
  TRIFOLD_ASSIGN(offsets, d.arena.take_array<int>(e + 1));
  TRIFOLD_ASSIGN(slots, d.arena.take_array<int>(copies));
  TRIFOLD_ASSIGN(work, d.arena.take_array<int>(kernels::permutation_workspace(
                           static_cast<int>(copies), shape.experts)));
  layer.logits_ = logits, layer.probabilities_ = probabilities;
  layer.row_probabilities_ = row_probabilities, layer.chosen_ = chosen, layer.counts_ = counts;
  layer.offsets_ = offsets, layer.slots_ = slots, layer.map_work_ = work;
  TRIFOLD_TRY(layer.route(rank, ep));
  TRIFOLD_TRY(layer.take(d));
  TRIFOLD_TRY(layer.plan(d, backend));
  return layer;
}

// Runs the router once, and tells everybody who sends how many rows to which expert.
Result<void> MoeLayer::route(Rank& rank, int ep) {
  Device& d = rank.device;
  GemmBuffers b;
  b.left = x_, b.right = weights_.router, b.out = logits_;
  TRIFOLD_ASSIGN(gemm, GemmPlan::make(d, router_shape(shape_, GemmPass::forward), b));
  router_gemm_ = std::move(gemm);
  TRIFOLD_TRY(router_gemm_->run(d, b, 0, d.stream));
  CUDA_TRY(kernels::router_topk(router_config(shape_), logits_, nullptr, chosen_, probabilities_,
                                d.stream));
  CUDA_TRY(kernels::permutation_map(chosen_, static_cast<int>(copies_), shape_.experts, counts_,
                                    offsets_, slots_, map_work_, d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  const auto experts = static_cast<std::size_t>(shape_.experts);
  TRIFOLD_ASSIGN(mine, to_host<int>(counts_, experts));
  std::vector<std::vector<int>> all = {mine};
  if (ep > 1) {
    TRIFOLD_ASSIGN(gathered, rank.control.all_gather(mine.data(), experts * sizeof(int)));
    all.assign(gathered.size(), std::vector<int>(experts));
    for (std::size_t r = 0; r < gathered.size(); ++r)
      std::memcpy(all[r].data(), gathered[r].data(), experts * sizeof(int));
  }
  const auto ranks = static_cast<std::size_t>(ep);
  const std::size_t local = experts / ranks;
  const std::size_t me = ep > 1 ? static_cast<std::size_t>(communicator_->rank()) : 0;
  send_.assign(ranks, 0), receive_.assign(ranks, 0), expert_rows_.assign(local, 0);
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t e = 0; e < local; ++e) {
      send_[r] += static_cast<std::size_t>(mine[r * local + e]);
      const int from = all[r][me * local + e];
      receive_[r] += static_cast<std::size_t>(from);
      expert_rows_[e] += from;
    }
  local_rows_ = 0;
  for (const std::int64_t rows : expert_rows_) local_rows_ += rows;
  if (ep == 1) return {};
  // Received rows come by source rank, then expert; experts want them by expert.
  std::vector<int> order;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t e = 0; e < local; ++e) {
      std::int64_t at = 0;
      for (std::size_t before = 0; before < e; ++before) at += expert_rows_[before];
      for (std::size_t s = 0; s < r; ++s) at += all[s][me * local + e];
      for (int i = 0; i < all[r][me * local + e]; ++i) order.push_back(static_cast<int>(at + i));
    }
  TRIFOLD_ASSIGN(sort, d.arena.take_array<int>(order.size()));
  CUDA_TRY(cudaMemcpy(sort, order.data(), order.size() * 4, cudaMemcpyHostToDevice));
  sort_slots_ = sort;
  return {};
}

Result<void> MoeLayer::take(Device& d) {
  const auto h = static_cast<std::size_t>(shape_.hidden),
             f = static_cast<std::size_t>(shape_.width);
  const auto copies = static_cast<std::size_t>(copies_),
             t = static_cast<std::size_t>(shape_.tokens);
  const auto rows = static_cast<std::size_t>(local_rows_);
  struct Want {
    void** p;
    std::size_t bytes;
  };
  const Want wants[] = {{&y_, t * h * 2},
                        {&dx_, t * h * 2},
                        {&send_rows_, copies * h * 2},
                        {&back_rows_, copies * h * 2},
                        {&rows_, rows * h * 2},
                        {&fc1_out_, rows * 2 * f * 2},
                        {&fc2_in_, rows * f * 2},
                        {&fc2_out_, rows * h * 2},
                        {&out_gradient_, rows * h * 2},
                        {&fc2_in_gradient_, rows * f * 2},
                        {&fc1_out_gradient_, rows * 2 * f * 2},
                        {&row_gradient_, rows * h * 2},
                        {&received_, ep_ > 1 ? rows * h * 2 : 256}};
  for (const Want& want : wants) {
    TRIFOLD_ASSIGN(p, d.arena.take(want.bytes));
    *want.p = p;
  }
  TRIFOLD_ASSIGN(received, d.arena.take_array<float>(rows));
  TRIFOLD_ASSIGN(sorted, d.arena.take_array<float>(rows));
  TRIFOLD_ASSIGN(gradient, d.arena.take_array<float>(rows));
  received_probabilities_ = received, sorted_probabilities_ = sorted;
  probability_gradient_ = gradient;
  return {};
}

namespace {

GemmBuffers buffers(void* left, void* right, void* out) {
  GemmBuffers b;
  b.left = left, b.right = right, b.out = out;
  return b;
}

}  // namespace

Result<void> MoeLayer::plan(Device& d, Backend backend) {
  TRIFOLD_ASSIGN(dgrad, GemmPlan::make(d, router_shape(shape_, GemmPass::dgrad), {}));
  TRIFOLD_ASSIGN(wgrad, GemmPlan::make(d, router_shape(shape_, GemmPass::wgrad), {}));
  router_dgrad_ = std::move(dgrad), router_wgrad_ = std::move(wgrad);
  struct Want {
    std::optional<GroupedGemm>* gemm;
    GemmPass pass;
    bool first;
    GemmBuffers packed;
  };
  const Want wants[] = {
      {&fc1_, GemmPass::forward, true, buffers(rows_, weights_.fc1, fc1_out_)},
      {&fc2_, GemmPass::forward, false, buffers(fc2_in_, weights_.fc2, fc2_out_)},
      {&fc2_dgrad_, GemmPass::dgrad, false, buffers(out_gradient_, weights_.fc2, fc2_in_gradient_)},
      {&fc1_dgrad_, GemmPass::dgrad, true, buffers(fc1_out_gradient_, weights_.fc1, row_gradient_)},
      {&fc2_wgrad_, GemmPass::wgrad, false, buffers(out_gradient_, fc2_in_, weights_.fc2_gradient)},
      {&fc1_wgrad_, GemmPass::wgrad, true,
       buffers(fc1_out_gradient_, rows_, weights_.fc1_gradient)}};
  for (const Want& want : wants) {
    GroupedShape s;
    s.pass = want.pass;
    s.backend =
        want.pass == GemmPass::wgrad && backend == Backend::grouped ? Backend::loop : backend;
    s.rows = expert_rows_;
    s.n = want.first ? 2 * shape_.width : shape_.hidden;
    s.k = want.first ? shape_.hidden : shape_.width;
    TRIFOLD_ASSIGN(gemm, GroupedGemm::make(d, s, want.packed));
    *want.gemm = std::move(gemm);
  }
  return {};
}

std::int64_t MoeLayer::busiest_expert() const {
  return *std::max_element(expert_rows_.begin(), expert_rows_.end());
}

Result<void> MoeLayer::exchange(bool there, const void* from, void* to, std::size_t row_bytes,
                                cudaStream_t s) {
  return communicator_->all_to_all_v(from, there ? send_ : receive_, to, there ? receive_ : send_,
                                     row_bytes, s);
}

// Token copies by global expert -> rows by local expert.
Result<void> MoeLayer::to_experts(const void* rows, void* sorted, const float* weights,
                                  float* sorted_weights, cudaStream_t s, const Between& between) {
  const auto row_bytes = static_cast<std::size_t>(shape_.hidden) * 2;
  if (ep_ > 1) {
    TRIFOLD_TRY(exchange(true, rows, received_, row_bytes, s));
    if (weights != nullptr) TRIFOLD_TRY(exchange(true, weights, received_probabilities_, 4, s));
  }
  TRIFOLD_TRY(tell(between, Step::dispatch));
  if (ep_ > 1)
    CUDA_TRY(kernels::permute(received_, sort_slots_, nullptr, static_cast<int>(local_rows_), 1,
                              shape_.hidden, sorted,
                              weights != nullptr ? received_probabilities_ : nullptr,
                              weights != nullptr ? sorted_weights : nullptr, s));
  return tell(between, Step::sort);
}

Result<void> MoeLayer::from_experts(const void* sorted, void* rows, cudaStream_t s,
                                    const Between& between) {
  if (ep_ > 1)
    CUDA_TRY(kernels::unpermute(sorted, sort_slots_, nullptr, static_cast<int>(local_rows_), 1,
                                shape_.hidden, received_, s));
  TRIFOLD_TRY(tell(between, Step::unsort));
  if (ep_ > 1)
    TRIFOLD_TRY(exchange(false, received_, rows, static_cast<std::size_t>(shape_.hidden) * 2, s));
  return tell(between, Step::combine);
}

Result<void> MoeLayer::forward(cudaStream_t s, int workspace, const Between& between) {
  Device& d = *device_;
  TRIFOLD_TRY(router_gemm_->run(d, buffers(x_, weights_.router, logits_), workspace, s));
  CUDA_TRY(
      kernels::router_topk(router_config(shape_), logits_, nullptr, chosen_, probabilities_, s));
  CUDA_TRY(kernels::permutation_map(chosen_, static_cast<int>(copies_), shape_.experts, counts_,
                                    offsets_, slots_, map_work_, s));
  TRIFOLD_TRY(tell(between, Step::router));
  // With one rank the copies lie by expert already.
  void* copies = ep_ > 1 ? send_rows_ : rows_;
  float* weights = ep_ > 1 ? row_probabilities_ : sorted_probabilities_;
  CUDA_TRY(kernels::permute(x_, slots_, nullptr, shape_.tokens, shape_.k, shape_.hidden, copies,
                            probabilities_, weights, s));
  TRIFOLD_TRY(tell(between, Step::permute));
  TRIFOLD_TRY(to_experts(copies, rows_, weights, sorted_probabilities_, s, between));
  TRIFOLD_TRY(fc1_->run(d, buffers(rows_, weights_.fc1, fc1_out_), s, workspace));
  TRIFOLD_TRY(tell(between, Step::fc1));
  CUDA_TRY(kernels::swiglu_forward(fc1_out_, sorted_probabilities_, local_rows_, shape_.width,
                                   fc2_in_, s));
  TRIFOLD_TRY(tell(between, Step::activation));
  TRIFOLD_TRY(fc2_->run(d, buffers(fc2_in_, weights_.fc2, fc2_out_), s, workspace));
  TRIFOLD_TRY(tell(between, Step::fc2));
  TRIFOLD_TRY(from_experts(fc2_out_, back_rows_, s, between));
  CUDA_TRY(kernels::unpermute(ep_ > 1 ? back_rows_ : fc2_out_, slots_, nullptr, shape_.tokens,
                              shape_.k, shape_.hidden, y_, s));
  return tell(between, Step::unpermute);
}

Result<void> MoeLayer::backward(cudaStream_t s, int workspace, const Between& between) {
  Device& d = *device_;
  void* copies = ep_ > 1 ? send_rows_ : out_gradient_;
  CUDA_TRY(kernels::permute(dy_, slots_, nullptr, shape_.tokens, shape_.k, shape_.hidden, copies,
                            nullptr, nullptr, s));
  TRIFOLD_TRY(tell(between, Step::permute));
  TRIFOLD_TRY(to_experts(copies, out_gradient_, nullptr, nullptr, s, between));
  TRIFOLD_TRY(
      fc2_dgrad_->run(d, buffers(out_gradient_, weights_.fc2, fc2_in_gradient_), s, workspace));
  TRIFOLD_TRY(
      fc2_wgrad_->run(d, buffers(out_gradient_, fc2_in_, weights_.fc2_gradient), s, workspace));
  TRIFOLD_TRY(tell(between, Step::fc2));
  CUDA_TRY(kernels::swiglu_backward(fc2_in_gradient_, fc1_out_, sorted_probabilities_, local_rows_,
                                    shape_.width, fc1_out_gradient_, probability_gradient_, s));
  TRIFOLD_TRY(tell(between, Step::activation));
  TRIFOLD_TRY(
      fc1_dgrad_->run(d, buffers(fc1_out_gradient_, weights_.fc1, row_gradient_), s, workspace));
  TRIFOLD_TRY(
      fc1_wgrad_->run(d, buffers(fc1_out_gradient_, rows_, weights_.fc1_gradient), s, workspace));
  TRIFOLD_TRY(tell(between, Step::fc1));
  TRIFOLD_TRY(from_experts(row_gradient_, back_rows_, s, between));
  CUDA_TRY(kernels::unpermute(ep_ > 1 ? back_rows_ : row_gradient_, slots_, nullptr, shape_.tokens,
                              shape_.k, shape_.hidden, dx_, s));
  TRIFOLD_TRY(tell(between, Step::unpermute));
  // The router's two GEMMs, on a gradient of the logits that stands for the softmax's backward; its
  // data gradient goes to back_rows_ (adding it into dx is the next norm's fused work).
  TRIFOLD_TRY(
      router_dgrad_->run(d, buffers(logit_gradient_, weights_.router, back_rows_), workspace, s));
  TRIFOLD_TRY(
      router_wgrad_->run(d, buffers(logit_gradient_, x_, weights_.router_gradient), workspace, s));
  return tell(between, Step::router);
}

Result<bool> MoeLayer::check(cudaStream_t s) {
  TRIFOLD_ASSIGN(there, check_forward(s));
  TRIFOLD_ASSIGN(back, check_backward(s));
  return there && back;
}

// The experts' weights of every rank, in order.
Result<std::vector<double>> MoeLayer::all_weights(const void* local, std::size_t count) {
  if (ep_ == 1) return doubles(local, count);
  TRIFOLD_ASSIGN(raw, to_host<std::uint16_t>(local, count));
  TRIFOLD_ASSIGN(parts, control_->all_gather(raw.data(), raw.size() * 2));
  std::vector<double> out;
  for (const auto& part : parts)
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, part.data() + 2 * i, 2);
      out.push_back(from_bf16(bits));
    }
  return out;
}

// The first and the last token in float64 through their experts.
Result<bool> MoeLayer::check_forward(cudaStream_t stream) {
  TRIFOLD_TRY(forward(stream, 0));
  CUDA_TRY(cudaStreamSynchronize(stream));
  const auto h = static_cast<std::size_t>(shape_.hidden),
             f = static_cast<std::size_t>(shape_.width);
  const auto k = static_cast<std::size_t>(shape_.k);
  TRIFOLD_ASSIGN(chosen, to_host<int>(chosen_, static_cast<std::size_t>(copies_)));
  TRIFOLD_ASSIGN(weights, to_host<float>(probabilities_, static_cast<std::size_t>(copies_)));
  const std::size_t local = static_cast<std::size_t>(shape_.experts / ep_);
  TRIFOLD_ASSIGN(w1, all_weights(weights_.fc1, local * 2 * f * h));
  TRIFOLD_ASSIGN(w2, all_weights(weights_.fc2, local * h * f));
  double error = 0, norm = 0;
  for (const std::size_t token : {std::size_t{0}, static_cast<std::size_t>(shape_.tokens - 1)}) {
    TRIFOLD_ASSIGN(x, doubles(static_cast<char*>(x_) + token * h * 2, h));
    TRIFOLD_ASSIGN(y, doubles(static_cast<char*>(y_) + token * h * 2, h));
    std::vector<double> expected(h);
    for (std::size_t j = 0; j < k; ++j) {
      const auto e = static_cast<std::size_t>(chosen[token * k + j]);
      std::vector<double> up(2 * f);
      for (std::size_t i = 0; i < 2 * f; ++i)
        for (std::size_t c = 0; c < h; ++c) up[i] += w1[(e * 2 * f + i) * h + c] * x[c];
      const std::vector<double> act =
          kernels::reference::swiglu(up.data(), shape_.width, weights[token * k + j]);
      for (std::size_t c = 0; c < h; ++c)
        for (std::size_t i = 0; i < f; ++i) expected[c] += w2[(e * h + c) * f + i] * act[i];
    }
    for (std::size_t c = 0; c < h; ++c) {
      error += (y[c] - expected[c]) * (y[c] - expected[c]);
      norm += expected[c] * expected[c];
    }
  }
  return std::isfinite(error) && std::sqrt(error) <= 1.5e-2 * std::sqrt(norm);
}

// <dW2, W2> = sum over rows of <row of dy, fc2 out>, and <dW1, W1> = <dx rows, rows>: both hold
// exactly in real numbers, and break when an operand, a slot or an accumulation is wrong.
Result<bool> MoeLayer::check_backward(cudaStream_t stream) {
  const auto local = static_cast<std::size_t>(shape_.experts / ep_);
  const auto h = static_cast<std::size_t>(shape_.hidden),
             f = static_cast<std::size_t>(shape_.width);
  const auto rows = static_cast<std::size_t>(local_rows_);
  CUDA_TRY(cudaMemsetAsync(weights_.fc1_gradient, 0, local * 2 * f * h * 4, stream));
  CUDA_TRY(cudaMemsetAsync(weights_.fc2_gradient, 0, local * h * f * 4, stream));
  TRIFOLD_TRY(backward(stream, 0));
  CUDA_TRY(cudaStreamSynchronize(stream));
  struct Pair {
    const float* gradient;
    const void *weight, *left, *right;
    std::size_t weights;
  };
  for (const Pair& pair :
       {Pair{weights_.fc2_gradient, weights_.fc2, out_gradient_, fc2_out_, h * f},
        Pair{weights_.fc1_gradient, weights_.fc1, row_gradient_, rows_, 2 * f * h}}) {
    TRIFOLD_ASSIGN(dw, to_host<float>(pair.gradient, local * pair.weights));
    TRIFOLD_ASSIGN(w, doubles(pair.weight, local * pair.weights));
    TRIFOLD_ASSIGN(a, doubles(pair.left, rows * h));
    TRIFOLD_ASSIGN(b, doubles(pair.right, rows * h));
    double weights = 0, activations = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < w.size(); ++i) weights += dw[i] * w[i];
    for (std::size_t i = 0; i < a.size(); ++i) {
      activations += a[i] * b[i];
      aa += a[i] * a[i], bb += b[i] * b[i];
    }
    if (!std::isfinite(weights) || !(std::fabs(weights - activations) <= 2e-3 * std::sqrt(aa * bb)))
      return false;
  }
  return true;
}

}  // namespace trifold::calibrate

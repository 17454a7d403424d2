// SPDX-License-Identifier: Apache-2.0
// Every kernel against float64 on fresh random data, outputs poisoned first. Sizes are small and
// odd on purpose; the points use the same kernels.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "calibrate/harness/session.h"
#include "calibrate/kernels/reference.h"

namespace trifold::calibrate {
namespace {

using kernels::Element;
using kernels::reference::Values;

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x = 0;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}

// ||got - expected|| <= bound ||expected||, and no NaN (a poisoned element is one).
bool near(const Values& got, const Values& expected, double bound) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return got.size() == expected.size() && std::isfinite(error) &&
         std::sqrt(error) <= bound * std::sqrt(norm);
}

constexpr double kBf16 = 4e-3;  // rounding of one bf16 store is at most 2^-9 = 2e-3
constexpr double kF32 = 1e-5;
constexpr double kFast = 1e-4;  // __expf and rsqrtf

class Checks {
 public:
  explicit Checks(Rank& rank) : rank_(rank), d_(rank.device) {}

  Result<void> all() {
    for (auto check : {&Checks::router, &Checks::map, &Checks::permutation, &Checks::activations,
                       &Checks::norm, &Checks::rotation, &Checks::quantise, &Checks::optimizer,
                       &Checks::loss, &Checks::copies, &Checks::bias_update}) {
      d_.arena.reset();
      TRIFOLD_TRY((this->*check)());
    }
    return {};
  }

 private:
  struct Buffer {
    void* p = nullptr;
    std::size_t count = 0;
    Element type = Element::f32;
    template <class T = void>
    T* as() const {
      return static_cast<T*>(p);
    }
  };

  Result<Buffer> random(Element type, std::size_t count, float scale = 1) {
    TRIFOLD_ASSIGN(p, d_.arena.take(count * kernels::element_size(type)));
    CUDA_TRY(kernels::fill_normal(p, type, count, scale, d_.seed(), d_.stream));
    return Buffer{p, count, type};
  }
  Result<Buffer> poisoned(Element type, std::size_t count) {
    const std::size_t bytes = count * kernels::element_size(type);
    TRIFOLD_ASSIGN(p, d_.arena.take(bytes));
    CUDA_TRY(cudaMemsetAsync(p, 0xff, bytes, d_.stream));
    return Buffer{p, count, type};
  }
  Result<Values> values(const Buffer& b) {
    CUDA_TRY(cudaStreamSynchronize(d_.stream));
    Values out(b.count);
    if (b.type == Element::bf16) {
      TRIFOLD_ASSIGN(raw, to_host<std::uint16_t>(b.p, b.count));
      std::transform(raw.begin(), raw.end(), out.begin(), from_bf16);
    } else if (b.type == Element::e4m3) {
      TRIFOLD_ASSIGN(raw, to_host<std::uint8_t>(b.p, b.count));
      std::transform(raw.begin(), raw.end(), out.begin(), kernels::reference::e4m3_value);
    } else {
      TRIFOLD_ASSIGN(raw, to_host<float>(b.p, b.count));
      std::copy(raw.begin(), raw.end(), out.begin());
    }
    return out;
  }
  Result<std::vector<int>> integers(const Buffer& b) {
    CUDA_TRY(cudaStreamSynchronize(d_.stream));
    return to_host<int>(b.p, b.count);
  }
  void say(const std::string& name, bool right) {
    const auto known = rank_.kernel_ok.find(name);
    rank_.kernel_ok[name] = right && (known == rank_.kernel_ok.end() || known->second);
  }

  static constexpr int kTokens = 301;

  Result<void> router_case(bool sigmoid, bool biased, int experts, int k, int groups, int top) {
    kernels::RouterConfig c;
    c.tokens = kTokens, c.experts = experts, c.k = k, c.sigmoid = sigmoid;
    c.groups = groups, c.top_groups = top, c.scale = sigmoid ? 2.5f : 1.0f;
    const auto size = static_cast<std::size_t>(kTokens);
    TRIFOLD_ASSIGN(logits, random(Element::f32, size * static_cast<std::size_t>(experts)));
    TRIFOLD_ASSIGN(bias, random(Element::f32, static_cast<std::size_t>(experts), 0.05f));
    TRIFOLD_ASSIGN(chosen, poisoned(Element::i32, size * static_cast<std::size_t>(k)));
    TRIFOLD_ASSIGN(weights, poisoned(Element::f32, size * static_cast<std::size_t>(k)));
    CUDA_TRY(kernels::router_topk(c, logits.as<float>(), biased ? bias.as<float>() : nullptr,
                                  chosen.as<int>(), weights.as<float>(), d_.stream));
    TRIFOLD_ASSIGN(x, values(logits));
    TRIFOLD_ASSIGN(b, values(bias));
    TRIFOLD_ASSIGN(got, integers(chosen));
    TRIFOLD_ASSIGN(got_weights, values(weights));
    kernels::reference::Router r;
    r.experts = experts, r.k = k, r.groups = groups, r.top_groups = top;
    r.sigmoid = sigmoid, r.scale = c.scale;
    Values expected;
    int wrong = 0;
    for (int t = 0; t < kTokens; ++t) {
      const kernels::reference::Choice choice =
          kernels::reference::route(r, x.data() + t * experts, biased ? b.data() : nullptr);
      for (int j = 0; j < k; ++j)
        wrong +=
            got[static_cast<std::size_t>(t * k + j)] != choice.experts[static_cast<std::size_t>(j)];
      expected.insert(expected.end(), choice.probabilities.begin(), choice.probabilities.end());
    }
    // A tie within f32 rounding may swap two neighbours: at most one token in three hundred.
    say(sigmoid ? "router_sigmoid" : "router_softmax",
        wrong <= 2 && near(got_weights, expected, 1e-3));
    return {};
  }

  Result<void> router() {
    TRIFOLD_TRY(router_case(false, false, 128, 8, 1, 1));
    TRIFOLD_TRY(router_case(false, false, 8, 2, 1, 1));
    TRIFOLD_TRY(router_case(true, true, 256, 8, 8, 4));
    return router_case(true, false, 60, 4, 1, 1);
  }

  struct Map {
    Buffer chosen, counts, offsets, slots;
    std::vector<int> chosen_host, slots_host;
  };

  Result<Map> make_map(int tokens, int experts, int k) {
    Map m;
    const auto copies = static_cast<std::size_t>(tokens * k);
    Random random_experts(d_.seed());
    for (int t = 0; t < tokens; ++t) {
      // k distinct experts, skewed to the low ones.
      std::vector<int> picks;
      while (static_cast<int>(picks.size()) < k) {
        const double u = random_experts.uniform();
        const int e = std::min(experts - 1, static_cast<int>(u * u * experts));
        if (std::find(picks.begin(), picks.end(), e) == picks.end()) picks.push_back(e);
      }
      m.chosen_host.insert(m.chosen_host.end(), picks.begin(), picks.end());
    }
    TRIFOLD_ASSIGN(chosen, poisoned(Element::i32, copies));
    TRIFOLD_ASSIGN(counts, poisoned(Element::i32, static_cast<std::size_t>(experts)));
    TRIFOLD_ASSIGN(offsets, poisoned(Element::i32, static_cast<std::size_t>(experts) + 1));
    TRIFOLD_ASSIGN(slots, poisoned(Element::i32, copies));
    TRIFOLD_ASSIGN(work,
                   poisoned(Element::i32, kernels::permutation_workspace(tokens * k, experts)));
    CUDA_TRY(cudaMemcpyAsync(chosen.p, m.chosen_host.data(), copies * 4, cudaMemcpyHostToDevice,
                             d_.stream));
    CUDA_TRY(kernels::permutation_map(chosen.as<int>(), tokens * k, experts, counts.as<int>(),
                                      offsets.as<int>(), slots.as<int>(), work.as<int>(),
                                      d_.stream));
    m.chosen = chosen, m.counts = counts, m.offsets = offsets, m.slots = slots;
    TRIFOLD_ASSIGN(host, integers(slots));
    m.slots_host = host;
    return m;
  }

  Result<void> map_case(int tokens, int experts, int k) {
    TRIFOLD_ASSIGN(m, make_map(tokens, experts, k));
    TRIFOLD_ASSIGN(counts, integers(m.counts));
    TRIFOLD_ASSIGN(offsets, integers(m.offsets));
    std::vector<int> expected(static_cast<std::size_t>(experts));
    for (int e : m.chosen_host) ++expected[static_cast<std::size_t>(e)];
    bool right = counts == expected && offsets[0] == 0 &&
                 offsets[static_cast<std::size_t>(experts)] == tokens * k;
    std::vector<char> taken(m.slots_host.size());
    for (std::size_t i = 0; right && i < m.slots_host.size(); ++i) {
      const auto e = static_cast<std::size_t>(m.chosen_host[i]);
      const int slot = m.slots_host[i];
      right = slot >= offsets[e] && slot < offsets[e] + expected[e] &&
              taken[static_cast<std::size_t>(slot)]++ == 0;
    }
    say("permutation_map", right);
    return {};
  }

  Result<void> map() {
    TRIFOLD_TRY(map_case(301, 256, 8));
    TRIFOLD_TRY(map_case(5000, 8, 2));
    return map_case(1, 60, 4);
  }

  Result<void> permutation() {
    constexpr int kTop = 4, kExperts = 24, kHidden = 328;
    TRIFOLD_ASSIGN(m, make_map(kTokens, kExperts, kTop));
    const std::size_t size = std::size_t{kTokens} * kHidden, copies = std::size_t{kTokens} * kTop;
    TRIFOLD_ASSIGN(tokens, random(Element::bf16, size));
    TRIFOLD_ASSIGN(weights, random(Element::f32, copies));
    TRIFOLD_ASSIGN(rows, poisoned(Element::bf16, copies * kHidden));
    TRIFOLD_ASSIGN(row_weights, poisoned(Element::f32, copies));
    CUDA_TRY(kernels::permute(tokens.p, m.slots.as<int>(), nullptr, kTokens, kTop, kHidden, rows.p,
                              weights.as<float>(), row_weights.as<float>(), d_.stream));
    TRIFOLD_ASSIGN(x, values(tokens));
    TRIFOLD_ASSIGN(w, values(weights));
    TRIFOLD_ASSIGN(got, values(rows));
    TRIFOLD_ASSIGN(got_weights, values(row_weights));
    Values expected(got.size()), expected_weights(copies);
    for (std::size_t i = 0; i < copies; ++i) {
      const auto row = static_cast<std::size_t>(m.slots_host[i]);
      expected_weights[row] = w[i];
      for (std::size_t h = 0; h < kHidden; ++h)
        expected[row * kHidden + h] = x[i / kTop * kHidden + h];
    }
    say("permute", near(got, expected, 0) && near(got_weights, expected_weights, 0));
    return unpermutation(m, kTop, kHidden, w, weights);
  }

  Result<void> unpermutation(const Map& m, int k, int hidden, const Values& w,
                             const Buffer& weights) {
    const auto h = static_cast<std::size_t>(hidden), top = static_cast<std::size_t>(k);
    const std::size_t size = std::size_t{kTokens} * h, copies = std::size_t{kTokens} * top;
    TRIFOLD_ASSIGN(rows, random(Element::bf16, copies * h));
    TRIFOLD_ASSIGN(weighted, poisoned(Element::bf16, size));
    TRIFOLD_ASSIGN(plain, poisoned(Element::bf16, size));
    TRIFOLD_ASSIGN(gradient, random(Element::bf16, size));
    TRIFOLD_ASSIGN(row_gradient, poisoned(Element::bf16, copies * h));
    TRIFOLD_ASSIGN(weight_gradient, poisoned(Element::f32, copies));
    CUDA_TRY(kernels::unpermute(rows.p, m.slots.as<int>(), weights.as<float>(), kTokens, k, hidden,
                                weighted.p, d_.stream));
    CUDA_TRY(kernels::unpermute(rows.p, m.slots.as<int>(), nullptr, kTokens, k, hidden, plain.p,
                                d_.stream));
    CUDA_TRY(kernels::unpermute_backward(gradient.p, rows.p, m.slots.as<int>(), weights.as<float>(),
                                         kTokens, k, hidden, row_gradient.p,
                                         weight_gradient.as<float>(), d_.stream));
    TRIFOLD_ASSIGN(x, values(rows));
    TRIFOLD_ASSIGN(g, values(gradient));
    Values sum(size), weighted_sum(size), dx(copies * h), dw(copies);
    for (std::size_t i = 0; i < copies; ++i)
      for (std::size_t j = 0; j < h; ++j) {
        const std::size_t row = static_cast<std::size_t>(m.slots_host[i]) * h + j;
        const std::size_t token = i / top * h + j;
        sum[token] += x[row];
        weighted_sum[token] += x[row] * w[i];
        dx[row] = g[token] * w[i];
        dw[i] += g[token] * x[row];
      }
    TRIFOLD_ASSIGN(got_weighted, values(weighted));
    TRIFOLD_ASSIGN(got_plain, values(plain));
    TRIFOLD_ASSIGN(got_dx, values(row_gradient));
    TRIFOLD_ASSIGN(got_dw, values(weight_gradient));
    say("unpermute", near(got_weighted, weighted_sum, kBf16));
    say("unpermute_plain", near(got_plain, sum, kBf16));
    say("unpermute_backward", near(got_dx, dx, kBf16) && near(got_dw, dw, kFast));
    return {};
  }

  Result<void> activations() {
    constexpr int kRows = 77, kWidth = 360;
    const std::size_t size = std::size_t{kRows} * kWidth;
    TRIFOLD_ASSIGN(input, random(Element::bf16, 2 * size, 2));
    TRIFOLD_ASSIGN(gradient, random(Element::bf16, size));
    TRIFOLD_ASSIGN(weights, random(Element::f32, kRows));
    TRIFOLD_ASSIGN(x, values(input));
    TRIFOLD_ASSIGN(dy, values(gradient));
    TRIFOLD_ASSIGN(w, values(weights));
    for (const bool weighted : {false, true}) {
      TRIFOLD_ASSIGN(out, poisoned(Element::bf16, size));
      TRIFOLD_ASSIGN(dx, poisoned(Element::bf16, 2 * size));
      TRIFOLD_ASSIGN(dw, poisoned(Element::f32, kRows));
      const float* p = weighted ? weights.as<float>() : nullptr;
      CUDA_TRY(kernels::swiglu_forward(input.p, p, kRows, kWidth, out.p, d_.stream));
      CUDA_TRY(kernels::swiglu_backward(gradient.p, input.p, p, kRows, kWidth, dx.p, dw.as<float>(),
                                        d_.stream));
      Values y, gradient_x, gradient_w(kRows);
      for (std::size_t r = 0; r < kRows; ++r) {
        const double weight = weighted ? w[r] : 1;
        const double* row = x.data() + r * 2 * kWidth;
        const Values one = kernels::reference::swiglu(row, kWidth, weight);
        const Values back = kernels::reference::swiglu_gradient(dy.data() + r * kWidth, row, kWidth,
                                                                weight, gradient_w[r]);
        y.insert(y.end(), one.begin(), one.end());
        gradient_x.insert(gradient_x.end(), back.begin(), back.end());
      }
      TRIFOLD_ASSIGN(got_y, values(out));
      TRIFOLD_ASSIGN(got_dx, values(dx));
      const std::string name = weighted ? "swiglu_weighted" : "swiglu";
      say(name + "_forward", near(got_y, y, kBf16));
      bool right = near(got_dx, gradient_x, kBf16);
      if (weighted) {
        TRIFOLD_ASSIGN(got_dw, values(dw));
        right = right && near(got_dw, gradient_w, 10 * kFast);
      }
      say(name + "_backward", right);
    }
    return {};
  }

  Result<void> norm() {
    for (const int width : {4096, 7168, 264}) {
      constexpr int kRows = 33;
      const auto w = static_cast<std::size_t>(width);
      TRIFOLD_ASSIGN(input, random(Element::bf16, kRows * w, 3));
      TRIFOLD_ASSIGN(weight, random(Element::bf16, w));
      TRIFOLD_ASSIGN(out, poisoned(Element::bf16, kRows * w));
      TRIFOLD_ASSIGN(inverse, poisoned(Element::f32, kRows));
      CUDA_TRY(kernels::rmsnorm(input.p, weight.p, kRows, width, 1e-6f, out.p, inverse.as<float>(),
                                d_.stream));
      TRIFOLD_ASSIGN(x, values(input));
      TRIFOLD_ASSIGN(g, values(weight));
      TRIFOLD_ASSIGN(got, values(out));
      Values expected;
      for (std::size_t r = 0; r < kRows; ++r) {
        const Values row = kernels::reference::rmsnorm(x.data() + r * w, g.data(), width, 1e-6);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      say("rmsnorm", near(got, expected, kBf16));
    }
    return {};
  }

  Result<void> rotation() {
    constexpr int kHeads = 5, kDim = 64, kHalf = kDim / 2;
    const std::size_t size = std::size_t{kTokens} * kHeads * kDim;
    TRIFOLD_ASSIGN(x, random(Element::bf16, size));
    TRIFOLD_ASSIGN(cosines, random(Element::f32, std::size_t{kTokens} * kHalf));
    TRIFOLD_ASSIGN(sines, random(Element::f32, std::size_t{kTokens} * kHalf));
    TRIFOLD_ASSIGN(before, values(x));
    TRIFOLD_ASSIGN(c, values(cosines));
    TRIFOLD_ASSIGN(s, values(sines));
    CUDA_TRY(kernels::rope(x.p, cosines.as<float>(), sines.as<float>(), kTokens, kHeads, kDim,
                           d_.stream));
    TRIFOLD_ASSIGN(got, values(x));
    Values expected(size);
    for (std::size_t t = 0; t < kTokens; ++t)
      for (std::size_t h = 0; h < kHeads; ++h)
        for (std::size_t i = 0; i < kHalf; ++i) {
          const std::size_t low = (t * kHeads + h) * kDim + i, high = low + kHalf;
          const double cosine = c[t * kHalf + i], sine = s[t * kHalf + i];
          expected[low] = before[low] * cosine - before[high] * sine;
          expected[high] = before[high] * cosine + before[low] * sine;
        }
    say("rope", near(got, expected, kBf16));
    return {};
  }

  Result<void> quantise() {
    constexpr std::size_t kRows = 256, kColumns = 384;
    TRIFOLD_ASSIGN(input, random(Element::bf16, kRows * kColumns, 5));
    TRIFOLD_ASSIGN(q, poisoned(Element::e4m3, kRows * kColumns));
    TRIFOLD_ASSIGN(scales, poisoned(Element::f32, kRows * kColumns / 128));
    TRIFOLD_ASSIGN(qt, poisoned(Element::e4m3, kRows * kColumns));
    TRIFOLD_ASSIGN(scales_t, poisoned(Element::f32, kRows * kColumns / 128));
    CUDA_TRY(kernels::quantize_1x128(input.p, kRows, kColumns, q.p, scales.as<float>(), qt.p,
                                     scales_t.as<float>(), d_.stream));
    TRIFOLD_ASSIGN(x, values(input));
    TRIFOLD_ASSIGN(a, values(q));
    TRIFOLD_ASSIGN(s, values(scales));
    TRIFOLD_ASSIGN(b, values(qt));
    TRIFOLD_ASSIGN(st, values(scales_t));
    // Dequantised values are within half a step of e4m3: 2^-4 relative; and the greatest of a block
    // is exact.
    bool right = true, right_t = true;
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t c = 0; c < kColumns; ++c) {
        const double value = x[r * kColumns + c];
        const double scale = s[c / 128 * kRows + r], scale_t = st[r / 128 * kColumns + c];
        right =
            right && scale > 0 &&
            std::fabs(a[r * kColumns + c] * scale - value) <= std::fabs(value) / 16 + scale / 512;
        right_t =
            right_t && scale_t > 0 &&
            std::fabs(b[c * kRows + r] * scale_t - value) <= std::fabs(value) / 16 + scale_t / 512;
      }
    say("fp8_block", right);
    say("fp8_block_transpose", right && right_t);
    return {};
  }

  Result<void> optimizer() {
    constexpr std::size_t kCount = 4 * 1237;
    TRIFOLD_ASSIGN(master, random(Element::f32, kCount));
    TRIFOLD_ASSIGN(first, random(Element::f32, kCount, 0.1f));
    TRIFOLD_ASSIGN(second, poisoned(Element::f32, kCount));
    TRIFOLD_ASSIGN(gradient, random(Element::f32, kCount));
    TRIFOLD_ASSIGN(weight, poisoned(Element::bf16, kCount));
    CUDA_TRY(kernels::fill_uniform(second.as<float>(), kCount, 0.1f, 1.0f, d_.seed(), d_.stream));
    TRIFOLD_ASSIGN(w0, values(master));
    TRIFOLD_ASSIGN(m0, values(first));
    TRIFOLD_ASSIGN(v0, values(second));
    TRIFOLD_ASSIGN(g, values(gradient));
    kernels::AdamConfig c;
    c.correction1 = 0.271f, c.correction2 = 0.1426f;  // step 3
    CUDA_TRY(kernels::adam(c, master.as<float>(), first.as<float>(), second.as<float>(),
                           gradient.as<float>(), weight.p, kCount, d_.stream));
    Values w, m, v;
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto one =
          kernels::reference::adam({w0[i], m0[i], v0[i]}, g[i], c.rate, c.beta1, c.beta2, c.epsilon,
                                   c.decay, c.correction1, c.correction2);
      w.push_back(one.master), m.push_back(one.first), v.push_back(one.second);
    }
    TRIFOLD_ASSIGN(got_w, values(master));
    TRIFOLD_ASSIGN(got_m, values(first));
    TRIFOLD_ASSIGN(got_v, values(second));
    TRIFOLD_ASSIGN(got_b, values(weight));
    say("adam", near(got_w, w, kF32) && near(got_m, m, kF32) && near(got_v, v, kF32) &&
                    near(got_b, w, kBf16));
    return {};
  }

  Result<void> loss() {
    constexpr int kRows = 19, kVocabulary = 5002;
    TRIFOLD_ASSIGN(logits, random(Element::bf16, std::size_t{kRows} * kVocabulary, 4));
    TRIFOLD_ASSIGN(x, values(logits));
    std::vector<int> label;
    for (int r = 0; r < kRows; ++r) label.push_back(r * 263 % kVocabulary);
    TRIFOLD_ASSIGN(labels, poisoned(Element::i32, kRows));
    TRIFOLD_ASSIGN(losses, poisoned(Element::f32, kRows));
    CUDA_TRY(cudaMemcpyAsync(labels.p, label.data(), kRows * 4, cudaMemcpyHostToDevice, d_.stream));
    CUDA_TRY(kernels::cross_entropy(logits.p, labels.as<int>(), kRows, kVocabulary, 0.5f,
                                    losses.as<float>(), d_.stream));
    Values expected, expected_loss;
    for (int r = 0; r < kRows; ++r) {
      Values row(x.begin() + r * kVocabulary, x.begin() + (r + 1) * kVocabulary);
      expected_loss.push_back(
          kernels::reference::cross_entropy(row, label[static_cast<std::size_t>(r)], 0.5));
      expected.insert(expected.end(), row.begin(), row.end());
    }
    TRIFOLD_ASSIGN(got, values(logits));
    TRIFOLD_ASSIGN(got_loss, values(losses));
    say("cross_entropy", near(got, expected, kBf16) && near(got_loss, expected_loss, kFast));
    return {};
  }

  Result<void> copies() {
    for (const int blocks : {0, 3}) {
      const std::size_t count = 8 * 12345;
      TRIFOLD_ASSIGN(from, random(Element::bf16, count));
      TRIFOLD_ASSIGN(to, poisoned(Element::bf16, count));
      CUDA_TRY(kernels::copy_blocks(from.p, to.p, count * 2, blocks, d_.stream));
      TRIFOLD_ASSIGN(x, values(from));
      TRIFOLD_ASSIGN(y, values(to));
      say(blocks == 0 ? "copy" : "copy_sms", near(y, x, 0));
    }
    return {};
  }

  Result<void> bias_update() {
    const std::vector<int> count = {10, 2, 6, 6, 0, 12};  // mean 6
    TRIFOLD_ASSIGN(counts, poisoned(Element::i32, count.size()));
    TRIFOLD_ASSIGN(bias, random(Element::f32, count.size()));
    TRIFOLD_ASSIGN(expected, values(bias));
    CUDA_TRY(cudaMemcpyAsync(counts.p, count.data(), count.size() * 4, cudaMemcpyHostToDevice,
                             d_.stream));
    CUDA_TRY(kernels::update_expert_bias(counts.as<int>(), 6, 0.25f, bias.as<float>(), d_.stream));
    TRIFOLD_ASSIGN(got, values(bias));
    const double move[] = {-0.25, 0.25, 0, 0, 0.25, -0.25};
    for (std::size_t i = 0; i < count.size(); ++i) expected[i] += move[i];
    say("expert_bias", near(got, expected, kF32));
    return {};
  }

  Rank& rank_;
  Device& d_;
};

}  // namespace

Result<Summary> check_kernels(Rank& rank) {
  Checks checks(rank);
  TRIFOLD_TRY(checks.all());
  Summary summary;
  for (const auto& [name, right] : rank.kernel_ok) {
    if (right) continue;
    ++summary.bad;
    summary.lines.push_back("kernel " + name + " disagrees with its float64 reference");
  }
  summary.lines.push_back(std::to_string(rank.kernel_ok.size()) + " kernels checked, " +
                          std::to_string(summary.bad) + " wrong");
  return summary;
}

}  // namespace trifold::calibrate

// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "calibrate/harness/attention.h"
#include "calibrate/harness/session.h"

namespace trifold::calibrate {
namespace {

using hardware::Dtype;

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x = 0;
  std::memcpy(&x, &wide, sizeof(x));
  return x;
}

struct HostSide {
  std::vector<std::uint16_t> q, k, v, o;
};

// One query row in float64: o = softmax(q K^T / sqrt(d)) V over keys 0 .. row.
std::vector<double> reference_row(const AttentionShape& s, const HostSide& h, std::int64_t batch,
                                  std::int64_t head, std::int64_t row, double& log_sum) {
  const std::int64_t kv = head / (s.heads / s.kv_heads);
  std::vector<double> score(static_cast<std::size_t>(row + 1));
  double top = -INFINITY;
  for (std::int64_t j = 0; j <= row; ++j) {
    double dot = 0;
    for (std::int64_t i = 0; i < s.qk_dim; ++i)
      dot += static_cast<double>(from_bf16(h.q[static_cast<std::size_t>(
                 ((batch * s.sequence + row) * s.heads + head) * s.qk_dim + i)])) *
             from_bf16(h.k[static_cast<std::size_t>(
                 ((batch * s.sequence + j) * s.kv_heads + kv) * s.qk_dim + i)]);
    score[static_cast<std::size_t>(j)] = dot / std::sqrt(static_cast<double>(s.qk_dim));
    top = std::max(top, score[static_cast<std::size_t>(j)]);
  }
  double sum = 0;
  for (double& x : score) sum += x = std::exp(x - top);
  log_sum = top + std::log(sum);
  std::vector<double> out(static_cast<std::size_t>(s.v_dim));
  for (std::int64_t j = 0; j <= row; ++j)
    for (std::int64_t i = 0; i < s.v_dim; ++i)
      out[static_cast<std::size_t>(i)] +=
          score[static_cast<std::size_t>(j)] / sum *
          from_bf16(h.v[static_cast<std::size_t>(
              ((batch * s.sequence + j) * s.kv_heads + kv) * s.v_dim + i)]);
  return out;
}

Result<bool> check_forward(const AttentionShape& s, const AttentionBuffers& b) {
  const auto rows = static_cast<std::size_t>(s.batch * s.sequence);
  HostSide h;
  TRIFOLD_ASSIGN(q,
                 to_host<std::uint16_t>(b.q, rows * static_cast<std::size_t>(s.heads * s.qk_dim)));
  TRIFOLD_ASSIGN(
      k, to_host<std::uint16_t>(b.k, rows * static_cast<std::size_t>(s.kv_heads * s.qk_dim)));
  TRIFOLD_ASSIGN(
      v, to_host<std::uint16_t>(b.v, rows * static_cast<std::size_t>(s.kv_heads * s.v_dim)));
  TRIFOLD_ASSIGN(o,
                 to_host<std::uint16_t>(b.o, rows * static_cast<std::size_t>(s.heads * s.v_dim)));
  TRIFOLD_ASSIGN(stats, to_host<float>(b.stats, rows * static_cast<std::size_t>(s.heads)));
  h.q = std::move(q), h.k = std::move(k), h.v = std::move(v);
  double error = 0, norm = 0;
  for (const std::int64_t row : {std::int64_t{0}, s.sequence / 3, s.sequence - 1}) {
    const std::int64_t head = row % s.heads, batch = s.batch - 1;
    double log_sum = 0;
    const std::vector<double> expected = reference_row(s, h, batch, head, row, log_sum);
    for (std::int64_t i = 0; i < s.v_dim; ++i) {
      const double got = from_bf16(
          o[static_cast<std::size_t>(((batch * s.sequence + row) * s.heads + head) * s.v_dim + i)]);
      error += (got - expected[static_cast<std::size_t>(i)]) *
               (got - expected[static_cast<std::size_t>(i)]);
      norm += expected[static_cast<std::size_t>(i)] * expected[static_cast<std::size_t>(i)];
    }
    const double stat =
        stats[static_cast<std::size_t>((batch * s.heads + head) * s.sequence + row)];
    if (!(std::fabs(stat - log_sum) <= 2e-2 * std::max(1.0, std::fabs(log_sum)))) return false;
  }
  return std::isfinite(error) && std::sqrt(error) <= 1.5e-2 * std::sqrt(norm);
}

// Identities of the backward pass: <dQ, Q> = <dK, K> (both are <dS, S>) and <dV, V> = <dO, O>.
Result<bool> check_backward(const AttentionShape& s, const AttentionBuffers& b) {
  const auto rows = static_cast<std::size_t>(s.batch * s.sequence);
  const std::size_t nq = rows * static_cast<std::size_t>(s.heads * s.qk_dim);
  const std::size_t nk = rows * static_cast<std::size_t>(s.kv_heads * s.qk_dim);
  const std::size_t nv = rows * static_cast<std::size_t>(s.kv_heads * s.v_dim);
  const std::size_t no = rows * static_cast<std::size_t>(s.heads * s.v_dim);
  TRIFOLD_ASSIGN(q, to_host<std::uint16_t>(b.q, nq));
  TRIFOLD_ASSIGN(dq, to_host<std::uint16_t>(b.dq, nq));
  TRIFOLD_ASSIGN(k, to_host<std::uint16_t>(b.k, nk));
  TRIFOLD_ASSIGN(dk, to_host<std::uint16_t>(b.dk, nk));
  TRIFOLD_ASSIGN(v, to_host<std::uint16_t>(b.v, nv));
  TRIFOLD_ASSIGN(dv, to_host<std::uint16_t>(b.dv, nv));
  TRIFOLD_ASSIGN(o, to_host<std::uint16_t>(b.o, no));
  TRIFOLD_ASSIGN(d_o, to_host<std::uint16_t>(b.d_o, no));
  auto dot = [](const std::vector<std::uint16_t>& x, const std::vector<std::uint16_t>& y,
                double& size) {
    double sum = 0, xx = 0, yy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double a = from_bf16(x[i]), c = from_bf16(y[i]);
      sum += a * c, xx += a * a, yy += c * c;
    }
    size = std::sqrt(xx * yy);
    return sum;
  };
  double size_q = 0, size_k = 0, size_v = 0, size_o = 0;
  const double qq = dot(q, dq, size_q), kk = dot(k, dk, size_k);
  const double vv = dot(v, dv, size_v), oo = dot(o, d_o, size_o);  // <dV, V> = <dO, O>
  const bool finite = std::isfinite(qq) && std::isfinite(kk) && std::isfinite(vv);
  return finite && size_q > 0 && size_k > 0 && std::fabs(qq - kk) <= 2e-3 * (size_q + size_k) &&
         std::fabs(vv - oo) <= 2e-3 * (size_v + size_o);
}

// The same heads at 256 keys: once a head shape, since references of long sequences take seconds.
Result<bool> check_heads(Rank& rank, const AttentionShape& shape) {
  const std::string key =
      "attention_" + std::to_string(shape.qk_dim) + "_" + std::to_string(shape.v_dim) + "_" +
      std::to_string(shape.heads / shape.kv_heads) + "_" + std::to_string(shape.backward);
  const auto known = rank.kernel_ok.find(key);
  if (known != rank.kernel_ok.end()) return known->second;
  AttentionShape small = shape;
  small.batch = 2;
  small.sequence = 256;
  small.kv_heads = std::min<std::int64_t>(shape.kv_heads, 2);
  small.heads = small.kv_heads * (shape.heads / shape.kv_heads);
  Device& d = rank.device;
  TRIFOLD_ASSIGN(buffers, take_attention(d, small));
  AttentionShape forward = small;
  forward.backward = false;
  TRIFOLD_ASSIGN(first, Attention::make(d, forward));
  TRIFOLD_TRY(first.run(buffers, d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  TRIFOLD_ASSIGN(right, check_forward(small, buffers));
  bool fine = right;
  if (shape.backward) {
    TRIFOLD_ASSIGN(second, Attention::make(d, small));
    TRIFOLD_TRY(second.run(buffers, d.stream));
    CUDA_TRY(cudaStreamSynchronize(d.stream));
    TRIFOLD_ASSIGN(back, check_backward(small, buffers));
    fine = fine && back;
  }
  rank.kernel_ok[key] = fine;
  return fine;
}

Result<std::vector<Point>> run_attention(Rank& rank, Point asked, const AttentionShape& shape) {
  Device& d = rank.device;
  TRIFOLD_ASSIGN(right, check_heads(rank, shape));
  if (!right) asked.flags.insert(PointFlag::bad);
  std::vector<AttentionBuffers> sets;
  const int count = std::min(rotating_sets(d, attention_bytes(shape)), 6);
  for (int i = 0; i < count; ++i) {
    TRIFOLD_ASSIGN(buffers, take_attention(d, shape));
    sets.push_back(buffers);
  }
  AttentionShape forward = shape;
  forward.backward = false;
  TRIFOLD_ASSIGN(first, Attention::make(d, forward));
  for (const AttentionBuffers& b : sets) TRIFOLD_TRY(first.run(b, d.stream));
  CUDA_TRY(cudaStreamSynchronize(d.stream));
  TRIFOLD_ASSIGN(operation,
                 shape.backward ? Attention::make(d, shape) : Result<Attention>(std::move(first)));
  asked.flags.insert(PointFlag::burst);
  SampleRule rule;
  rule.budget_ms = 50;
  rule.warm_ms = 25;
  TRIFOLD_ASSIGN(m, measure(d, rule, [&](int i, cudaStream_t s) {
                   return operation.run(sets[static_cast<std::size_t>(i) % sets.size()], s);
                 }));
  return std::vector<Point>{answer(std::move(asked), m)};
}

struct Heads {
  std::int64_t heads, kv_heads, qk_dim, v_dim;
  int priority;
};
// MLA (DeepSeek-V3) whole and cut over TP, GQA of Qwen3-235B, Mixtral and Llama, and plain heads.
constexpr Heads kHeads[] = {{128, 128, 192, 128, 0}, {32, 32, 192, 128, 1}, {64, 4, 128, 128, 0},
                            {32, 8, 128, 128, 1},    {8, 1, 128, 128, 1},   {32, 32, 128, 128, 1},
                            {32, 32, 64, 64, 1},     {16, 16, 256, 256, 1}};

}  // namespace

void add_attention_jobs(std::vector<Job>& jobs, std::vector<std::string>& notes) {
  if (!attention_built()) {
    notes.push_back("attention: built without cuDNN");
    return;
  }
  for (const Heads& h : kHeads)
    for (const std::int64_t sequence : {512, 1024, 2048, 4096, 8192, 16384})
      for (const bool backward : {false, true}) {
        AttentionShape s;
        s.heads = h.heads;
        s.kv_heads = h.kv_heads;
        s.qk_dim = h.qk_dim;
        s.v_dim = h.v_dim;
        s.sequence = sequence;
        s.batch = std::max<std::int64_t>(1, 4096 / sequence);
        s.backward = backward;
        Job job;
        job.question = question(
            PointFamily::attention, backward ? "backward" : "forward",
            h.heads == h.kv_heads ? "cudnn" : "cudnn_kv" + std::to_string(h.kv_heads), Dtype::bf16,
            {static_cast<double>(sequence), static_cast<double>(h.qk_dim),
             static_cast<double>(h.heads * s.batch), static_cast<double>(h.v_dim)});
        job.priority = h.priority == 0 && (sequence == 4096 || sequence == 8192) ? 0 : 1;
        job.run = [s, asked = job.question](Rank& rank) { return run_attention(rank, asked, s); };
        jobs.push_back(std::move(job));
      }
}

}  // namespace trifold::calibrate

// SPDX-License-Identifier: Apache-2.0
// The lab: four small experiments of a minute together, each with a sentence on what it shows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/random.h"
#include "calibrate/harness/grouped.h"
#include "calibrate/harness/session.h"
#include "calibrate/kernels/reference.h"

namespace trifold::calibrate {
namespace {

using kernels::Element;

template <class... T>
std::string text(const char* format, T... values) {
  char line[400];
  std::snprintf(line, sizeof(line), format, values...);
  return line;
}

Result<double> grouped_us(Rank& rank, Backend backend, int experts, std::int64_t rows) {
  Device& d = rank.device;
  d.arena.reset();
  GroupedShape s;
  s.backend = backend;
  s.rows = balanced_rows(rows * experts, experts);
  s.n = 3072;
  s.k = 4096;
  TRIFOLD_ASSIGN(buffers, take_grouped(d, s));
  TRIFOLD_TRY(fill_grouped(d, s, buffers));
  TRIFOLD_ASSIGN(gemm, GroupedGemm::make(d, s, buffers));
  SampleRule rule;
  rule.spin = false;  // the host's launches count: that is the lesson
  TRIFOLD_ASSIGN(
      m, measure(d, rule, [&](int, cudaStream_t stream) { return gemm.run(d, buffers, stream); }));
  return m.us;
}

// One by one against grouped, at few and at many rows an expert.
Result<void> many_experts(Rank& rank, Summary& out) {
  out.lines.push_back("1. Many experts' GEMMs: one by one, over four streams, as one grouped call");
  for (const std::int64_t rows : {16, 128, 1024}) {
    TRIFOLD_ASSIGN(loop, grouped_us(rank, Backend::loop, 64, rows));
    TRIFOLD_ASSIGN(streams, grouped_us(rank, Backend::streams, 64, rows));
    TRIFOLD_ASSIGN(grouped, grouped_us(rank, Backend::grouped, 64, rows));
    const double flops = 2.0 * 64 * static_cast<double>(rows) * 3072 * 4096 / 1e6;
    const char* best = loop <= streams && loop <= grouped ? "the loop"
                       : streams <= grouped               ? "four streams"
                                                          : "the grouped call";
    out.lines.push_back(
        text("   64 experts x %4lld rows: loop %7.0f us (%3.0f TFLOP/s), streams "
             "%7.0f us (%3.0f), grouped %7.0f us (%3.0f): %s wins",
             static_cast<long long>(rows), loop, flops / loop, streams, flops / streams, grouped,
             flops / grouped, best));
  }
  out.lines.push_back(
      "   Small experts read each weight for few rows, so bytes and launches decide; large ones "
      "reach the matrix units, and there the back end decides.");
  return {};
}

Result<double> one_kernel_us(Rank& rank, const std::function<cudaError_t(cudaStream_t)>& launch) {
  SampleRule rule;
  TRIFOLD_ASSIGN(m, measure(rank.device, rule, [&](int, cudaStream_t s) -> Result<void> {
                   CUDA_TRY(launch(s));
                   return {};
                 }));
  return m.us;
}

Result<void> permutation_cost(Rank& rank, Summary& out) {
  Device& d = rank.device;
  d.arena.reset();
  constexpr int kTokens = 8192, kTop = 8, kHidden = 7168, kWidth = 2048;
  const std::size_t copies = std::size_t{kTokens} * kTop;
  TRIFOLD_ASSIGN(tokens, d.arena.take(std::size_t{kTokens} * kHidden * 2));
  TRIFOLD_ASSIGN(rows, d.arena.take(copies * kHidden * 2));
  TRIFOLD_ASSIGN(slots, d.arena.take_array<int>(copies));
  TRIFOLD_ASSIGN(weights, d.arena.take_array<float>(copies));
  TRIFOLD_ASSIGN(row_weights, d.arena.take_array<float>(copies));
  CUDA_TRY(kernels::fill_normal(tokens, Element::bf16, std::size_t{kTokens} * kHidden, 1, d.seed(),
                                d.stream));
  CUDA_TRY(kernels::fill_uniform(weights, copies, 0, 1, d.seed(), d.stream));
  std::vector<int> order(copies);
  std::iota(order.begin(), order.end(), 0);
  Random random(d.seed());
  for (std::size_t i = copies; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  CUDA_TRY(cudaMemcpy(slots, order.data(), copies * 4, cudaMemcpyHostToDevice));
  TRIFOLD_ASSIGN(there, one_kernel_us(rank, [&](cudaStream_t s) {
                   return kernels::permute(tokens, slots, nullptr, kTokens, kTop, kHidden, rows,
                                           weights, row_weights, s);
                 }));
  TRIFOLD_ASSIGN(back, one_kernel_us(rank, [&](cudaStream_t s) {
                   return kernels::unpermute(rows, slots, weights, kTokens, kTop, kHidden, tokens,
                                             s);
                 }));
  const double mb = static_cast<double>(copies) * kHidden * 2 / 1e6;
  const double small = static_cast<double>(copies) * kWidth * 2 / 1e6;
  out.lines.push_back("2. What permutation keeps (8192 tokens, top 8, hidden 7168, bf16)");
  out.lines.push_back(
      text("   permuted tokens %4.0f MB, written in %4.0f us; weighted sum back in "
           "%4.0f us",
           mb, there, back));
  out.lines.push_back(
      text("   Scaling by the router's weight after the second linear keeps its "
           "%.0f MB output for the backward pass; scaling before it needs only the "
           "activation, %.0f MB.",
           mb, small));
  return {};
}

Result<void> launches(Rank& rank, Summary& out) {
  Device& d = rank.device;
  constexpr int kKernels = 60;  // about one MoE layer's forward
  const auto enqueue = [&]() -> Result<void> {
    for (int i = 0; i < kKernels; ++i) CUDA_TRY(kernels::nothing(d.stream));
    return {};
  };
  TRIFOLD_ASSIGN(graph, Graph::capture(d.stream, enqueue));
  SampleRule rule;
  rule.spin = false;
  TRIFOLD_ASSIGN(eager, measure(d, rule, [&](int, cudaStream_t) { return enqueue(); }));
  TRIFOLD_ASSIGN(captured, measure(d, rule, [&](int, cudaStream_t s) { return graph.launch(s); }));
  out.lines.push_back("3. Sixty empty kernels, launched one by one and as one CUDA graph");
  out.lines.push_back(text("   %.0f us against %.0f us: %.1f us a kernel against %.1f us", eager.us,
                           captured.us, eager.us / kKernels, captured.us / kKernels));
  out.lines.push_back(
      "   A layer whose kernels last less than the first number waits for the host; a graph moves "
      "that wait to the second.");
  return {};
}

double imbalance(const std::vector<int>& counts) {
  const double mean =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  return *std::max_element(counts.begin(), counts.end()) / mean;
}

// Loss-free balancing: a bias an expert that moves the choice and never the weights.
Result<void> balancing(Rank& rank, Summary& out) {
  Device& d = rank.device;
  d.arena.reset();
  constexpr int kTokens = 8192, kExperts = 64, kTop = 6;
  const std::size_t copies = std::size_t{kTokens} * kTop;
  TRIFOLD_ASSIGN(logits, d.arena.take_array<float>(std::size_t{kTokens} * kExperts));
  TRIFOLD_ASSIGN(bias, d.arena.take_array<float>(kExperts));
  TRIFOLD_ASSIGN(chosen, d.arena.take_array<int>(copies));
  TRIFOLD_ASSIGN(weights, d.arena.take_array<float>(copies));
  TRIFOLD_ASSIGN(counts, d.arena.take_array<int>(kExperts));
  TRIFOLD_ASSIGN(offsets, d.arena.take_array<int>(kExperts + 1));
  TRIFOLD_ASSIGN(slots, d.arena.take_array<int>(copies));
  TRIFOLD_ASSIGN(work, d.arena.take_array<int>(
                           kernels::permutation_workspace(static_cast<int>(copies), kExperts)));
  CUDA_TRY(cudaMemsetAsync(bias, 0, kExperts * 4, d.stream));
  kernels::RouterConfig c;
  c.tokens = kTokens, c.experts = kExperts, c.k = kTop, c.sigmoid = true;
  // Preferences that a router can fall into: the popular expert's logit 2 above the mean.
  std::vector<float> host(std::size_t{kTokens} * kExperts);
  out.lines.push_back("4. Auxiliary-loss-free balancing (64 experts, top 6, a skewed router)");
  std::string path;
  for (int step = 0; step <= 300; ++step) {
    Random random(1000 + static_cast<std::uint64_t>(step));
    if (step % 20 == 0)
      for (std::size_t i = 0; i < host.size(); ++i)
        host[i] = static_cast<float>(random.normal() +
                                     2.0 * std::exp(-static_cast<double>(i % kExperts) / 8));
    CUDA_TRY(
        cudaMemcpyAsync(logits, host.data(), host.size() * 4, cudaMemcpyHostToDevice, d.stream));
    CUDA_TRY(kernels::router_topk(c, logits, bias, chosen, weights, d.stream));
    CUDA_TRY(kernels::permutation_map(chosen, static_cast<int>(copies), kExperts, counts, offsets,
                                      slots, work, d.stream));
    if (step % 60 == 0) {
      CUDA_TRY(cudaStreamSynchronize(d.stream));
      TRIFOLD_ASSIGN(load, to_host<int>(counts, kExperts));
      path += text("%s%d: %.2f", step == 0 ? "" : ", ", step, imbalance(load));
    }
    CUDA_TRY(kernels::update_expert_bias(counts, kExperts, 2e-3f, bias, d.stream));
    CUDA_TRY(cudaStreamSynchronize(d.stream));
  }
  out.lines.push_back("   busiest over mean by step  " + path);
  out.lines.push_back(
      "   The busiest expert sets the time of the experts' GEMMs and of the all-to-all, so this "
      "ratio multiplies both; the bias brings it down without a loss term.");
  return {};
}

}  // namespace

Result<Summary> run_lab(Rank& rank) {
  Summary summary;
  for (const auto experiment : {many_experts, permutation_cost, launches, balancing}) {
    Result<void> done = experiment(rank, summary);
    if (done) continue;
    if (!is_skip(done.error())) return std::move(done).error();
    summary.skipped.push_back("lab: " + done.error().message);
  }
  return summary;
}

}  // namespace trifold::calibrate

// SPDX-License-Identifier: Apache-2.0
// The layer test: whole MoE layers at DeepSeek-V3, Qwen3-235B and Mixtral shapes, EP 1 and all
// ranks, forward, backward, one after the other, and one micro-batch's forward over another's
// backward on two streams; launched kernel by kernel and as CUDA graphs. One JSON line a case
// (`trifold.layer_test/1`), with the steps' own times where they run one after the other.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "calibrate/harness/journal.h"
#include "calibrate/harness/progress.h"
#include "calibrate/layer/moe_layer.h"

namespace trifold::calibrate {
namespace {

std::vector<LayerShape> layer_shapes(int tokens) {
  LayerShape deepseek{"deepseek-v3", 7168, 2048, 256, 8, true, tokens};
  LayerShape qwen{"qwen3-235b-a22b", 4096, 1536, 128, 8, false, tokens};
  LayerShape mixtral{"mixtral-8x7b", 4096, 14336, 8, 2, false, tokens};
  return {mixtral, qwen, deepseek};
}

struct Case {
  LayerShape shape;
  int ep = 1;
  Backend backend = Backend::streams;  // what training stacks run, and what the profile fits
};

enum class Pass { forward, backward, both, overlapped };
constexpr const char* kPassNames[] = {"forward", "backward", "forward_then_backward",
                                      "forward_over_backward"};

// Two micro-batches over one set of weights.
struct Pair {
  MoeLayer first, second;
};

// `main` runs on the device's stream with workspace 0, the other on the second with workspace 1.
Result<void> enqueue(Device& d, Pair& pair, Pass pass, cudaStream_t s) {
  switch (pass) {
    case Pass::forward:
      return pair.first.forward(s, 0);
    case Pass::backward:
      return pair.first.backward(s, 0);
    case Pass::both:
      TRIFOLD_TRY(pair.first.forward(s, 0));
      return pair.second.backward(s, 0);
    case Pass::overlapped:
      CUDA_TRY(cudaEventRecord(d.fork, s));
      CUDA_TRY(cudaStreamWaitEvent(d.second, d.fork, 0));
      TRIFOLD_TRY(pair.first.forward(s, 0));
      TRIFOLD_TRY(pair.second.backward(d.second, 1));
      CUDA_TRY(cudaEventRecord(d.joins[0], d.second));
      CUDA_TRY(cudaStreamWaitEvent(s, d.joins[0], 0));
      return {};
  }
  return {};
}

SampleRule layer_rule() {
  SampleRule rule;
  rule.min_samples = 7;
  rule.max_samples = 15;
  rule.budget_ms = 500;
  rule.warm_ms = 200;
  rule.max_inner = 1;
  return rule;
}

// Microseconds of each step, medians over rounds (events between the steps cost about 1 us each).
Result<std::vector<double>> step_times(Device& d, MoeLayer& layer, bool forward, const Team& team) {
  constexpr int kRounds = 9;
  std::vector<cudaEvent_t> events(kStepCount + 1);
  for (cudaEvent_t& event : events) CUDA_TRY(cudaEventCreate(&event));
  std::vector<std::vector<double>> us(kStepCount);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Step> order;
    if (team.align) TRIFOLD_TRY(team.control->barrier());
    CUDA_TRY(kernels::spin(20000, d.stream));
    if (team.align) TRIFOLD_TRY(team.align(d.stream));
    CUDA_TRY(cudaEventRecord(events[0], d.stream));
    const MoeLayer::Between between = [&](Step step) -> Result<void> {
      order.push_back(step);
      CUDA_TRY(cudaEventRecord(events[order.size()], d.stream));
      return {};
    };
    TRIFOLD_TRY(forward ? layer.forward(d.stream, 0, between)
                        : layer.backward(d.stream, 0, between));
    TRIFOLD_TRY(wait_for(d.stream, 60, team.stopped()));
    for (std::size_t i = 0; i < order.size(); ++i) {
      float ms = 0;
      CUDA_TRY(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
      TRIFOLD_ASSIGN(slowest, team.max(static_cast<double>(ms) * 1000));
      if (round > 1) us[static_cast<std::size_t>(order[i])].push_back(slowest);
    }
  }
  for (cudaEvent_t event : events) (void)cudaEventDestroy(event);
  std::vector<double> medians;
  for (const std::vector<double>& samples : us)
    medians.push_back(samples.empty() ? 0 : percentile(samples, 0.5));
  return medians;
}

Json line_of(const Case& c, const Pair& pair, Pass pass, bool graph, const Measurement& m,
             const std::vector<double>& steps) {
  Json j;
  j["schema"] = "trifold.layer_test/1";
  j["model"] = c.shape.model;
  j["hidden"] = c.shape.hidden;
  j["expert_width"] = c.shape.width;
  j["experts"] = c.shape.experts;
  j["top_k"] = c.shape.k;
  j["tokens"] = c.shape.tokens;
  j["ep"] = c.ep;
  j["pass"] = kPassNames[static_cast<int>(pass)];
  j["grouped_gemm"] = backend_name(c.backend);
  j["cuda_graph"] = graph;
  j["rows"] = pair.first.rows();
  j["busiest_expert_rows"] = pair.first.busiest_expert();
  j["us"] = round_significant(m.us, 6);
  j["us_p10"] = round_significant(m.us_p10, 6);
  j["us_p90"] = round_significant(m.us_p90, 6);
  j["samples"] = m.samples;
  j["enqueue_us"] = round_significant(m.enqueue_us, 4);
  if (m.clock_mhz > 0) j["clock_mhz"] = m.clock_mhz;
  if (m.throttled) j["throttled"] = true;
  for (int i = 0; i < static_cast<int>(steps.size()); ++i)
    if (steps[static_cast<std::size_t>(i)] > 0)
      j["steps_us"][kSteps[i]] = round_significant(steps[static_cast<std::size_t>(i)], 5);
  return j;
}

class LayerTest {
 public:
  LayerTest(Rank& rank, Summary& summary) : rank_(rank), d_(rank.device), summary_(summary) {}

  Result<void> run() {
    TRIFOLD_TRY(headline());
    const int world = rank_.control.world();
    TRIFOLD_TRY(check(1));
    if (world > 1) TRIFOLD_TRY(check(world));
    Progress progress(rank_.options->progress && rank_.lead(), 6);
    for (const LayerShape& shape : layer_shapes(rank_.options->layer_tokens))
      for (const int ep : {1, world}) {
        progress.step(shape.model + " ep " + std::to_string(ep));
        TRIFOLD_TRY(guarded(Case{shape, ep}));
        if (world == 1) break;
      }
    return rank_.control.barrier();
  }

 private:
  // EP 1 is one rank's affair; the others wait at the next collective case.
  bool takes_part(int ep) const { return ep > 1 || rank_.lead(); }
  Team team(int ep) { return ep > 1 ? rank_.team() : rank_.alone(); }

  Result<void> headline() {
    if (!rank_.lead() || rank_.options->output.empty()) return {};
    Json j;
    j["schema"] = "trifold.layer_test/1";
    j["gpu"] = d_.name;
    j["driver"] = d_.driver;
    j["cuda"] = d_.cuda;
    j["cublas"] = d_.cublas;
    j["nccl"] = d_.nccl;
    j["gpus"] = rank_.control.world();
    j["commit"] = rank_.options->commit;
    return append_line(rank_.options->output, j.dump());
  }

  Result<void> check(int ep) {
    if (!takes_part(ep)) return {};
    d_.arena.reset();
    const LayerShape small{"small", 256, 128, 16, 4, false, 301};
    TRIFOLD_ASSIGN(weights, take_weights(d_, small, ep));
    TRIFOLD_ASSIGN(layer,
                   MoeLayer::make(rank_, small, weights, &rank_.world, ep, Backend::streams));
    TRIFOLD_ASSIGN(mine, layer.check(d_.stream));
    bool right = mine;
    if (ep > 1) {
      TRIFOLD_ASSIGN(everybody, rank_.control.all(mine));
      right = everybody;
    }
    if (!right) ++summary_.bad;
    summary_.lines.push_back("layer at EP " + std::to_string(ep) +
                             (right ? " agrees with float64" : " DISAGREES with float64"));
    return {};
  }

  // Out of memory on one rank must stop all ranks of the case, so agree after the set-up.
  Result<void> guarded(const Case& c) {
    if (!takes_part(c.ep)) return {};
    d_.arena.reset();
    Result<Pair> pair = make(c);
    bool fits = pair.has_value();
    if (!fits && !is_skip(pair.error())) return std::move(pair).error();
    if (c.ep > 1) {
      TRIFOLD_ASSIGN(everybody, rank_.control.all(fits));
      fits = everybody;
    }
    if (!fits) {
      summary_.skipped.push_back(c.shape.model + " EP " + std::to_string(c.ep) + ": " +
                                 (pair ? "another rank lacks memory" : pair.error().message));
      return {};
    }
    // Backward reads what forward wrote.
    for (MoeLayer* layer : {&pair->first, &pair->second}) {
      TRIFOLD_TRY(layer->forward(d_.stream, 0));
      TRIFOLD_TRY(layer->backward(d_.stream, 0));
    }
    TRIFOLD_TRY(wait_for(d_.stream, 60, team(c.ep).stopped()));
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::both, Pass::overlapped})
      for (const bool graph : {false, true}) TRIFOLD_TRY(one(c, *pair, pass, graph));
    return {};
  }

  Result<Pair> make(const Case& c) {
    TRIFOLD_ASSIGN(weights, take_weights(d_, c.shape, c.ep));
    const Communicator* other = &rank_.world;
    if (c.ep > 1) {
      // Each stream its own communicator: NCCL orders the operations of one.
      auto found = rank_.limited.find(-1);
      if (found == rank_.limited.end()) {
        TRIFOLD_ASSIGN(made, rank_.world.split(rank_.control, rank_.control.world(), 0));
        found = rank_.limited.emplace(-1, std::move(made)).first;
      }
      other = &found->second;
    }
    // Both are made even when the first does not fit, since making agrees across ranks.
    Result<MoeLayer> first = MoeLayer::make(rank_, c.shape, weights, &rank_.world, c.ep, c.backend);
    if (!first) return std::move(first).error();
    Result<MoeLayer> second = MoeLayer::make(rank_, c.shape, weights, other, c.ep, c.backend);
    if (!second) return std::move(second).error();
    return Pair{std::move(*first), std::move(*second)};
  }

  Result<void> one(const Case& c, Pair& pair, Pass pass, bool graph) {
    Graph captured;
    if (graph) {
      Result<Graph> made =
          Graph::capture(d_.stream, [&] { return enqueue(d_, pair, pass, d_.stream); });
      bool fine = made.has_value();
      if (c.ep > 1) {
        TRIFOLD_ASSIGN(everybody, rank_.control.all(fine));
        fine = everybody;
      }
      if (!fine) {
        summary_.skipped.push_back(
            c.shape.model + " " + kPassNames[static_cast<int>(pass)] +
            " as a graph: " + (made ? "another rank could not" : made.error().message));
        return {};
      }
      captured = std::move(*made);
    }
    TRIFOLD_ASSIGN(m, measure(
                          d_, layer_rule(),
                          [&](int, cudaStream_t s) {
                            return graph ? captured.launch(s) : enqueue(d_, pair, pass, s);
                          },
                          team(c.ep)));
    std::vector<double> steps;
    if (!graph && (pass == Pass::forward || pass == Pass::backward)) {
      TRIFOLD_ASSIGN(times, step_times(d_, pair.first, pass == Pass::forward, team(c.ep)));
      steps = times;
    }
    ++summary_.measured;
    if (!rank_.lead()) return {};
    const Json line = line_of(c, pair, pass, graph, m, steps);
    summary_.lines.push_back(c.shape.model + " EP " + std::to_string(c.ep) + " " +
                             kPassNames[static_cast<int>(pass)] + (graph ? " graph" : "") + ": " +
                             std::to_string(static_cast<long>(m.us)) + " us");
    if (rank_.options->output.empty()) return {};
    return append_line(rank_.options->output, line.dump());
  }

  Rank& rank_;
  Device& d_;
  Summary& summary_;
};

}  // namespace

Result<Summary> run_layer_test(Rank& rank) {
  Summary summary;
  summary.output = rank.options->output;
  LayerTest test(rank, summary);
  TRIFOLD_TRY(test.run());
  return summary;
}

}  // namespace trifold::calibrate

// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace trifold::calibrate {
namespace {

using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

constexpr double kTimeout_s = 60;

struct Sampler {
  Device& device;
  const SampleRule& rule;
  const Operation& operation;
  const Team& team;
  int iteration = 0;
  double enqueue_us = 5;
  double span_us = 0;    // of the last sample
  double clock_mhz = 0;  // over the last sample; 0: not seen

  double rested_ms = 0;

  Result<void> rest() {
    if (rule.cool_ms <= 0 || rested_ms > 8 * rule.cool_ms) return {};
    const auto begin = Clock::now();
    std::this_thread::sleep_for(
        std::chrono::microseconds(static_cast<long>(std::min(span_us, 1000 * rule.cool_ms))));
    TRIFOLD_TRY(cool(device, rule.cool_ms));
    rested_ms += since_us(begin) / 1000;
    return {};
  }

  // Milliseconds since `begin` that were not rest; the busiest rank's.
  Result<double> busy_ms(Clock::time_point begin, double rested_before) const {
    return team.max(since_us(begin) / 1000 - (rested_ms - rested_before));
  }

  // Device microseconds of one operation, the slowest rank's.
  Result<double> sample(int inner, GpuState* state) {
    TRIFOLD_TRY(rest());
    if (team.align) TRIFOLD_TRY(team.control->barrier());
    const double ahead = std::min(20.0 + 1.3 * enqueue_us * inner, 20000.0);
    if (rule.spin) CUDA_TRY(kernels::spin(ahead, device.stream));
    CUDA_TRY(kernels::clock_stamp(&device.stamps[2], device.stream));
    // Last, on the device: ranks that spin for different times would wait for one another inside
    // the sample.
    if (team.align) TRIFOLD_TRY(team.align(device.stream));
    const auto begin = Clock::now();
    CUDA_TRY(cudaEventRecord(device.start, device.stream));
    for (int i = 0; i < inner; ++i) TRIFOLD_TRY(operation(iteration++, device.stream));
    CUDA_TRY(cudaEventRecord(device.stop, device.stream));
    CUDA_TRY(kernels::clock_stamp(&device.stamps[3], device.stream));
    enqueue_us = 0.5 * enqueue_us + 0.5 * since_us(begin) / inner;
    if (state != nullptr) *state = device.nvml.read(device.nvml_device);
    TRIFOLD_TRY(wait_for(device.stream, kTimeout_s, team.stopped()));
    float ms = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, device.start, device.stop));
    span_us = static_cast<double>(ms) * 1000;
    clock_mhz = clock_between(device.stamps[2], device.stamps[3]);
    return team.max(span_us / inner);
  }

  Result<int> settle() {
    TRIFOLD_TRY(operation(iteration++, device.stream));
    TRIFOLD_TRY(wait_for(device.stream, kTimeout_s, team.stopped()));
    TRIFOLD_ASSIGN(first, sample(1, nullptr));
    TRIFOLD_ASSIGN(second, sample(std::min(inner_count(rule, first), 8), nullptr));
    int inner = inner_count(rule, second);
    WarmUp warm(rule);
    const auto begin = Clock::now();
    const double rested = rested_ms;
    for (;;) {
      TRIFOLD_ASSIGN(us, sample(inner, nullptr));
      inner = inner_count(rule, us);
      TRIFOLD_ASSIGN(elapsed_ms, busy_ms(begin, rested));
      if (warm.add(us, elapsed_ms)) return inner;
    }
  }
};

Measurement summarise(const std::vector<double>& samples, const SampleRule& rule) {
  Measurement m;
  m.us = percentile(samples, 0.5);
  m.us_p10 = percentile(samples, 0.1);
  m.us_p90 = percentile(samples, 0.9);
  m.samples = static_cast<int>(samples.size());
  m.unstable = relative_spread(samples) >= 2 * rule.noise;
  return m;
}

}  // namespace

Result<double> Team::max(double value) const {
  if (alone()) return value;
  return control->max(value);
}

std::function<bool()> Team::stopped() const {
  if (alone()) return {};
  Control* c = control;
  return [c] { return c->aborted(); };
}

Result<Measurement> measure(Device& device, const SampleRule& rule, const Operation& operation,
                            const Team& team) {
  Sampler sampler{device, rule, operation, team};
  TRIFOLD_ASSIGN(inner, sampler.settle());
  std::vector<double> samples;
  GpuState state;
  std::vector<double> clocks;
  bool thermal = false;
  const auto begin = Clock::now();
  const double rested = sampler.rested_ms;
  for (;;) {
    const bool read = samples.size() % 3 == 2;
    TRIFOLD_ASSIGN(us, sampler.sample(inner, read ? &state : nullptr));
    samples.push_back(us);
    if (sampler.clock_mhz > 0) clocks.push_back(sampler.clock_mhz);
    thermal = thermal || state.thermal;
    TRIFOLD_ASSIGN(elapsed_ms, sampler.busy_ms(begin, rested));
    if (enough(rule, samples, elapsed_ms)) break;
  }
  Measurement m = summarise(samples, rule);
  m.inner = inner;
  m.enqueue_us = sampler.enqueue_us;
  m.watts = state.watts;
  m.throttled = thermal;
  if (!clocks.empty()) {
    // A power-limited clock is what training has; only a clock that falls while measuring, or one
    // held down for heat, spoils a point.
    m.clock_mhz = std::round(percentile(clocks, 0.5));
    m.throttled = thermal || percentile(clocks, 0) < 0.9 * m.clock_mhz;
  }
  return m;
}

namespace {

// Samples of `inner` on `own` while `other` stays busy with `outer_count` operations around it.
Result<Measurement> busy_samples(Device& device, const Operation& own, cudaStream_t own_stream,
                                 int own_count, const Operation& other, cudaStream_t other_stream,
                                 int other_count, const Team& team) {
  SampleRule rule;
  std::vector<double> samples;
  int own_iteration = 0, other_iteration = 0;
  for (int round = 0; round < 6; ++round) {
    if (team.align) {
      TRIFOLD_TRY(team.control->barrier());
      TRIFOLD_TRY(team.align(device.stream));
      TRIFOLD_TRY(wait_for(device.stream, kTimeout_s, team.stopped()));
      TRIFOLD_TRY(team.control->barrier());
    }
    CUDA_TRY(kernels::spin(300, other_stream));
    const int lead = std::max(1, other_count / 6);
    for (int i = 0; i < lead; ++i) TRIFOLD_TRY(other(other_iteration++, other_stream));
    // The measured stream starts when the other one is running.
    CUDA_TRY(kernels::spin(400, own_stream));
    CUDA_TRY(cudaEventRecord(device.start, own_stream));
    for (int i = 0; i < own_count; ++i) TRIFOLD_TRY(own(own_iteration++, own_stream));
    CUDA_TRY(cudaEventRecord(device.stop, own_stream));
    for (int i = lead; i < other_count; ++i) TRIFOLD_TRY(other(other_iteration++, other_stream));
    TRIFOLD_TRY(wait_for(own_stream, kTimeout_s, team.stopped()));
    TRIFOLD_TRY(wait_for(other_stream, kTimeout_s, team.stopped()));
    float ms = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, device.start, device.stop));
    TRIFOLD_ASSIGN(us, team.max(static_cast<double>(ms) * 1000 / own_count));
    if (round > 0) samples.push_back(us);
  }
  return summarise(samples, rule);
}

int count_for(double us, double span_us) {
  return static_cast<int>(std::clamp(std::ceil(span_us / std::max(us, 1.0)), 1.0, 400.0));
}

}  // namespace

Result<Overlapped> measure_overlap(Device& device, const Operation& first, double first_us,
                                   const Operation& second, double second_us, const Team& team) {
  // The measured stream lasts 4 ms alone; the other is given four times that, since both slow down.
  const double span_us = std::max({4000.0, 2 * first_us, 2 * second_us});
  Overlapped both;
  TRIFOLD_ASSIGN(a, busy_samples(device, first, device.stream, count_for(first_us, span_us), second,
                                 device.second, count_for(second_us, 4 * span_us), team));
  TRIFOLD_ASSIGN(b, busy_samples(device, second, device.second, count_for(second_us, span_us),
                                 first, device.stream, count_for(first_us, 4 * span_us), team));
  both.first = a;
  both.second = b;
  return both;
}

int rotating_sets(const Device& device, std::size_t bytes) {
  const std::size_t wanted = 3 * device.l2_bytes / std::max<std::size_t>(bytes, 1) + 1;
  const std::size_t fits = device.arena.free_bytes() / (2 * std::max<std::size_t>(bytes, 1));
  return static_cast<int>(std::clamp<std::size_t>(std::min(wanted, fits), 1, 24));
}

Result<Graph> Graph::capture(cudaStream_t stream, const std::function<Result<void>()>& enqueue) {
  CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Result<void> enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (!enqueued) {
    (void)cudaGetLastError();
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    return skip("cannot be captured in a graph: " + enqueued.error().message);
  }
  if (ended != cudaSuccess) {
    (void)cudaGetLastError();
    return skip(std::string("cannot be captured in a graph: ") + cudaGetErrorString(ended));
  }
  Graph result;
  const cudaError_t made = cudaGraphInstantiate(&result.executable_, graph, 0);
  (void)cudaGraphDestroy(graph);
  CUDA_TRY(made);
  return result;
}

Graph::Graph(Graph&& other) noexcept { std::swap(executable_, other.executable_); }

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(executable_, other.executable_);
  return *this;
}

Graph::~Graph() {
  if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
}

Result<void> Graph::launch(cudaStream_t stream) const {
  CUDA_TRY(cudaGraphLaunch(executable_, stream));
  return {};
}

}  // namespace trifold::calibrate

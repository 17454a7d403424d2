// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timing one operation: device events, cold L2 by rotating buffers, a spin kernel before the first
// event so that the host runs ahead of the device, medians with percentiles. Collective operations
// are aligned across ranks first; a sample is the slowest rank's.

#include <functional>
#include <string>
#include <vector>

#include "calibrate/harness/bootstrap.h"
#include "calibrate/harness/device.h"
#include "calibrate/harness/sampling.h"

namespace trifold::calibrate {

// Enqueues operation number `iteration` (rotate buffers by it). Never synchronises.
using Operation = std::function<Result<void>(int iteration, cudaStream_t stream)>;

struct Measurement {
  double us = 0, us_p10 = 0, us_p90 = 0;
  int samples = 0, inner = 1;
  double clock_mhz = 0, watts = 0;
  double enqueue_us = 0;  // host time to enqueue one operation
  bool throttled = false, unstable = false;
};

// What ties a measurement to the other ranks. Default: this rank alone.
struct Team {
  Control* control = nullptr;
  std::function<Result<void>(cudaStream_t)> align;  // a small collective

  bool alone() const { return control == nullptr || control->world() == 1; }
  Result<double> max(double value) const;
  std::function<bool()> stopped() const;
};

Result<Measurement> measure(Device& device, const SampleRule& rule, const Operation& operation,
                            const Team& team = {});

// Both streams busy: time of `first` (on device.stream) while `second` (on device.second) always
// runs, and the other way round. `alone_us` of each must be known.
struct Overlapped {
  Measurement first, second;
};
Result<Overlapped> measure_overlap(Device& device, const Operation& first, double first_us,
                                   const Operation& second, double second_us, const Team& team);

// How many rotating sets of `bytes` overflow L2 three times; at least 1, at most 24 and what fits.
int rotating_sets(const Device& device, std::size_t bytes);

// A captured graph of operations; launches it.
class Graph {
 public:
  Graph() = default;
  static Result<Graph> capture(cudaStream_t stream, const std::function<Result<void>()>& enqueue);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  Result<void> launch(cudaStream_t stream) const;

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace trifold::calibrate

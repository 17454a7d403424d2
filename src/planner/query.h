// SPDX-License-Identifier: Apache-2.0
#pragma once

// Query: what `trifold plan` was asked. Whatever is not pinned is searched.

#include <optional>
#include <string>
#include <vector>

#include "job/job.h"
#include "job/legality.h"

namespace trifold::planner {

// Allowed values of an axis; empty: every value that could be legal.
struct Pins {
  std::vector<int> tp, ulysses_sp, cp, pp, vpp, ep, etp, micro_batch_size, dispatcher_sms;
  std::vector<job::Dispatcher> dispatcher;
  std::vector<layout::ScheduleKind> schedule;
  std::optional<bool> fsdp, ep_overlap, cuda_graph, activation_offload;
  std::optional<EnumSet<job::Recompute>> recompute;
};

enum class OptimizerPrecision : std::uint8_t { automatic, fp32, bf16_moments };
inline constexpr Token<OptimizerPrecision> kOptimizerPrecisions[] = {
    {OptimizerPrecision::automatic, "auto"},
    {OptimizerPrecision::fp32, "fp32"},
    {OptimizerPrecision::bf16_moments, "bf16_moments"}};

struct Query {
  model::Model model;
  hardware::Cluster cluster;
  std::string profile;  // empty: the cluster's own
  int gpus = 0;
  job::Training training;  // the micro-batch size is an axis
  job::Routing routing;
  OptimizerPrecision optimizer_precision = OptimizerPrecision::automatic;
  job::Runtime runtime = job::Runtime::megatron;
  Pins pins;
  int best = 10;
  // Of a geometry's variants within this share of its fastest, the one with the fewest techniques
  // is listed; 0: the fastest, whatever it takes.
  double simplicity = 0.01;
  Bytes min_headroom;                // a plan must leave this much
  int threads = 0;                   // 0: all cores
  std::int64_t max_evaluations = 0;  // 0: no limit
  bool side_by_side = true;          // the best of each geometry class, and of other runtimes
  bool first_that_fits = false;      // stop at the first plan: does anything fit?
};

// Wrong before any search: no GPUs, more than the cluster has, a batch that nothing divides.
Result<void> validate(const Query& query);

}  // namespace trifold::planner

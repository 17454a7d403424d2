// SPDX-License-Identifier: Apache-2.0
#pragma once

// Observation: a Job that somebody ran, and what they measured. Fields and tokens:
// shared/data/observations/README.md.

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "job/job.h"

namespace trifold::observe {

enum class Quality : std::uint8_t { full, table, rounded, known_regression };
inline constexpr Token<Quality> kQualities[] = {{Quality::full, "full"},
                                                {Quality::table, "table"},
                                                {Quality::rounded, "rounded"},
                                                {Quality::known_regression, "known_regression"}};

struct Measured {
  std::optional<double> tokens_per_s_per_gpu, tflops_per_gpu, step_time_s, mfu_percent,
      mfu_peak_tflops;
  std::optional<double> allocated_bytes,
      reserved_bytes;  // peaks; a figure of unstated kind counts as allocated
  bool out_of_memory = false;
};

struct Observation {
  std::string id, source, release, model_name, method;
  Quality quality = Quality::full;
  job::Job job;
  std::vector<std::string>
      unknown;         // fields the publisher left out; null vpp and micro batch are added
  std::string ladder;  // name of a cumulative ablation this record is a step of
  std::optional<double> published_gflop_per_token;
  bool tokens_rounded = false;  // tokens_quantum: the TFLOP/s figure is the better one
  bool full_attention = false;  // flops_convention
  Measured measured;
  bool settings_stated() const { return unknown.empty() && quality == Quality::full; }
  // Of a source that ran one machine: its level is that machine's (validation_text's one factor).
  bool one_machine() const { return id.rfind("simumax", 0) == 0; }
};

// Settings that a source applies to all its runs and does not repeat per record
// (observations/README.md): SMs of HybridEP, padding to capacity, fused permutation and cross
// entropy; of the optimizer, job/read_job.cc.
Result<Observation> read_observation(const Json& record, const std::string& file,
                                     const std::string& data_dir);

struct Skipped {
  std::string id, reason;
};
struct ObservationSet {
  std::vector<Observation> observations;
  std::vector<Skipped> skipped;  // architectures that cannot be priced
};
// A record or a list of records. A record that cannot be read otherwise is an error.
Result<ObservationSet> load_observations(const std::string& path, const std::string& data_dir);

// The plausible Jobs behind a record: one when everything is stated, else every legal combination
// of the values that an unknown field could have had (micro batch 1, 2, 4; vpp that divides the
// layers; recompute none or full; ...).
std::vector<job::Job> plausible_jobs(const Observation& observation);

}  // namespace trifold::observe

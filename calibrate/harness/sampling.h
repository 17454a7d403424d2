// SPDX-License-Identifier: Apache-2.0
#pragma once

// When a measurement has settled and when to stop (shared/reference/calibration.md section 2, rules
// 2, 3 and 7): warm until three successive samples agree within 2 % or 50 ms have passed; inner
// loops of at least 100 us; at least 9 samples, at most 31, stop when (p90 - p10) / median < 3 %.

#include <vector>

namespace trifold::calibrate {

struct SampleRule {
  double min_span_us = 100;
  int min_samples = 9, max_samples = 31;
  double noise = 0.03;
  double warm_ms = 50;
  double budget_ms =
      60;  // of the samples; fewer than min_samples (but at least 5) when it is spent
  int max_inner = 256;
  bool spin = true;  // let the host run ahead, so that launch gaps stay out
  // Before a sample the GPU rests as long as the last sample lasted, and until its clock is back at
  // the top (at most cool_ms a sample, eight times that a point): a power-limited GPU remembers
  // what ran before. 0: back to back. Rests do not count as budget.
  double cool_ms = 100;
};

// By linear interpolation between order statistics; q in [0, 1]. CHECKs that values is not empty.
double percentile(std::vector<double> values, double q);
double relative_spread(const std::vector<double>& values);  // (p90 - p10) / median

// Operations between two events so that they span min_span_us.
int inner_count(const SampleRule& rule, double one_us);

class WarmUp {
 public:
  explicit WarmUp(const SampleRule& rule) : rule_(rule) {}
  bool add(double us, double elapsed_ms);  // true: settled, or out of patience
  bool settled() const { return settled_; }

 private:
  SampleRule rule_;
  std::vector<double> last_;
  bool settled_ = false;
};

// Reads the samples so far; `elapsed_ms` since the first.
bool enough(const SampleRule& rule, const std::vector<double>& samples, double elapsed_ms);

}  // namespace trifold::calibrate

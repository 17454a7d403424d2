// SPDX-License-Identifier: Apache-2.0
#pragma once

// Estimate: the answer in closed form. Step time by kind, memory by kind and stage, and how sure.
// The parts of `Time` sum to the step time.

#include <array>
#include <memory>
#include <string>

#include "base/json.h"
#include "cost/price.h"
#include "job/job.h"
#include "layout/pipeline.h"
#include "memory/memory.h"

namespace trifold::estimate {

enum class Comm : std::uint8_t { ep, tp, cp, pp, dp };
inline constexpr int kComms = 5;
inline constexpr const char* kCommNames[kComms] = {"ep", "tp", "cp", "pp", "dp"};

struct Communication {
  double total_s = 0;    // on the slowest stage, over the step, as if nothing overlapped
  double exposed_s = 0;  // what the step waits for
};

struct Time {
  double compute = 0;  // seconds of useful kernels on the slowest stage
  double recompute = 0;
  double bubble = 0;
  double host = 0;  // waiting for the host to launch
  double optimizer = 0;
  std::array<double, kComms> exposed{};
  double sum() const {
    double s = compute + recompute + bubble + host + optimizer;
    for (double e : exposed) s += e;
    return s;
  }
};

struct Estimate {
  double step_time_s = 0;
  double low_s = 0, high_s = 0;  // 80 % interval
  double sigma = 0;              // one-sigma relative error of the step time
  double tokens_per_s_per_gpu = 0;
  double tflops_per_gpu = 0;  // model FLOPs, Megatron's formula (causal half)
  double mfu = 0;  // of the bf16 peak... of the dense peak of the precision's GEMM format
  Time time;
  std::array<Communication, kComms> communication{};
  std::array<double, 4> basis_share{};  // of predicted time, by hardware::Basis
  memory::Memory memory;
};

// Owns caches and scratch for one (cluster, profile): no allocation per Job after warm-up. One per
// thread.
class Estimator {
 public:
  Estimator(const hardware::Cluster& cluster, const hardware::Profile& profile);
  // The Job must be legal (job/legality.h) and `pipeline` its cut.
  void evaluate(const job::Job& job, const layout::Pipeline& pipeline, Estimate& out);
  cost::Pricer& pricer() { return pricer_; }

 private:
  cost::Pricer pricer_;
  double flops_key_ = 0;
};

// Loads the profile, checks legality, cuts the pipeline and evaluates: for callers with one Job.
Result<Estimate> estimate_job(const job::Job& job, const std::string& data_dir);

Json to_json(const Estimate& estimate);

}  // namespace trifold::estimate

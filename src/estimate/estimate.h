// SPDX-License-Identifier: Apache-2.0
#pragma once

// Estimate: the answer in closed form. Step time by kind, memory by kind and stage, and how sure.
// The parts of `Time` sum to the step time.

#include <array>
#include <string>
#include <vector>

#include "base/json.h"
#include "cost/price.h"
#include "estimate/kernel_time.h"
#include "estimate/lockstep.h"
#include "estimate/stage_time.h"
#include "job/job.h"
#include "layout/pipeline.h"
#include "memory/memory.h"

namespace trifold::estimate {

struct Communication {
  double total_s = 0;    // on the slowest stage, over the step, as if nothing overlapped
  double exposed_s = 0;  // what the step waits for
};

struct Time {
  double compute = 0;  // seconds of useful kernels on the slowest stage
  double recompute = 0;
  double bubble = 0;
  double host = 0;  // waiting for the host to launch, or for copies to host memory
  double optimizer = 0;
  std::array<double, kComms> exposed{};
  // By name ("compute", ..., "exposed ep", ...), for people; their sum is the step.
  std::vector<std::pair<std::string, double>> terms() const;
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
  double mfu = 0;             // of the dense BF16 peak, whatever the precision
  Time time;
  std::array<Communication, kComms> communication{};
  KernelTime kernels;                   // of the slowest stage
  std::array<double, 4> basis_share{};  // of predicted time, by hardware::Basis
  memory::Memory memory;
};

// The bubble of a stage; `forward`, `backward`, `wgrad`: a chunk of each of the other stages.
double bubble_seconds(layout::ScheduleKind kind, double forward, double backward, double wgrad);

// Owns caches and scratch for one (cluster, profile): no allocation per Job after warm-up. One per
// thread.
class Estimator {
 public:
  Estimator(const hardware::Cluster& cluster, const hardware::Profile& profile)
      : pricer_(cluster, profile) {}
  // The Job must be legal (job/legality.h), on this cluster, and `pipeline` its cut.
  void evaluate(const job::Job& job, const layout::Pipeline& pipeline, Estimate& out);
  // Step time alone (memory and kernels untouched).
  void evaluate_time(const job::Job& job, const layout::Pipeline& pipeline, Estimate& out);
  // Of the Job whose step time was evaluated last.
  KernelTime kernels(const job::Job& job);
  cost::Pricer& pricer() { return pricer_; }

 private:
  void set_chunk_times(const job::Job& job, const layout::Pipeline& pipeline);
  void set_hops(const job::Job& job, double send);

  cost::Pricer pricer_;
  std::vector<StageTime> stages_;
  std::vector<StageContent> contents_;
  BlockTimes blocks_;
  ChunkTimes chunks_;
  Lockstep lockstep_;
  std::size_t slowest_ = 0;  // stage of the last evaluation
};

// Loads the profile, cuts the pipeline and evaluates: for callers with one Job. An illegal Job is
// an error that explains.
Result<Estimate> estimate_job(const job::Job& job, const std::string& data_dir);

Json to_json(const Estimate& estimate, const job::Job& job);

}  // namespace trifold::estimate

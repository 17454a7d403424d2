// SPDX-License-Identifier: Apache-2.0
#pragma once

// A calibration session: every rank (a thread or a process) runs the same list of jobs in the same
// shuffled order. Jobs of one GPU run on rank 0; collective jobs on all, in step.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/calibrate.h"
#include "calibrate/collectives/communicator.h"
#include "calibrate/fit/points.h"
#include "calibrate/harness/measure.h"

namespace trifold::calibrate {

struct Rank {
  Device device;
  Control control;
  Communicator world;
  const Options* options = nullptr;
  bool one_process = true;                // peers are threads: peer copies are possible
  std::vector<Rank*> peers;               // of this process, by rank
  std::map<std::string, bool> kernel_ok;  // by kernel, from the checks at the start
  std::map<int, Communicator> limited;    // by maxCTAs
  std::map<int, Communicator> subgroups;  // by ranks of a group

  bool lead() const { return control.rank() == 0; }
  Team alone() { return {}; }
  Team team();  // aligned by a small all-reduce
};

using fit::Point;
using fit::PointFamily;
using fit::PointFlag;

struct Job {
  Point question;           // its key; run() may answer with several points, the first for this key
  int priority = 0;         // 0: also with --quick
  bool collective = false;  // every rank takes part
  bool anchor = false;
  bool repeat = false;  // measured a second time, for the noise between turns
  std::function<Result<std::vector<Point>>(Rank&)> run;
};

// Answers a question with a measurement.
Point answer(Point question, const Measurement& m);
Point question(PointFamily family, std::string op, std::string variant, hardware::Dtype dtype,
               std::array<double, 4> shape);

// The families' jobs. `world` ranks.
void add_gemm_jobs(std::vector<Job>& jobs, int sms);
void add_grouped_jobs(std::vector<Job>& jobs);
void add_memory_jobs(std::vector<Job>& jobs);
void add_attention_jobs(std::vector<Job>& jobs, std::vector<std::string>& notes);
void add_host_jobs(std::vector<Job>& jobs, int local_gpus);
void add_collective_jobs(std::vector<Job>& jobs, int world, bool one_process);
void add_overlap_jobs(std::vector<Job>& jobs, int world, int sms);

Result<Summary> run_points(Rank& rank);
Result<Summary> run_layer_test(Rank& rank);
Result<Summary> run_lab(Rank& rank);
// Every kernel against float64 on fresh random data; fills rank.kernel_ok.
Result<Summary> check_kernels(Rank& rank);

}  // namespace trifold::calibrate

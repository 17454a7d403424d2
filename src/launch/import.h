// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron arguments as a Job, so that people can ask about the run they already have. Arguments
// say nothing about the machine: cluster and GPUs come from the caller. What a Job cannot hold is
// listed, never dropped.

#include <string>
#include <vector>

#include "job/job.h"
#include "launch/arguments.h"

namespace trifold::launch {

struct ImportOptions {
  hardware::Cluster cluster;
  std::int64_t gpus = 0;
  std::vector<model::Model> known_models;  // one of equal shape lends its name
  std::string file;                        // for messages
};

struct Imported {
  job::Job job;
  std::vector<std::string> not_understood;  // may change speed or memory; the Job lacks it
  std::vector<std::string> no_effect;       // data, logging, learning rate: no prediction uses it
  std::vector<std::string> assumed;         // what the arguments leave to others, and who said it
};

// An error where the arguments contradict each other, or Megatron's parser would not take them.

Result<Imported> import_arguments(const Arguments& arguments, const ImportOptions& options);
// The same, and what the script itself left open, in the lists where it belongs.
Result<Imported> import_script(const LaunchScript& script, const ImportOptions& options);

// Two names for one Megatron run are one Job: Ulysses alone is context parallelism by all-to-all,
// the exchange without context parallelism is none, FSDP shards the optimizer.
job::Job normal_form(job::Job job);

// Equal in everything that Megatron arguments express.
bool same_shape(const model::Model& a, const model::Model& b);

}  // namespace trifold::launch

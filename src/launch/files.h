// SPDX-License-Identifier: Apache-2.0
#pragma once

// The directory that starts a run: megatron.args, launch.sh (torchrun), submit.sbatch (Slurm),
// pytorchjob.yaml (Kubernetes), bridge_overrides.txt (Megatron-Bridge), ranks.json. Every text is a
// pure function of the plan.

#include <map>
#include <string>

#include "job/job.h"
#include "launch/emit.h"

namespace trifold::launch {

struct ScriptOptions {
  std::string plan_id;     // empty: the Job's id
  double step_time_s = 0;  // predicted; 0: not stated in the comments
  double low_s = 0, high_s = 0;
};

std::string megatron_args(const LaunchPlan& plan);
std::string launch_script(const job::Job& job, const LaunchPlan& plan,
                          const ScriptOptions& options);
std::string slurm_script(const job::Job& job, const LaunchPlan& plan, const ScriptOptions& options);
std::string pytorch_job(const job::Job& job, const LaunchPlan& plan, const ScriptOptions& options);
std::string bridge_overrides(const job::Job& job, const LaunchPlan& plan,
                             const ScriptOptions& options);
// {"schema": "trifold.ranks/1", ..., "ranks": [[host, slot, tp, cp, dp, pp, etp, ep, edp], ...]}
std::string rank_map(const job::Job& job, const ScriptOptions& options);

// File name -> content.
std::map<std::string, std::string> launch_files(const job::Job& job, const LaunchPlan& plan,
                                                const ScriptOptions& options);
// Every file is written aside before the first is renamed into place.
Result<void> write_launch_directory(const std::string& directory,
                                    const std::map<std::string, std::string>& files);

}  // namespace trifold::launch

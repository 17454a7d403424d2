// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every verb shares: where data is, how results and errors leave, the exit codes of DESIGN
// section 8. A verb is one file with one function `add_<verb>(CLI::App&, Context&)` that declares
// its options and sets context.run.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "hardware/profile.h"
#include "job/job.h"

namespace trifold::cli {

enum ExitCode {
  kDone = 0,
  kInternal = 1,
  kUsage = 2,
  kInput = 3,
  kInfeasible = 4,
  kEnvironment = 5,
  kCheckFailed = 6
};

struct Context {
  std::string data_dir;           // holds models/ and hardware/
  std::vector<std::string> argv;  // for provenance
  std::function<int()> run;       // set by the verb that was chosen
};

// Prints "error: ..." on stderr and returns the exit code of the error's kind.
int report(const Error& error);
// Standard output; `json` decides which of the two.
void print(const std::string& text);

// A Job file, a record, or a list of records (`id` picks one; a list of one needs none). "-" is
// standard input. `sets` are --set assignments, applied to the JSON before it is read.
Result<job::Job> load_job(const Context& context, const std::string& path, const std::string& id,
                          const std::vector<std::string>& sets);
// The same as JSON, before reading.
Result<Json> load_job_json(const std::string& path, const std::string& id,
                           const std::vector<std::string>& sets);

// Says on standard error when a profile was made on another GPU type than the cluster's.
void note_other_gpu(const hardware::Profile& profile, const hardware::Cluster& cluster);

// All of them, in the order of `trifold --help` (verbs.cc).
void add_verbs(CLI::App& app, Context& context);
void add_calibrate(CLI::App& app, Context& context);
void add_estimate(CLI::App& app, Context& context);
void add_explain(CLI::App& app, Context& context);
void add_import(CLI::App& app, Context& context);
void add_check(CLI::App& app, Context& context);
void add_compare(CLI::App& app, Context& context);
void add_emit(CLI::App& app, Context& context);
void add_simulate(CLI::App& app, Context& context);
void add_validate(CLI::App& app, Context& context);
void add_list(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_whatif(CLI::App& app, Context& context);

}  // namespace trifold::cli

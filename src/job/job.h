// SPDX-License-Identifier: Apache-2.0
#pragma once

// Job: everything that a prediction depends on. Reading one accepts a Job file ("schema":
// "trifold.job/1") or a record of shared/data/observations (which may lack the schema and carries
// keys of its own).

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "hardware/cluster.h"
#include "job/techniques.h"
#include "job/training.h"
#include "layout/in_flight.h"
#include "layout/layout.h"
#include "layout/pipeline.h"
#include "model/model.h"

namespace trifold::job {

struct Schedule {
  layout::ScheduleKind kind = layout::ScheduleKind::one_f_one_b;
  int microbatch_group_size = 0;  // interleaved; 0: pp
  bool operator==(const Schedule&) const = default;
};

// Where the model or the cluster came from, so that writing a Job can name it again. The
// fingerprint is of the thing with its overrides applied; a thing changed since is written inline.
struct Origin {
  std::string name;       // catalogue name; empty: inline or a file
  std::string overrides;  // compact JSON object, or empty
  std::uint64_t fingerprint = 0;
};

struct Job {
  model::Model model;
  hardware::Cluster cluster;
  std::string profile;  // catalogue name or path; empty: the cluster's own
  int gpus = 0;
  Training training;
  layout::Layout layout;
  Techniques techniques;
  Schedule schedule;
  int measured_rank = -1;  // the global rank whose memory a record gives; -1: the worst
  Origin model_origin, cluster_origin;

  int dp() const { return layout.dp(gpus); }
  int edp() const { return layout.edp(gpus); }
  std::int64_t microbatches() const {
    return training.global_batch_size / (training.micro_batch_size * dp());
  }
  layout::ScheduleShape schedule_shape() const;
  // How layout::build_pipeline deals chunks to ranks under this schedule.
  layout::Placement placement() const {
    return layout::is_vee(schedule.kind) ? layout::Placement::vee : layout::Placement::loop;
  }
};

// Keys of a record that a Job does not use but a reader must not refuse.
struct ReadOptions {
  std::string data_dir;  // where models/ and hardware/ are
  bool allow_observation =
      true;  // accept id, source, measured, quality, unknown, ... beside the Job
  // Model and cluster, overrides applied, come from here and are not read: for callers that read
  // many Jobs which differ elsewhere.
  const struct Job* same_model_and_cluster = nullptr;
};

Result<Job> read_job(const Json& json, const std::string& file, const ReadOptions& options);
Result<Job> load_job(const std::string& path, const ReadOptions& options);

// "schema" first; model by catalogue name when it is unchanged, else inline; every field that is
// not at its default.
Json to_json(const Job& job);

// `--set a.b=c`: the dotted key, or any suffix of it that is unique, with units in the value where
// a person would write them (400Gbps, 10GiB). Works on the Job's JSON, so it reaches every field.
Result<void> set_field(Json& job_json, const std::string& assignment);
// Every dotted key that set_field understands.
std::vector<std::string> settable_fields();

// A stable 64-bit id of the content, as 16 hex digits.
std::string job_id(const Job& job);

}  // namespace trifold::job

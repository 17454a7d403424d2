// SPDX-License-Identifier: Apache-2.0
#include "cli.h"

#include <fmt/format.h>

#include <cstdio>

namespace trifold::cli {

int report(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.to_string());
  switch (error.code) {
    case ErrorCode::usage:
      return kUsage;
    case ErrorCode::input:
      return kInput;
    case ErrorCode::infeasible:
      return kInfeasible;
    case ErrorCode::environment:
      return kEnvironment;
    case ErrorCode::check:
      return kCheckFailed;
    case ErrorCode::internal:
      return kInternal;
  }
  return kInternal;
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Result<Json> load_job_json(const std::string& path, const std::string& id,
                           const std::vector<std::string>& sets) {
  TRIFOLD_ASSIGN(json, read_json(path));
  if (json.is_object() && json.contains("job") &&
      json["job"].is_object()) {  // a plan holds its Job
    Json inner = json["job"];
    json = inner;
  }
  if (json.is_array()) {
    const Json* chosen = nullptr;
    if (id.empty() && json.size() == 1) chosen = &json[0];
    for (const Json& record : json)
      if (record.is_object() && !id.empty() && record.value("id", "") == id) chosen = &record;
    if (chosen == nullptr)
      return id.empty() ? input_error(fmt::format("a list of {} records", json.size()), path,
                                      "choose one with --id")
                        : input_error("no record has id '" + id + "'", path,
                                      "the ids are the records' \"id\" fields");
    Json record = *chosen;
    json = record;
  }
  for (const std::string& assignment : sets) TRIFOLD_TRY(job::set_field(json, assignment));
  return json;
}

Result<job::Job> load_job(const Context& context, const std::string& path, const std::string& id,
                          const std::vector<std::string>& sets) {
  TRIFOLD_ASSIGN(json, load_job_json(path, id, sets));
  Result<job::Job> job = job::read_job(json, path, {context.data_dir, true});
  if (!job || job->profile.empty()) return job;
  // Whether it can be read is for whoever needs it to say.
  const auto profile = hardware::load_profile(job->profile, context.data_dir);
  if (profile) note_other_gpu(*profile, job->cluster);
  return job;
}

void note_other_gpu(const hardware::Profile& profile, const hardware::Cluster& cluster) {
  if (hardware::made_for(profile, cluster.gpu)) return;
  fmt::print(stderr, "note: profile '{}' was made on '{}', not on {}: its times are that GPU's\n",
             profile.name, profile.provenance.gpu, cluster.gpu.name);
}

}  // namespace trifold::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once

// Published numbers live beside this repository; tests that need them skip, saying so, without.

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "job/job.h"

namespace trifold::shared_data {

// ../shared/<path>
inline std::string shared(const std::string& path) {
  return std::string(TRIFOLD_SOURCE_DIR) + "/../shared/" + path;
}

inline bool have_shared() { return bool(read_text(shared("data/observations/README.md"))); }

// A Job from text; what is wrong with it fails the running test.
inline job::Job read(const std::string& json) {
  const Result<Json> parsed = parse_json(json, "test");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().to_string());
  Result<job::Job> job = job::read_job(*parsed, "test", job::ReadOptions{TRIFOLD_SOURCE_DIR, true});
  EXPECT_TRUE(job) << (job ? "" : job.error().to_string());
  return job ? *job : job::Job{};
}

}  // namespace trifold::shared_data

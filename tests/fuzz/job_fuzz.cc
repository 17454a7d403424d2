// SPDX-License-Identifier: Apache-2.0

// A Job file: refused with a message, or a Job that is judged without harm and survives being
// written and read again.

#include "fuzz.h"
#include "job/job.h"
#include "job/legality.h"

using namespace trifold;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Json> json = parse_json(fuzz::text_of(data, size), "fuzz.json");
  if (!json) return 0;
  const job::ReadOptions options{TRIFOLD_SOURCE_DIR, true};
  const Result<job::Job> first = job::read_job(*json, "fuzz.json", options);
  if (!first) return TRIFOLD_CHECK(!first.error().message.empty()), 0;
  for (const job::Runtime runtime : {job::Runtime::megatron, job::Runtime::any})
    if (const job::Verdict verdict = job::check(*first, runtime); !verdict.legal())
      TRIFOLD_CHECK(!job::explain(verdict).empty());
  const Result<job::Job> again = job::read_job(job::to_json(*first), "again.json", options);
  TRIFOLD_CHECK(again.has_value());
  TRIFOLD_CHECK(job::job_id(*again) == job::job_id(*first));
  return 0;
}

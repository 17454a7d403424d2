// SPDX-License-Identifier: Apache-2.0
#pragma once

// A simulated step as Chrome-trace JSON that Perfetto loads without errors: one process a stage,
// one thread a stream, integer nanoseconds, a counter of memory, an arrow for every pipeline send.
// Rules: shared/reference/ecosystem.md section 2.

#include <string>

#include "base/result.h"
#include "timeline/timeline.h"

namespace trifold::report {

struct TraceOptions {
  int stage = -1;            // -1: all
  int first_microbatch = 0;  // the window of micro-batches, inclusive
  int last_microbatch = -1;  // -1: to the end
  bool memory = true;
  bool arrows = true;
};

// Appends the whole document to `out`.
void append_trace(const timeline::Simulator& simulator, const TraceOptions& options,
                  std::string& out);
Result<void> write_trace(const timeline::Simulator& simulator, const TraceOptions& options,
                         const std::string& path);

}  // namespace trifold::report

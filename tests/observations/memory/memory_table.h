// SPDX-License-Identifier: Apache-2.0
#pragma once

// Predicted against published memory: one line a number, printed as a table and held to bounds.

#include <string>
#include <vector>

#include "job/job.h"
#include "memory/memory.h"
#include "tests/observations/shared_data.h"

namespace trifold::memory_table {

using shared_data::have_shared;
using shared_data::read;
using shared_data::shared;

struct Row {
  std::string id, what;
  double published = 0, predicted = 0;  // in `unit`
  std::string unit;
  std::string note;  // not empty: outside what can be explained, and why
  double error() const { return predicted / published - 1; }
};

// Prints `rows` under a title and, where TRIFOLD_MEMORY_TABLE names a file, appends it there.
void print(const std::string& title, const std::vector<Row>& rows);
double mean_error(const std::vector<Row>& rows);   // of |error| over rows without a note
double worst_error(const std::vector<Row>& rows);  // the largest |error| of those

layout::Pipeline cut(const job::Job& job);
memory::Memory peak_of(const job::Job& job);
constexpr double kGiB = 1024.0 * 1024 * 1024;

}  // namespace trifold::memory_table

// SPDX-License-Identifier: Apache-2.0
#include "memory_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/table.h"

namespace trifold::memory_table {

void print(const std::string& title, const std::vector<Row>& rows) {
  Table table({"number", "what", "published", "predicted", "error", "note"});
  table.align(1, Table::Align::left);
  table.align(5, Table::Align::left);
  for (const Row& r : rows)
    table.add({r.id, r.what, fmt::format("{:.3f} {}", r.published, r.unit),
               fmt::format("{:.3f}", r.predicted), fmt::format("{:+.2f} %", 100 * r.error()),
               r.note});
  const std::string text =
      fmt::format("{}\n{}mean |error| {:.2f} %, worst {:.2f} % (rows without a note)\n\n", title,
                  table.text(), 100 * mean_error(rows), 100 * worst_error(rows));
  fmt::print("{}", text);
  if (const char* path = std::getenv("TRIFOLD_MEMORY_TABLE")) {
    if (std::FILE* file = std::fopen(path, "a")) {
      fmt::print(file, "{}", text);
      std::fclose(file);
    }
  }
}

double mean_error(const std::vector<Row>& rows) {
  double sum = 0;
  int n = 0;
  for (const Row& r : rows)
    if (r.note.empty()) sum += std::abs(r.error()), ++n;
  return n > 0 ? sum / n : 0;
}

double worst_error(const std::vector<Row>& rows) {
  double worst = 0;
  for (const Row& r : rows)
    if (r.note.empty()) worst = std::max(worst, std::abs(r.error()));
  return worst;
}

layout::Pipeline cut(const job::Job& job) {
  const Result<layout::Pipeline> pipeline = layout::build_pipeline(job.model, job.layout);
  EXPECT_TRUE(pipeline) << (pipeline ? "" : pipeline.error().to_string());
  return *pipeline;
}

memory::Memory peak_of(const job::Job& job) {
  memory::Memory memory;
  memory::evaluate(job, cut(job), memory);
  return memory;
}

}  // namespace trifold::memory_table

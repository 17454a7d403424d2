// SPDX-License-Identifier: Apache-2.0

// The evaluator of the page, natively, for the parity test.
//   native_evaluate                         answers the requests of standard input, one a line
//   native_evaluate --inline DATA_DIR FILE  prints for each Job of FILE a line {"id", "job",
//                                           "profile"}, with model and cluster inline

#include <fmt/format.h>

#include "job/job.h"
#include "web/wasm/evaluate.h"

namespace trifold {
namespace {

Result<void> print_inline(const Json& json, const std::string& path, const std::string& data_dir) {
  const Json& source = json.contains("job") ? json["job"] : json;
  TRIFOLD_ASSIGN(job, job::read_job(source, path, {data_dir, true}));
  TRIFOLD_ASSIGN(profile, job.profile.empty() ? hardware::profile_of(job.cluster, data_dir)
                                              : hardware::load_profile(job.profile, data_dir));
  job.model_origin = {};
  job.cluster_origin = {};
  const Json line = {{"id", json.value("id", path)},
                     {"job", job::to_json(job)},
                     {"profile", hardware::to_json(profile)}};
  fmt::print("{}\n", line.dump());
  return {};
}

int print_all(const std::string& data_dir, const std::string& path) {
  Result<Json> json = read_json(path);
  if (!json) return fmt::print(stderr, "{}\n", json.error().to_string()), 1;
  const Json list = json->is_array() ? *json : Json::array({*json});
  for (const Json& job : list) {
    const Result<void> printed = print_inline(job, path, data_dir);
    if (!printed) fmt::print(stderr, "skipped: {}\n", printed.error().to_string());
  }
  return 0;
}

int answer_lines() {
  page::Evaluator evaluator;
  Result<std::string> input = read_text("-");
  if (!input) return 1;
  for (std::size_t begin = 0; begin < input->size();) {
    const std::size_t end = std::min(input->find('\n', begin), input->size());
    fmt::print("{}\n", evaluator.answer(std::string_view(*input).substr(begin, end - begin)));
    begin = end + 1;
  }
  return 0;
}

}  // namespace
}  // namespace trifold

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return trifold::answer_lines();
  if (words.size() == 3 && words[0] == "--inline") return trifold::print_all(words[1], words[2]);
  fmt::print(stderr, "usage: native_evaluate [--inline DATA_DIR FILE]\n");
  return 2;
}

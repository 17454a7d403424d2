// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/nccl_tests.h"

#include <cmath>
#include <cstdlib>
#include <set>
#include <sstream>

// Formats, from nccl-tests (2.13 to 2.19; shared/reference/ecosystem.md):
//   text  comment lines start with '#'; "#  Rank  3 Group  0 Pid ... device  3 [0x..] NVIDIA H200",
//         "# Collective test starting: all_reduce_perf" (newer), a header that names the columns
//         "size count type redop root time algbw busbw #wrong time ...", then rows; us and GB/s
//   JSON  {version, args[], nccl_version, config{}, devices[], results[{size, ...,
//   out_of_place{time,
//         alg_bw, bus_bw, nwrong}, in_place{}}]}; with -I `out_of_place` holds statistics too
// `size` is the total buffer, which is what a CollectiveCurve counts. A log whose ranks sit on
// several hosts says so in its points' variant: the fit decides whether that crosses domains.

namespace trifold::fit {

using hardware::Collective;

namespace {

struct Program {
  const char* name;
  Collective op;
};
constexpr Program kPrograms[] = {{"all_reduce", Collective::all_reduce},
                                 {"all_gather", Collective::all_gather},
                                 {"reduce_scatter", Collective::reduce_scatter},
                                 {"alltoall", Collective::all_to_all},
                                 {"sendrecv", Collective::send_recv}};

std::optional<Collective> program_in(const std::string& text) {
  for (const Program& p : kPrograms)
    if (text.find(std::string(p.name) + "_perf") != std::string::npos) return p.op;
  return std::nullopt;
}

Result<void> settle(const std::optional<Collective>& found, int ranks,
                    const std::set<std::string>& hosts, const NcclTestsHint& hint,
                    const std::string& name, PointsFile& file) {
  const std::optional<Collective> op = hint.op ? hint.op : found;
  if (!op)
    return input_error("the log does not say which collective it ran", name,
                       "name it: all_gather, reduce_scatter, all_reduce, all_to_all, send_recv");
  if (hint.ranks > 0) ranks = hint.ranks;
  if (ranks < 2) return input_error("the log does not list its ranks", name, "give their number");
  if (file.points.empty()) return input_error("no result rows", name);
  file.gpus = ranks;
  file.provenance.source = "nccl-tests";
  for (Point& p : file.points) {
    if (hosts.size() > 1) p.variant += "_hosts" + std::to_string(hosts.size());
    p.op = token_name(hardware::kCollectives, *op);
    p.shape[0] = ranks;
  }
  return {};
}

Point make_point(double bytes, double us, bool wrong) {
  Point p;
  p.family = PointFamily::collective;
  p.variant = "stream";
  p.shape[1] = bytes;
  p.us = p.us_p10 = p.us_p90 = us;
  p.samples = 1;
  if (wrong) p.flags.insert(PointFlag::bad);
  return p;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool number(const std::string& word, double& out) {
  char* end = nullptr;
  out = std::strtod(word.c_str(), &end);
  return end != word.c_str() && *end == '\0' && std::isfinite(out);
}

struct TextLog {
  int ranks = 0;
  std::size_t time_column = 0, wrong_column = 0;
  std::optional<Collective> op;
  std::set<std::string> hosts;
};

void read_comment(const std::string& line, TextLog& log, PointsFile& file) {
  const std::vector<std::string> words = words_of(line);
  if (words.size() > 2 && words[1] == "Rank") {
    ++log.ranks;
    for (std::size_t i = 3; i + 1 < words.size(); ++i)
      if (words[i] == "on") log.hosts.insert(words[i + 1]);
    const std::size_t bracket = line.find(']');
    if (file.provenance.gpu.empty() && bracket != std::string::npos && bracket + 2 < line.size())
      file.provenance.gpu = line.substr(bracket + 2);
  }
  if (words.size() > 3 && words[1] == "size")
    for (std::size_t i = words.size() - 1; i > 0; --i) {
      if (words[i] == "time") log.time_column = i - 1;  // the first one wins: out of place
      if (words[i] == "#wrong" || words[i] == "error") log.wrong_column = i - 1;
    }
  if (!log.op) log.op = program_in(line);
}

Result<PointsFile> import_text(const std::string& text, const std::string& name,
                               const NcclTestsHint& hint) {
  PointsFile file;
  TextLog log;
  std::istringstream in(text);
  int line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    if (line[first] == '#') {
      read_comment(line.substr(first), log, file);
      continue;
    }
    const std::vector<std::string> words = words_of(line);
    double bytes = 0, us = 0, wrong = 0;
    if (words.size() < 5 || !number(words[0], bytes)) {
      if (!log.op) log.op = program_in(line);  // the command line that a script echoed
      continue;
    }
    if (log.time_column == 0 || log.time_column >= words.size() ||
        !number(words[log.time_column], us))
      return input_error("cannot find the time column", name + ":" + std::to_string(line_number),
                         "keep nccl-tests' header line '# size count type ...'");
    const bool checked = log.wrong_column > 0 && log.wrong_column < words.size() &&
                         number(words[log.wrong_column], wrong);
    if (bytes > 0 && us > 0) file.points.push_back(make_point(bytes, us, checked && wrong > 0));
  }
  TRIFOLD_TRY(settle(log.op, log.ranks, log.hosts, hint, name, file));
  return file;
}

Result<PointsFile> import_json(const std::string& text, const std::string& name,
                               const NcclTestsHint& hint) {
  TRIFOLD_ASSIGN(json, parse_json(text, name));
  PointsFile file;
  std::optional<Collective> op;
  if (json.contains("args") && json["args"].is_array())
    for (const Json& arg : json["args"])
      if (arg.is_string() && !op) op = program_in(arg.get<std::string>());
  if (json.contains("nccl_version"))
    file.provenance.nccl = json["nccl_version"].is_string()
                               ? json["nccl_version"].get<std::string>()
                               : json["nccl_version"].dump();
  int ranks = 0;
  std::set<std::string> hosts;
  if (json.contains("devices") && json["devices"].is_array()) {
    ranks = static_cast<int>(json["devices"].size());
    for (const Json& device : json["devices"]) {
      const auto text_of = [&](const char* key) {
        return device.is_object() && device.contains(key) && device[key].is_string()
                   ? device[key].get<std::string>()
                   : std::string();
      };
      for (const char* key : {"device_name", "name"})
        if (file.provenance.gpu.empty()) file.provenance.gpu = text_of(key);
      for (const char* key : {"host", "hostname", "host_name"})
        if (const std::string host = text_of(key); !host.empty()) hosts.insert(host);
    }
  }
  if (!json.contains("results") || !json["results"].is_array())
    return input_error("no 'results' list", name, "is this nccl-tests -J output?");
  for (const Json& row : json["results"]) {
    if (!row.is_object() || !row.contains("out_of_place")) continue;
    const Json& result = row["out_of_place"];
    const auto get = [](const Json& from, const char* key) {
      return from.is_object() && from.contains(key) && from[key].is_number()
                 ? from[key].get<double>()
                 : NAN;
    };
    const double bytes = get(row, "size"), us = get(result, "time");
    if (bytes > 0 && us > 0)
      file.points.push_back(make_point(bytes, us, get(result, "nwrong") > 0));
  }
  TRIFOLD_TRY(settle(op, ranks, hosts, hint, name, file));
  return file;
}

}  // namespace

Result<PointsFile> import_nccl_tests(const std::string& text, const std::string& name,
                                     const NcclTestsHint& hint) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return input_error("empty file", name);
  return text[first] == '{' ? import_json(text, name, hint) : import_text(text, name, hint);
}

}  // namespace trifold::fit

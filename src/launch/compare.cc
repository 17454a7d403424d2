// SPDX-License-Identifier: Apache-2.0
#include "launch/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace trifold::launch {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr std::int64_t kFewestSteady = 3;
constexpr double kMostTimes = 4;  // a term that would have to grow more explains nothing

// The number behind `label` in `line`.
std::optional<double> number_after(std::string_view line, std::string_view label) {
  const std::size_t at = line.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string rest(line.substr(at + label.size(), 40));
  char* end = nullptr;
  const double value = std::strtod(rest.c_str(), &end);
  if (end == rest.c_str()) return std::nullopt;
  return value;
}

std::int64_t whole(std::optional<double> value) {
  return value ? static_cast<std::int64_t>(*value) : 0;
}

// " iteration        3/       8 | ..."
bool read_iteration(std::string_view line, LogIteration& out) {
  const std::size_t at = line.find(" iteration ");
  const std::optional<double> elapsed = number_after(line, "elapsed time per iteration (ms):");
  if (at == std::string_view::npos || !elapsed || !(*elapsed > 0)) return false;
  out.number = whole(number_after(line, " iteration "));
  out.planned = whole(number_after(line.substr(at), "/"));
  out.seconds = *elapsed / 1e3;
  out.tflops_per_gpu = number_after(line, "throughput per GPU (TFLOP/s/GPU):").value_or(0);
  out.global_batch = whole(number_after(line, "global batch size:"));
  out.skipped = whole(number_after(line, "number of skipped iterations:"));
  out.nan = whole(number_after(line, "number of nan iterations:"));
  return true;
}

bool read_memory(std::string_view line, LogMemory& out) {
  const std::optional<double> peak = number_after(line, "| max allocated:");
  if (line.find("memory (MB)") == std::string_view::npos || !peak) return false;
  out.rank = whole(number_after(line, "[Rank "));
  out.after_iterations = whole(number_after(line, "(after "));
  out.allocated_bytes = number_after(line, "| allocated:").value_or(0) * kMiB;
  out.peak_bytes = *peak * kMiB;
  out.reserved_bytes = number_after(line, "| reserved:").value_or(0) * kMiB;
  out.peak_reserved_bytes = number_after(line, "| max reserved:").value_or(0) * kMiB;
  return true;
}

void read_sizes(std::string_view line, TrainingLog& log) {
  if (line.find("using world size:") == std::string_view::npos) return;
  log.gpus = whole(number_after(line, "using world size:"));
  log.dp = whole(number_after(line, "data-parallel size:"));
  log.cp = whole(number_after(line, " context-parallel size:"));
  log.tp = whole(number_after(line, "tensor-model-parallel size:"));
  log.pp = whole(number_after(line, "pipeline-model-parallel size:"));
}

double quantile(std::vector<double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const std::size_t low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

Result<void> same_run(const Prediction& p, const TrainingLog& log) {
  struct Pair {
    const char* name;
    std::int64_t planned, found;
  };
  const Pair pairs[] = {{"GPUs", p.gpus, log.gpus},
                        {"tp", p.tp, log.tp},
                        {"cp", p.cp, log.cp},
                        {"pp", p.pp, log.pp},
                        {"global batch size", p.global_batch, log.iterations.back().global_batch}};
  for (const Pair& pair : pairs)
    if (pair.planned > 0 && pair.found > 0 && pair.planned != pair.found)
      return Error{ErrorCode::input,
                   fmt::format("this log is of another run: {} {}, the plan has {}", pair.name,
                               pair.found, pair.planned),
                   log.file, "give the plan that the run was started from"};
  return {};
}

// Allocator growth, compilation and autotuning make the first iterations slow; Megatron's own
// benchmarks drop about ten. At most a third of a short log.
std::int64_t warmup_of(std::size_t iterations) {
  return std::min<std::int64_t>(10, static_cast<std::int64_t>(iterations) / 3);
}

void find_suspects(const Prediction& p, double difference, Comparison& out) {
  for (const PredictedTerm& term : p.terms) {
    if (term.seconds <= 0) continue;
    const double times = 1 + difference / term.seconds;
    if (times > 0 && times <= kMostTimes) out.suspects.push_back({term.name, term.seconds, times});
  }
  std::stable_sort(out.suspects.begin(), out.suspects.end(),
                   [](const Suspect& a, const Suspect& b) {
                     return std::fabs(std::log(a.times)) < std::fabs(std::log(b.times));
                   });
  if (out.suspects.empty() && !p.terms.empty())
    out.notes.push_back(
        "no single term explains the difference: look for a stall (storage, a slow "
        "node, clocks)");
}

void compare_memory(const Prediction& p, const TrainingLog& log, Comparison& out) {
  if (log.memory.empty()) return;
  double peak = 0, reserved = 0;
  for (const LogMemory& m : log.memory) {
    peak = std::max(peak, m.peak_bytes);
    reserved = std::max(reserved, m.peak_reserved_bytes);
  }
  constexpr double kGiB = 1024 * kMiB;
  if (p.peak_bytes > 0) {
    out.deviations.push_back({"peak memory", "GiB", p.peak_bytes / kGiB, peak / kGiB});
    out.memory_factor = peak / p.peak_bytes;
  }
  if (p.reserved_bytes > 0)
    out.deviations.push_back({"reserved memory", "GiB", p.reserved_bytes / kGiB, reserved / kGiB});
}

}  // namespace

Result<TrainingLog> read_training_log(std::string_view text, const std::string& file) {
  TrainingLog log;
  log.file = file;
  bool whole_line = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    whole_line = end != std::string_view::npos;
    text = whole_line ? text.substr(end + 1) : std::string_view();
    LogIteration iteration;
    LogMemory memory;
    if (read_iteration(line, iteration)) {
      // A line that breaks off before its loss is not to be trusted.
      if (whole_line || line.find("number of skipped iterations") != std::string_view::npos)
        log.iterations.push_back(iteration);
    } else if (read_memory(line, memory)) {
      log.memory.push_back(memory);
    } else {
      read_sizes(line, log);
    }
  }
  if (log.iterations.empty())
    return input_error(
        "no iteration lines of Megatron here", file,
        "expected '... iteration 10/100 | ... elapsed time per iteration (ms): ...'");
  const LogIteration& last = log.iterations.back();
  log.cut_short = !whole_line || last.number < last.planned;
  return log;
}

Result<Comparison> compare(const Prediction& prediction, const TrainingLog& log) {
  TRIFOLD_CHECK(!log.iterations.empty());
  TRIFOLD_TRY(same_run(prediction, log));
  Comparison out;
  out.warmup = warmup_of(log.iterations.size());
  out.steady = static_cast<std::int64_t>(log.iterations.size()) - out.warmup;
  if (out.steady < kFewestSteady)
    return Error{ErrorCode::input,
                 fmt::format("the log breaks off after {} iterations", log.iterations.size()),
                 log.file, "let the run do at least 5"};
  std::vector<double> seconds, tflops;
  for (std::size_t i = static_cast<std::size_t>(out.warmup); i < log.iterations.size(); ++i) {
    seconds.push_back(log.iterations[i].seconds);
    tflops.push_back(log.iterations[i].tflops_per_gpu);
    if (log.iterations[i].skipped + log.iterations[i].nan > 0 && out.notes.empty())
      out.notes.push_back("iterations were skipped or gave NaN: their times do not count for much");
  }
  std::sort(seconds.begin(), seconds.end());
  std::sort(tflops.begin(), tflops.end());
  const double measured = quantile(seconds, 0.5);
  out.low_s = quantile(seconds, 0.25);
  out.high_s = quantile(seconds, 0.75);
  out.inside = measured >= prediction.low_s && measured <= prediction.high_s;
  out.deviations.push_back({"step time", "s", prediction.step_time_s, measured});
  if (prediction.step_time_s > 0) out.time_factor = measured / prediction.step_time_s;
  if (prediction.tflops_per_gpu > 0 && tflops.front() > 0)
    out.deviations.push_back(
        {"throughput", "TFLOP/s/GPU", prediction.tflops_per_gpu, quantile(tflops, 0.5)});
  compare_memory(prediction, log, out);
  if (log.cut_short) out.notes.push_back("the log ends before its last planned iteration");
  if (out.high_s > 1.2 * out.low_s)
    out.notes.push_back("iterations differ by more than a fifth among themselves");
  if (!out.inside) find_suspects(prediction, measured - prediction.step_time_s, out);
  return out;
}

}  // namespace trifold::launch

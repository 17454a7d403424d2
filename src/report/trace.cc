// SPDX-License-Identifier: Apache-2.0
// Both ends of a slice are rounded to nanoseconds and the duration is their difference, so that
// neighbours never overlap by a rounding error; slices that round to nothing are left out. Streams
// run one task at a time, so slices of a thread never overlap.
#include "report/trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>

namespace trifold::report {

namespace {

std::size_t at(sim::Index i) { return static_cast<std::size_t>(i); }

long long nanoseconds(sim::Picoseconds t) { return (t + 500) / 1000; }

const char* pass_name(schedule::Work work) {
  switch (work) {
    case schedule::Work::forward:
      return "forward";
    case schedule::Work::backward:
      return "backward";
    case schedule::Work::wgrad:
      return "weight gradient";
    case schedule::Work::merged:
      return "merged";
  }
  return "";
}

class Writer {
 public:
  Writer(const timeline::Simulator& simulator, const TraceOptions& options, std::string& out)
      : step_(simulator.lowered().step),
        outcome_(simulator.outcome()),
        options_(options),
        curves_(simulator.memory_curves()),
        out_(out) {}

  void write() {
    out_ += "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (int r = 0; r < step_.stages; ++r)
      if (wants_stage(r)) names(r);
    for (sim::Index t = 0; t < step_.graph.tasks(); ++t)
      if (wants(t)) slice(t);
    if (options_.arrows) arrows();
    for (int r = 0; options_.memory && r < step_.stages; ++r)
      if (wants_stage(r)) counters(r);
    out_ += "\n]}\n";
  }

 private:
  bool wants_stage(int r) const { return options_.stage < 0 || options_.stage == r; }
  bool wants(sim::Index t) const {
    const int stage = step_.graph.domain(t);
    if (stage >= step_.stages || !wants_stage(stage)) return false;
    if (nanoseconds(outcome_.end[at(t)]) <= nanoseconds(outcome_.start[at(t)])) return false;
    const int m = step_.tasks[at(t)].microbatch;
    return m < 0 || (m >= options_.first_microbatch &&
                     (options_.last_microbatch < 0 || m <= options_.last_microbatch));
  }
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (!first_) out_ += ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  int thread(sim::Index t) const { return step_.graph.stream(t) % schedule::kStreams; }

  void names(int r) {
    event(R"({{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"stage {0}"}}}})", r);
    event(R"({{"ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}}}})", r);
    for (int s = 0; s < schedule::kStreams; ++s) {
      event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})", r, s,
            schedule::kStreamNames[s]);
      event(
          R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
          r, s, s);
    }
  }

  void slice(sim::Index t) {
    const schedule::TaskInfo& info = step_.tasks[at(t)];
    const long long begin = nanoseconds(outcome_.start[at(t)]),
                    end = nanoseconds(outcome_.end[at(t)]), dur = end - begin;
    event(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{}.{:03d},"dur":{}.{:03d},"name":"{}","cat":"{}","args":{{"pass":"{}","microbatch":{},"chunk":{},"layer":{}}}}})",
        step_.graph.domain(t), thread(t), begin / 1000, begin % 1000, dur / 1000, dur % 1000,
        info.op->name, schedule::kCategoryNames[static_cast<std::size_t>(info.op->category)],
        pass_name(info.work), info.microbatch, info.chunk, info.layer);
  }

  // From every send to the first kernel of the unit that waited for it.
  void arrows() {
    for (std::size_t i = 0; i < step_.graph.dependencies(); ++i) {
      const sim::Index send = step_.graph.dependency_before(i);
      sim::Index to = step_.graph.dependency_after(i);
      const int receiver = step_.tasks[at(send)].receiver;
      if (receiver < 0 || step_.graph.domain(to) != receiver || !wants(send)) continue;
      while (to >= 0 && !wants(to)) to = step_.graph.next_in_stream(to);
      if (to < 0) continue;
      const long long begin = nanoseconds(outcome_.start[at(send)]),
                      end = nanoseconds(outcome_.start[at(to)]);
      event(R"({{"ph":"s","id":{},"cat":"send","name":"send","pid":{},"tid":{},"ts":{}.{:03d}}})",
            send, step_.graph.domain(send), thread(send), begin / 1000, begin % 1000);
      event(
          R"({{"ph":"f","bp":"e","id":{},"cat":"send","name":"send","pid":{},"tid":{},"ts":{}.{:03d}}})",
          send, receiver, thread(to), end / 1000, end % 1000);
    }
  }

  void counters(int r) {
    if (static_cast<std::size_t>(r) >= curves_.size()) return;
    for (const timeline::Simulator::MemoryStep& m : curves_[static_cast<std::size_t>(r)]) {
      const long long ns = nanoseconds(sim::to_picoseconds(m.time_s));
      event(R"({{"ph":"C","pid":{},"ts":{}.{:03d},"name":"HBM","args":{{"GiB":{:.3f}}}}})", r,
            ns / 1000, ns % 1000, to_gib(Bytes(m.bytes)));
    }
  }

  const schedule::StepGraph& step_;
  const sim::Outcome& outcome_;
  const TraceOptions& options_;
  const std::vector<std::vector<timeline::Simulator::MemoryStep>>& curves_;
  std::string& out_;
  bool first_ = true;
};

}  // namespace

void append_trace(const timeline::Simulator& simulator, const TraceOptions& options,
                  std::string& out) {
  Writer(simulator, options, out).write();
}

Result<void> write_trace(const timeline::Simulator& simulator, const TraceOptions& options,
                         const std::string& path) {
  std::string text;
  append_trace(simulator, options, text);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return input_error("cannot write the trace", path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return input_error("cannot write the trace", path);
  return {};
}

}  // namespace trifold::report

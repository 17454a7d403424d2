// SPDX-License-Identifier: Apache-2.0
#pragma once

// Graph: tasks on in-order streams of domains, with dependencies. Streams of one domain contend for
// its resources; what they do to one another is in the LoadTable. Nothing here knows what a task
// is. Structure of arrays; build it, then Engine::run as often as you like.

#include <cstdint>
#include <vector>

namespace trifold::sim {

using Picoseconds = std::int64_t;
using Index = std::int32_t;

inline Picoseconds to_picoseconds(double seconds) {
  return static_cast<Picoseconds>(seconds * 1e12 + 0.5);
}
inline double to_seconds(Picoseconds t) { return static_cast<double>(t) * 1e-12; }

class Graph {
 public:
  void clear();  // keeps its storage
  void reserve(std::size_t tasks, std::size_t dependencies);

  Index add_domain() { return domains_++; }
  Index add_stream(Index domain);
  // Tasks of a stream run one after another in the order they are added. `work` is the time the
  // task needs at full speed; `load` indexes the LoadTable.
  Index add_task(Index stream, Picoseconds work, std::uint8_t load = 0);
  void add_dependency(Index before, Index after) {
    before_.push_back(before);
    after_.push_back(after);
  }

  Index tasks() const { return static_cast<Index>(work_.size()); }
  Index streams() const { return static_cast<Index>(stream_domain_.size()); }
  Index domains() const { return domains_; }
  std::size_t dependencies() const { return before_.size(); }
  Picoseconds work(Index task) const { return work_[at(task)]; }
  void set_work(Index task, Picoseconds work) { work_[at(task)] = work; }
  Index stream(Index task) const { return stream_[at(task)]; }
  Index domain(Index task) const { return stream_domain_[at(stream(task))]; }
  Index stream_domain(Index stream) const { return stream_domain_[at(stream)]; }
  std::uint8_t load(Index task) const { return load_[at(task)]; }
  Index previous_in_stream(Index task) const { return previous_[at(task)]; }  // -1: the first
  Index next_in_stream(Index task) const { return next_[at(task)]; }          // -1: the last
  Index dependency_before(std::size_t i) const { return before_[i]; }
  Index dependency_after(std::size_t i) const { return after_[i]; }

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  Index domains_ = 0;
  std::vector<Index> stream_domain_, stream_last_;
  std::vector<Picoseconds> work_;
  std::vector<Index> stream_, previous_, next_;
  std::vector<std::uint8_t> load_;
  std::vector<Index> before_, after_;
};

}  // namespace trifold::sim

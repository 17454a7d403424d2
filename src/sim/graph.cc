// SPDX-License-Identifier: Apache-2.0
#include "sim/graph.h"

namespace trifold::sim {

void Graph::clear() {
  domains_ = 0;
  stream_domain_.clear();
  stream_last_.clear();
  work_.clear();
  stream_.clear();
  previous_.clear();
  next_.clear();
  load_.clear();
  before_.clear();
  after_.clear();
}

void Graph::reserve(std::size_t tasks, std::size_t dependencies) {
  work_.reserve(tasks);
  stream_.reserve(tasks);
  previous_.reserve(tasks);
  next_.reserve(tasks);
  load_.reserve(tasks);
  before_.reserve(dependencies);
  after_.reserve(dependencies);
}

Index Graph::add_stream(Index domain) {
  stream_domain_.push_back(domain);
  stream_last_.push_back(-1);
  return streams() - 1;
}

Index Graph::add_task(Index stream, Picoseconds work, std::uint8_t load) {
  const Index task = tasks();
  Index& last = stream_last_[at(stream)];
  work_.push_back(work);
  stream_.push_back(stream);
  load_.push_back(load);
  previous_.push_back(last);
  next_.push_back(-1);
  if (last >= 0) next_[at(last)] = task;
  last = task;
  return task;
}

}  // namespace trifold::sim

// SPDX-License-Identifier: Apache-2.0
#pragma once

// One line on standard error, only on a terminal and only after two seconds.

#include <chrono>
#include <string>

namespace trifold::calibrate {

class Progress {
 public:
  Progress(bool wanted, int total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const std::string& what);

 private:
  bool on_;
  bool drawn_ = false;
  int total_, done_ = 0;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace trifold::calibrate

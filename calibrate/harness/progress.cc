// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace trifold::calibrate {

Progress::Progress(bool wanted, int total)
    : on_(wanted && ::isatty(STDERR_FILENO) == 1),
      total_(std::max(total, 1)),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::step(const std::string& what) {
  ++done_;
  const auto now = std::chrono::steady_clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  if (!on_ || elapsed < 2 || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  const double left = elapsed / done_ * std::max(total_ - done_, 0);
  std::fprintf(stderr, "\r\x1b[K%3d %%  %.0f s left  %.60s", std::min(100, 100 * done_ / total_),
               left, what.c_str());
  std::fflush(stderr);
}

}  // namespace trifold::calibrate

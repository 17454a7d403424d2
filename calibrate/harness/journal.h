// SPDX-License-Identifier: Apache-2.0
#pragma once

// The points file as a journal: every point is on disk before the next is measured, a killed run
// resumes, a torn last line is cut off, and points from another GPU or driver are refused.

#include <set>
#include <string>

#include "base/result.h"
#include "calibrate/fit/points.h"

namespace trifold::calibrate {

// What makes two points the same measurement (never an anchor).
std::string point_key(const fit::Point& point);

class Journal {
 public:
  Journal() = default;
  // Opens `path` for appending, after reading what it holds. `restart` forgets that.
  static Result<Journal> open(const std::string& path, const fit::PointsFile& header, bool restart);
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&& other) noexcept;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal();

  // Measured at least `times`?
  bool holds(const fit::Point& point, int times = 1) const {
    return static_cast<int>(keys_.count(point_key(point))) >= times;
  }
  int resumed() const { return resumed_; }
  Result<void> append(const fit::Point& point);  // synced to disk

 private:
  int descriptor_ = -1;
  int resumed_ = 0;
  std::string path_;
  std::multiset<std::string> keys_;
};

// Appends one line to a file and syncs; creates it.
Result<void> append_line(const std::string& path, const std::string& line);

}  // namespace trifold::calibrate

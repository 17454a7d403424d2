// SPDX-License-Identifier: Apache-2.0
#include "calibrate/harness/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace trifold::calibrate {
namespace {

Result<void> write_synced(int descriptor, const std::string& text, const std::string& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return input_error(std::string("cannot write: ") + std::strerror(errno), path);
    done += static_cast<std::size_t>(n);
  }
  // A pipe or /dev/stdout cannot be synced; that is no fault.
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS)
    return input_error(std::string("cannot sync: ") + std::strerror(errno), path);
  return {};
}

Result<void> same_machine(const fit::PointsFile& old, const fit::PointsFile& now,
                          const std::string& path) {
  const std::pair<const std::string*, const std::string*> pairs[] = {
      {&old.provenance.gpu, &now.provenance.gpu},
      {&old.provenance.driver, &now.provenance.driver},
      {&old.provenance.cuda, &now.provenance.cuda},
      {&old.provenance.nccl, &now.provenance.nccl}};
  for (const auto& [before, after] : pairs)
    if (*before != *after)
      return input_error("holds points of '" + *before + "', this is '" + *after + "'", path,
                         "write to another file, or start over with --restart");
  if (old.gpus != now.gpus)
    return input_error("holds points of " + std::to_string(old.gpus) + " GPUs, this run has " +
                           std::to_string(now.gpus),
                       path, "write to another file, or start over with --restart");
  return {};
}

}  // namespace

std::string point_key(const fit::Point& point) {
  fit::Point bare;
  bare.family = point.family;
  bare.op = point.op;
  bare.variant = point.variant;
  bare.dtype = point.dtype;
  bare.shape = point.shape;
  // alone_us of an overlap point is a result, not part of its question.
  if (point.family == fit::PointFamily::overlap) bare.shape[3] = 0;
  return fit::point_line(bare);
}

Journal::Journal(Journal&& other) noexcept { *this = std::move(other); }

Journal& Journal::operator=(Journal&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(resumed_, other.resumed_);
  path_.swap(other.path_);
  keys_.swap(other.keys_);
  return *this;
}

Journal::~Journal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<Journal> Journal::open(const std::string& path, const fit::PointsFile& header,
                              bool restart) {
  Journal journal;
  journal.path_ = path;
  const int flags = O_WRONLY | O_CREAT | O_APPEND | (restart ? O_TRUNC : 0);
  bool fresh = true;
  struct stat info {};
  if (!restart && ::stat(path.c_str(), &info) == 0 && info.st_size > 0) {
    TRIFOLD_ASSIGN(old, fit::read_points(path));
    TRIFOLD_TRY(same_machine(old, header, path));
    for (const fit::Point& point : old.points)
      if (!point.flags.contains(fit::PointFlag::anchor) &&
          !point.flags.contains(fit::PointFlag::throttled)) {
        journal.keys_.insert(point_key(point));
        ++journal.resumed_;
      }
    fresh = false;
    TRIFOLD_ASSIGN(text, read_text(path));
    // A torn line is cut off; a whole last line that only lacks its newline gets it below.
    if (old.torn) {
      const std::size_t keep = text.rfind('\n');
      if (::truncate(path.c_str(), static_cast<off_t>(keep + 1)) != 0)
        return input_error(std::string("cannot cut the torn last line: ") + std::strerror(errno),
                           path);
    } else if (text.back() != '\n') {
      TRIFOLD_TRY(append_line(path, ""));
    }
  }
  journal.descriptor_ = ::open(path.c_str(), flags, 0644);
  if (journal.descriptor_ < 0)
    return input_error(std::string("cannot write: ") + std::strerror(errno), path);
  if (fresh) TRIFOLD_TRY(write_synced(journal.descriptor_, fit::header_line(header) + "\n", path));
  return journal;
}

Result<void> Journal::append(const fit::Point& point) {
  TRIFOLD_TRY(write_synced(descriptor_, fit::point_line(point) + "\n", path_));
  if (!point.flags.contains(fit::PointFlag::anchor)) keys_.insert(point_key(point));
  return {};
}

Result<void> append_line(const std::string& path, const std::string& line) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (descriptor < 0)
    return input_error(std::string("cannot write: ") + std::strerror(errno), path);
  Result<void> wrote = write_synced(descriptor, line + "\n", path);
  ::close(descriptor);
  return wrote;
}

}  // namespace trifold::calibrate

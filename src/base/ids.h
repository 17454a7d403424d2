// SPDX-License-Identifier: Apache-2.0
#pragma once

// Strong integer ids: a rank is not a stage. Explicit to build, ordered, hashable through value().

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trifold {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::int32_t value) : value_(value) {}
  constexpr std::int32_t value() const { return value_; }
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  std::int32_t value_ = -1;
};

using RankId = Id<struct RankTag>;
using StageId = Id<struct StageTag>;
using MicrobatchId = Id<struct MicrobatchTag>;
using TaskId = Id<struct TaskTag>;
using StreamId = Id<struct StreamTag>;

// A vector indexed by one kind of id.
template <class I, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size, T value = {}) : items_(size, std::move(value)) {}
  T& operator[](I id) { return items_[id.index()]; }
  const T& operator[](I id) const { return items_[id.index()]; }
  std::size_t size() const { return items_.size(); }
  I push_back(T value) {
    items_.push_back(std::move(value));
    return I(static_cast<std::int32_t>(items_.size() - 1));
  }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace trifold

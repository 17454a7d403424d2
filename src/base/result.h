// SPDX-License-Identifier: Apache-2.0
#pragma once

// Result<T>: a value, or what a person did wrong, where, and what to do about it. Member names
// follow std::expected (which g++ 12 lacks). An infeasible layout is data, not an Error.

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace trifold {

// Codes map to exit codes at the command line: usage 2, input 3, infeasible 4, environment 5, check
// 6, internal 1.
enum class ErrorCode { usage, input, infeasible, environment, check, internal };

struct Error {
  ErrorCode code = ErrorCode::input;
  std::string message;
  std::string where;  // file, file:line, or file#/json/pointer; empty when there is none
  std::string hint;   // what to do, or "did you mean ..."

  std::string to_string() const {
    std::string text = where.empty() ? message : where + ": " + message;
    if (!hint.empty()) text += " (" + hint + ")";
    return text;
  }
};

inline Error input_error(std::string message, std::string where = {}, std::string hint = {}) {
  return Error{ErrorCode::input, std::move(message), std::move(where), std::move(hint)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }

  T& value() & { return TRIFOLD_CHECK(has_value()), *value_; }
  const T& value() const& { return TRIFOLD_CHECK(has_value()), *value_; }
  T&& value() && { return TRIFOLD_CHECK(has_value()), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return TRIFOLD_CHECK(!has_value()), error_; }
  Error&& error() && { return TRIFOLD_CHECK(!has_value()), std::move(error_); }

 private:
  std::optional<T> value_;
  Error error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& { return TRIFOLD_CHECK(!has_value()), *error_; }
  Error&& error() && { return TRIFOLD_CHECK(!has_value()), std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace trifold

// TRIFOLD_TRY(expression): returns the error from the enclosing function. TRIFOLD_ASSIGN(name,
// expression): declares `auto name` with the value, or returns the error.
#define TRIFOLD_TRY(expression)                                            \
  do {                                                                     \
    auto trifold_try_result = (expression);                                \
    if (!trifold_try_result) return std::move(trifold_try_result).error(); \
  } while (false)

#define TRIFOLD_CONCAT_(a, b) a##b
#define TRIFOLD_CONCAT(a, b) TRIFOLD_CONCAT_(a, b)
#define TRIFOLD_ASSIGN_(temporary, name, expression)   \
  auto temporary = (expression);                       \
  if (!temporary) return std::move(temporary).error(); \
  auto name = std::move(*temporary)
#define TRIFOLD_ASSIGN(name, expression) \
  TRIFOLD_ASSIGN_(TRIFOLD_CONCAT(trifold_result_, __LINE__), name, expression)

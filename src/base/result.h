// Result<T>: a value or an Error; the return type of every function that can fail for outside reasons.
//
// Programmer errors are asserted, not returned. A cache miss is std::nullopt inside a Result, not an Error.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "src/base/concat.h"

namespace rekindle {

enum class ErrorCode {
  kNotFound,         // the named thing does not exist
  kCorruption,       // stored bytes fail a check
  kInvalidArgument,  // the caller's input is wrong
  kUnsupported,      // valid, but this build or version cannot do it
  kIo,               // the operating system refused
  kInternal,         // a bug in Rekindle
};

// "corruption", "invalid argument", ... for messages and JSON.
const char* error_code_name(ErrorCode code);

// What went wrong. `message` names the thing, the value and the remedy, in one line.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

inline Error not_found(std::string m) { return {ErrorCode::kNotFound, std::move(m)}; }
inline Error corruption(std::string m) { return {ErrorCode::kCorruption, std::move(m)}; }
inline Error invalid_argument(std::string m) { return {ErrorCode::kInvalidArgument, std::move(m)}; }
inline Error unsupported(std::string m) { return {ErrorCode::kUnsupported, std::move(m)}; }
inline Error io_error(std::string m) { return {ErrorCode::kIo, std::move(m)}; }
inline Error internal_error(std::string m) { return {ErrorCode::kInternal, std::move(m)}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Precondition: ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  // Precondition: !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit
  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// Evaluates a Status or Result expression and returns its error from the enclosing function.
#define REKINDLE_RETURN_IF_ERROR(expression)                     \
  do {                                                           \
    auto rekindle_status_ = (expression);                        \
    if (!rekindle_status_.ok()) return rekindle_status_.error(); \
  } while (false)

// REKINDLE_ASSIGN_OR_RETURN(auto x, f()): x = *f(), or return its error.
#define REKINDLE_ASSIGN_OR_RETURN(target, expression) \
  REKINDLE_ASSIGN_OR_RETURN_INNER(REKINDLE_CONCAT(rekindle_result_, __LINE__), target, expression)
#define REKINDLE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.error();                          \
  target = std::move(result).value()

}  // namespace rekindle

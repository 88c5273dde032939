// The one way from a Rekindle Error to a Python exception.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <utility>

#include "src/base/result.h"

namespace rekindle::python {

// Registers RekindleError (a RuntimeError) and one subclass for each error code on `m` (NotFound,
// Corruption, InvalidArgument, Unsupported, Io, Internal), PlanMismatch (session/lower/plan_mismatch.h, a
// RuntimeError), and the translator that raises them. Once a process, before other bindings.
void bind_errors(pybind11::module_& m);

// Carries an Error through C++ frames up to the translator.
class RekindleException : public std::runtime_error {
 public:
  explicit RekindleException(Error error) : std::runtime_error(error.message), code_(error.code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The value, or RekindleException. Needs no GIL.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw RekindleException(result.error());
  return std::move(result).value();
}
inline void value_or_throw(Status status) {
  if (!status.ok()) throw RekindleException(status.error());
}

}  // namespace rekindle::python

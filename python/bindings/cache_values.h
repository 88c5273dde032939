// What the cache's bindings share: its values as Python dicts, and calls without the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include "export_cache/export_cache.h"
#include "python/bindings/errors.h"

namespace rekindle::python {

// The value of `call()`, or its Error as an exception. `call` touches no Python.
template <typename Call>
auto without_gil(Call call) {
  const pybind11::gil_scoped_release release;
  return value_or_throw(call());
}

// The names of `rekindle cache ls --json`.
pybind11::dict as_dict(const EntryInfo& info);

}  // namespace rekindle::python

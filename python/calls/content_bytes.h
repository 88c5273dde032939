// What a tensor, or another object with a buffer, holds: for comparisons by content. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "src/base/digest.h"

namespace rekindle::python {

struct ContentBytes {
  std::string
      layout;     // format, sizes and strides of a buffer, and whether it may be written; empty for a tensor
  Digest digest;  // of the elements in order
  bool operator==(const ContentBytes&) const = default;
};

// None for an object that has no buffer.
std::optional<ContentBytes> bytes_of(const pybind11::object& object);

}  // namespace rekindle::python

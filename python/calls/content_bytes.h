// Digests what a tensor, or another object with a buffer, holds, so that a guard compares it by content.
// Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "src/base/digest.h"

namespace rekindle::python {

struct ContentBytes {
  // Of a buffer: format, sizes, strides, and whether it may be written. Empty for a tensor.
  std::string layout;
  Digest digest;  // of the elements in order
  bool operator==(const ContentBytes&) const = default;
};

// Returns std::nullopt for an object that has no buffer.
std::optional<ContentBytes> bytes_of(const pybind11::object& object);

}  // namespace rekindle::python

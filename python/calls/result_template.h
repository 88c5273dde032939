// ResultTemplate: how the result of a call is built from the outputs of its graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rekindle::python {

// For results of tensors and plain values in lists, tuples and dicts. Immutable. Needs the GIL.
class ResultTemplate {
 public:
  // From a structure as of python/rekindle/results/contract.py; none for one that only Python can rebuild.
  static std::optional<ResultTemplate> of(pybind11::handle structure);

  // The result: new containers around the outputs, and the inputs that are returned as they are. inputs: two
  // lists, of which the second continues the first. Throws IndexError where there are fewer than the
  // structure names.
  pybind11::object build(const std::vector<at::Tensor>& outputs, pybind11::handle inputs,
                         pybind11::handle more_inputs) const;

 private:
  enum class Kind : std::uint8_t { kOutput, kInput, kValue, kList, kTuple, kDict };
  explicit ResultTemplate(Kind kind) : kind_(kind) {}
  static std::optional<ResultTemplate> of_position(Kind kind, pybind11::handle content);
  static std::optional<ResultTemplate> of_items(Kind kind, pybind11::handle content);
  pybind11::object dict(const std::vector<at::Tensor>& outputs, pybind11::handle inputs,
                        pybind11::handle more_inputs) const;

  Kind kind_;
  std::size_t position_ = 0;            // of an output or input
  pybind11::object value_;              // itself
  std::vector<pybind11::object> keys_;  // of a dict
  std::vector<ResultTemplate> items_;   // of a list, tuple or dict
};

// Borrowed: the object at a position in two lists, of which the second continues the first. Throws
// IndexError.
PyObject* item_of(pybind11::handle list, pybind11::handle more, std::size_t position);

}  // namespace rekindle::python

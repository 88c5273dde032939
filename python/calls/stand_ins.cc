#include "python/calls/stand_ins.h"

#include <utility>
#include <vector>

namespace rekindle::python {

namespace py = pybind11;

namespace {

using Pairs = std::vector<std::pair<py::object, py::object>>;  // the second is null where nothing was

Pairs& stand_ins() {
  static Pairs* const only = new Pairs;  // never destroyed: it holds Python objects
  return *only;
}

}  // namespace

PyObject* find_original(PyObject* value) {
  for (const auto& [replacement, original] : stand_ins()) {
    if (replacement.ptr() == value) return original.ptr();
  }
  return value;
}

void set_stand_ins(const pybind11::list& pairs, const pybind11::object& absent) {
  Pairs now;
  for (const py::handle pair : pairs) {
    auto [replacement, original] = pair.cast<std::pair<py::object, py::object>>();
    now.emplace_back(std::move(replacement), original.is(absent) ? py::object() : std::move(original));
  }
  any_stand_ins = !now.empty();
  stand_ins().swap(now);
}

}  // namespace rekindle::python

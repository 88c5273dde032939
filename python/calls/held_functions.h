// HeldFunctions: the PythonOps of a graph, kept as long as a run that calls them lasts.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "python/calls/owned.h"
#include "session/host_function.h"

namespace rekindle::python {

namespace py = pybind11;

// A list of PythonOps, and pointers into it that keep it alive for runs that outlast its use.
class HeldFunctions {
 public:
  session::HostFunctions set(const py::list& functions) {
    list_ = std::make_shared<Owned<py::list>>(functions);
    session::HostFunctions pointers;
    for (const py::handle function : functions)
      pointers.emplace_back(list_, function.cast<session::HostFunction*>());
    return pointers;
  }

  PyObject* list() const { return list_ == nullptr ? nullptr : (*list_)->ptr(); }

 private:
  std::shared_ptr<Owned<py::list>> list_;
};

}  // namespace rekindle::python

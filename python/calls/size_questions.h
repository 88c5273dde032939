// SizeQuestions: a graph that is asked about sizes and never run.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "python/calls/held_functions.h"
#include "session/host_function.h"
#include "session/lower/infer_types.h"
#include "src/autodiff/gradient.h"

namespace rekindle::python {

class SizeQuestions {
 public:
  explicit SizeQuestions(autodiff::JointGraph joint) : joint_(std::move(joint)) {}

  // The PythonOps that the graph calls, as Session takes them.
  void set_functions(const py::list& functions) {
    functions_ = std::make_shared<const session::HostFunctions>(held_.set(functions));
  }

  // Returns what session::answer_from_sizes does for inputs of these sizes, and throws what it throws.
  std::vector<std::int64_t> answers(const std::vector<at::Tensor>& inputs) const {
    const session::HostScope scope(functions_);
    return session::answer_from_sizes(*joint_.graph, inputs);
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(held_.list());
    return 0;
  }
  void clear() { set_functions(py::list()); }

 private:
  autodiff::JointGraph joint_;
  HeldFunctions held_;
  std::shared_ptr<const session::HostFunctions> functions_ = std::make_shared<const session::HostFunctions>();
};

}  // namespace rekindle::python

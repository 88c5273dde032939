#include "python/calls/served_call.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace rekindle::python {

namespace py = pybind11;

ServedCall::ServedCall(std::shared_ptr<session::Session> session, py::list state,
                       std::vector<std::size_t> used, bool record, ResultTemplate result)
    : session_(std::move(session)),
      state_(std::move(state)),
      used_(std::move(used)),
      record_(record),
      result_(std::move(result)) {}

py::object ServedCall::operator()(const py::list& arguments) const {
  const py::list state = state_;  // another thread may clear it while the graph runs
  std::vector<at::Tensor> inputs, outputs;
  inputs.reserve(used_.size());
  for (const std::size_t position : used_) {
    PyObject* const input = item_of(arguments, state, position);
    if (!THPVariable_Check(input)) throw py::type_error("an input of a graph is no tensor");
    inputs.push_back(THPVariable_Unpack(input));
  }
  {
    const py::gil_scoped_release release;
    outputs = session_->forward(inputs, record_);
  }
  return result_.build(outputs, arguments, state);
}

int ServedCall::traverse(visitproc visit, void* arg) const {  // the names that Py_VISIT wants
  Py_VISIT(state_.ptr());
  return 0;
}

}  // namespace rekindle::python

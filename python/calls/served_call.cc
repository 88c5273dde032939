#include "python/calls/served_call.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "device/copies.h"
#include "python/calls/with_warnings.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

std::vector<at::Tensor> tensors_at(const std::vector<std::size_t>& positions, const py::list& arguments,
                                   const py::list& state) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(positions.size());
  for (const std::size_t position : positions) {
    PyObject* const input = item_of(arguments, state, position);
    if (!THPVariable_Check(input)) throw py::type_error("an input of a graph is no tensor");
    tensors.push_back(THPVariable_Unpack(input));
  }
  return tensors;
}

}  // namespace

ServedCall::ServedCall(std::shared_ptr<session::Session> session, Inputs inputs, StateWrites writes,
                       ResultTemplate result)
    : session_(std::move(session)),
      inputs_(std::move(inputs)),
      writes_(std::move(writes)),
      result_(std::move(result)) {
  const auto& positions = writes_.positions;
  for (const std::size_t position : inputs_.used) {
    const auto place = std::ranges::find(positions, position);
    copied_.push_back(place == positions.end() ? -1 : place - positions.begin());
  }
}

py::object ServedCall::operator()(const py::list& arguments) const {
  const py::list state = inputs_.state;  // another thread may clear it while the graph runs
  std::vector<at::Tensor> inputs = tensors_at(inputs_.used, arguments, state), before, outputs;
  const std::vector<at::Tensor> written = tensors_at(writes_.positions, arguments, state);
  outputs = with_warnings([&] {
    if (!written.empty()) {
      before = device::copies_of(written);  // a backward may read what was there
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (copied_[i] >= 0) inputs[i] = before[static_cast<std::size_t>(copied_[i])];
      }
    }
    return session_->forward(inputs, inputs_.record);
  });
  if (!written.empty()) {
    const py::gil_scoped_release release;
    write_outputs(writes_, written, before, outputs);
  }
  try {
    return result_.build(outputs, arguments, state);
  } catch (...) {
    if (!written.empty()) write_back(written, before);
    throw;
  }
}

int ServedCall::traverse(visitproc visit, void* arg) const {  // the names that Py_VISIT wants
  Py_VISIT(inputs_.state.ptr());
  return 0;
}

}  // namespace rekindle::python

#include "python/calls/python_op.h"

#include <ATen/ops/zeros.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

namespace rekindle::python {

namespace py = pybind11;

namespace {

py::object wrapped(const at::Tensor& tensor) {
  return tensor.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)) : py::none();
}

py::list wrapped(const std::vector<at::Tensor>& tensors) {
  py::list list;
  for (const at::Tensor& tensor : tensors) list.append(wrapped(tensor));
  return list;
}

bool has_version(const at::Tensor& tensor) { return tensor.defined() && !tensor.is_inference(); }

// Item `i` of what a Function returned: itself, unless that is a tuple.
py::handle item(py::handle result, std::size_t i) {
  return PyTuple_Check(result.ptr()) ? PyTuple_GET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i))
                                     : result.ptr();
}

std::size_t count(py::handle result) {
  return PyTuple_Check(result.ptr()) ? static_cast<std::size_t>(PyTuple_GET_SIZE(result.ptr())) : 1;
}

bool same_plain(py::handle a, py::handle b) {
  return a.ptr() == b.ptr() || (Py_TYPE(a.ptr()) == Py_TYPE(b.ptr()) && a.equal(b));
}

}  // namespace

PythonOp::PythonOp(PythonCall call)
    : call_(std::move(call)), told_(std::max<std::size_t>(call_->results.size(), 1), false) {}

session::HostResults PythonOp::call(const std::vector<at::Tensor>& inputs, const std::vector<bool>& own,
                                    const std::vector<at::Tensor>& planned) {
  const py::gil_scoped_acquire gil;
  std::vector<std::int64_t> versions;
  for (const at::Tensor& input : inputs) versions.push_back(has_version(input) ? input._version() : -1);
  const py::tuple given = arguments(inputs);
  const auto result =
      py::reinterpret_steal<py::object>(PyObject_Call(call_->apply.ptr(), given.ptr(), nullptr));
  if (!result) throw py::error_already_set();
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (versions[i] >= 0 && inputs[i]._version() != versions[i] && !writes(i)) written.push_back(i);
  }
  if (!written.empty()) call_->watch.attr("wrote")(written);
  if (!is_planned(result, planned)) call_->watch.attr("changed")(result);
  return results(result, inputs, own);
}

py::tuple PythonOp::arguments(const std::vector<at::Tensor>& inputs) const {
  if (!call_->make_arguments.is_none()) return py::tuple(call_->make_arguments(wrapped(inputs)));
  const auto size = static_cast<Py_ssize_t>(call_->arguments.size());
  py::tuple given(size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyTuple_SET_ITEM(given.ptr(), i, Py_NewRef(PyTuple_GET_ITEM(call_->arguments.ptr(), i)));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (call_->places[i] >= 0)
      PyTuple_SetItem(given.ptr(), call_->places[i], wrapped(inputs[i]).release().ptr());
  }
  return given;
}

bool PythonOp::is_planned(py::handle result, const std::vector<at::Tensor>& planned) const {
  const std::size_t size = count(result);
  if (size != call_->results.size() + call_->others.size()) return false;
  std::size_t next = 0, next_other = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const py::handle one = item(result, i);
    const bool tensor = next < call_->results.size() && call_->results[next] == i;
    if (THPVariable_Check(one.ptr()) != tensor) return false;
    if (!tensor) {
      if (!same_plain(one, call_->others[next_other++])) return false;
      continue;
    }
    const at::Tensor& given = THPVariable_Unpack(one.ptr());
    const at::Tensor& expected = planned.at(next++);
    if (!expected.defined() && given.layout() == at::kStrided) continue;
    if (given.layout() != at::kStrided || given.scalar_type() != expected.scalar_type() ||
        given.sizes() != expected.sizes()) {
      return false;
    }
  }
  return true;
}

session::HostResults PythonOp::results(py::handle result, const std::vector<at::Tensor>& inputs,
                                       const std::vector<bool>& own) {
  session::HostResults found;
  if (call_->results.empty()) {  // the node has a result that stands for having run
    found.tensors.push_back(at::zeros({}, at::TensorOptions()));
    found.copy.push_back(false);
  }
  for (std::size_t i = 0; i < call_->results.size(); ++i) {
    const at::Tensor& tensor = THPVariable_Unpack(item(result, call_->results[i]).ptr());
    const auto declared = call_->reuses.find(i);
    bool copy = false;
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (!inputs[j].defined() || !tensor.has_storage() || !inputs[j].has_storage() ||
          !tensor.is_alias_of(inputs[j]))
        continue;
      if (declared != call_->reuses.end()) continue;
      copy = copy || !own[j];
      if (!told_[i]) call_->watch.attr("reused")(i, j);
      told_[i] = true;
    }
    if (declared != call_->reuses.end() && !tensor.is_alias_of(inputs.at(declared->second)) &&
        tensor.numel() > 0) {
      call_->watch.attr("does_not_reuse")(i, declared->second);
    }
    found.tensors.push_back(tensor);
    found.copy.push_back(copy);
  }
  return found;
}

bool PythonOp::writes(std::size_t i) const {
  return std::find(call_->dirty.begin(), call_->dirty.end(), i) != call_->dirty.end();
}

bool PythonOp::may_overwrite(std::size_t i) const {
  return std::any_of(call_->reuses.begin(), call_->reuses.end(),
                     [i](const auto& reuse) { return reuse.second == i; });
}

void PythonOp::differs_in_gradients(const std::vector<std::int64_t>& now) {
  const py::gil_scoped_acquire gil;
  call_->watch.attr("differs_in_gradients")(now);
}

std::optional<std::vector<at::Tensor>> PythonOp::infer(const std::vector<at::Tensor>& inputs) const {
  const py::gil_scoped_acquire gil;
  if (call_->infer.is_none()) return std::nullopt;
  return call_->infer(wrapped(inputs)).cast<std::vector<at::Tensor>>();
}

int PythonOp::traverse(visitproc visit, void* arg) const {  // the names that Py_VISIT wants
  if (!call_) return 0;
  for (const py::handle object :
       {py::handle(call_->apply), py::handle(call_->arguments), py::handle(call_->make_arguments),
        py::handle(call_->others), py::handle(call_->watch), py::handle(call_->infer)}) {
    Py_VISIT(object.ptr());
  }
  return 0;
}

}  // namespace rekindle::python

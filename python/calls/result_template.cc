#include "python/calls/result_template.h"

#include <torch/csrc/autograd/python_variable.h>

#include <string>

namespace rekindle::python {

namespace py = pybind11;

namespace {

bool is_plain(py::handle value) {
  PyObject* const object = value.ptr();
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
         PyFloat_CheckExact(object) || PyUnicode_CheckExact(object);
}

py::object as_object(const at::Tensor& tensor) {
  auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  if (!object) throw py::error_already_set();
  return object;
}

}  // namespace

PyObject* item_of(py::handle list, py::handle more, std::size_t position) {
  const auto size = static_cast<std::size_t>(PyList_GET_SIZE(list.ptr()));
  const bool first = position < size;
  if (!first) position -= size;
  PyObject* const holder = first ? list.ptr() : more.ptr();
  if (position >= static_cast<std::size_t>(PyList_GET_SIZE(holder)))
    throw py::index_error("a graph names more inputs than there are");
  return PyList_GET_ITEM(holder, static_cast<Py_ssize_t>(position));
}

std::optional<ResultTemplate> ResultTemplate::of(py::handle structure) {
  if (!PyDict_CheckExact(structure.ptr()) || PyDict_GET_SIZE(structure.ptr()) != 1) return std::nullopt;
  const auto [name, content] = *py::reinterpret_borrow<py::dict>(structure).begin();
  if (!PyUnicode_CheckExact(name.ptr())) return std::nullopt;
  const auto kind = name.cast<std::string>();
  if (kind == "output") return of_position(Kind::kOutput, content);
  if (kind == "input") return of_position(Kind::kInput, content);
  if (kind == "list") return of_items(Kind::kList, content);
  if (kind == "tuple") return of_items(Kind::kTuple, content);
  if (kind == "dict") return of_items(Kind::kDict, content);
  if (kind != "value" || !is_plain(content)) return std::nullopt;
  ResultTemplate made(Kind::kValue);
  made.value_ = py::reinterpret_borrow<py::object>(content);
  return made;
}

std::optional<ResultTemplate> ResultTemplate::of_position(Kind kind, py::handle content) {
  if (!PyLong_CheckExact(content.ptr())) return std::nullopt;
  ResultTemplate made(kind);
  made.position_ = PyLong_AsSize_t(content.ptr());
  if (PyErr_Occurred() != nullptr) {  // one from the end, as no export writes it
    PyErr_Clear();
    return std::nullopt;
  }
  return made;
}

std::optional<ResultTemplate> ResultTemplate::of_items(Kind kind, py::handle content) {
  if (!PyList_CheckExact(content.ptr())) return std::nullopt;
  ResultTemplate made(kind);
  for (py::handle item : py::reinterpret_borrow<py::list>(content)) {
    if (kind == Kind::kDict) {
      if (!PyList_CheckExact(item.ptr()) || PyList_GET_SIZE(item.ptr()) != 2) return std::nullopt;
      const py::handle key = PyList_GET_ITEM(item.ptr(), 0);
      if (!is_plain(key)) return std::nullopt;
      made.keys_.push_back(py::reinterpret_borrow<py::object>(key));
      item = PyList_GET_ITEM(item.ptr(), 1);
    }
    auto part = of(item);
    if (!part) return std::nullopt;
    made.items_.push_back(std::move(*part));
  }
  return made;
}

py::object ResultTemplate::build(const std::vector<at::Tensor>& outputs, py::handle inputs,
                                 py::handle more_inputs) const {
  switch (kind_) {
    case Kind::kOutput:
      if (position_ >= outputs.size()) throw py::index_error("a result names more outputs than there are");
      return as_object(outputs[position_]);
    case Kind::kInput:
      return py::reinterpret_borrow<py::object>(item_of(inputs, more_inputs, position_));
    case Kind::kValue:
      return value_;
    case Kind::kDict:
      return dict(outputs, inputs, more_inputs);
    case Kind::kList: {
      py::list list(items_.size());
      for (std::size_t i = 0; i < items_.size(); ++i) list[i] = items_[i].build(outputs, inputs, more_inputs);
      return list;
    }
    case Kind::kTuple: {
      py::tuple tuple(items_.size());
      for (std::size_t i = 0; i < items_.size(); ++i)
        tuple[i] = items_[i].build(outputs, inputs, more_inputs);
      return tuple;
    }
  }
  return py::none();
}

py::object ResultTemplate::dict(const std::vector<at::Tensor>& outputs, py::handle inputs,
                                py::handle more_inputs) const {
  py::dict dict;
  for (std::size_t i = 0; i < items_.size(); ++i)
    dict[keys_[i]] = items_[i].build(outputs, inputs, more_inputs);
  return dict;
}

}  // namespace rekindle::python

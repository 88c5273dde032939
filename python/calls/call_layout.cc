#include "python/calls/call_layout.h"

#include <ATen/core/grad_mode.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace rekindle::python {
namespace {

enum class Tag : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kDtype,
  kDevice,
  kLayout,
  kMemoryFormat,
  kTensor,
  kList,
  kTuple,
  kDict,
  kOrderedDict,
  kAgain,
  kToldApart,
  kOther
};

constexpr int kDeepest = 16;  // containers in containers; a container may hold itself

template <typename T>
bool is_exactly(PyObject* value, const T& type) {
  return reinterpret_cast<const void*>(Py_TYPE(value)) == reinterpret_cast<const void*>(&type);
}

}  // namespace

bool CallLayout::describe(PyObject* args, PyObject* kwargs) {
  words_.clear();
  tensors_.clear();
  containers_.clear();
  is_whole_.clear();
  if (torch::jit::tracer::isTracing()) return false;
  put(at::GradMode::is_enabled(), PyTuple_GET_SIZE(args));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (!add(PyTuple_GET_ITEM(args, i), 0)) return false;
  }
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(kwargs, &position, &name, &value);) {
    if (!PyUnicode_CheckExact(name) || !add_text(name) || !add(value, 0)) return false;
  }
  return true;
}

bool CallLayout::add(PyObject* value, int depth) {
  if (THPVariable_CheckExact(value)) return add_tensor(value);
  if (PyTuple_CheckExact(value)) return depth < kDeepest && add_items(value, depth + 1);
  if (PyList_CheckExact(value) || PyDict_CheckExact(value) || PyODict_CheckExact(value))
    return depth < kDeepest && add_container(value, depth + 1);
  if (by_class_.contains(reinterpret_cast<PyObject*>(Py_TYPE(value))))
    return put(Tag::kOther, reinterpret_cast<std::intptr_t>(Py_TYPE(value)));
  return add_plain(value);
}

// By value and by class: 1, 1.0 and True are three.
bool CallLayout::add_plain(PyObject* value) {
  if (value == Py_None) return put(Tag::kNone);
  if (PyBool_Check(value)) return put(Tag::kBool, value == Py_True);
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 && put(Tag::kInt, number);
  }
  if (PyFloat_CheckExact(value))
    return put(Tag::kFloat, std::bit_cast<std::int64_t>(PyFloat_AS_DOUBLE(value)));
  if (PyUnicode_CheckExact(value)) return add_text(value);
  if (is_exactly(value, THPDtypeType))
    return put(Tag::kDtype, reinterpret_cast<THPDtype*>(value)->scalar_type);
  if (is_exactly(value, THPDeviceType)) {
    const at::Device device = reinterpret_cast<THPDevice*>(value)->device;
    return put(Tag::kDevice, device.type(), device.index());
  }
  if (is_exactly(value, THPLayoutType)) return put(Tag::kLayout, reinterpret_cast<THPLayout*>(value)->layout);
  if (is_exactly(value, THPMemoryFormatType))
    return put(Tag::kMemoryFormat, reinterpret_cast<THPMemoryFormat*>(value)->memory_format);
  return false;
}

bool CallLayout::add_text(PyObject* text) {
#if PY_VERSION_HEX < 0x030C0000
  if (PyUnicode_IS_READY(text) == 0) return false;  // later, there is no other
#endif
  const auto size = static_cast<std::size_t>(PyUnicode_GET_LENGTH(text)) * PyUnicode_KIND(text);
  put(Tag::kText, PyUnicode_GET_LENGTH(text), PyUnicode_KIND(text));
  const std::size_t begin = words_.size(), word = sizeof(std::int64_t);
  words_.resize(begin + (size + word - 1) / word);  // zeros after the end of the text
  if (size > 0) std::memcpy(words_.data() + begin, PyUnicode_DATA(text), size);
  return true;
}

bool CallLayout::add_tensor(PyObject* object) {
  PyObject** const attributes = _PyObject_GetDictPtr(object);
  if (attributes != nullptr && *attributes != nullptr && PyDict_GET_SIZE(*attributes) > 0) return false;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_nested() ||
      tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides())
    return false;
  put(Tag::kTensor, position_of(object), reinterpret_cast<std::intptr_t>(Py_TYPE(object)),
      tensor.scalar_type(), tensor.device().type(), tensor.device().index(), tensor.requires_grad(),
      tensor.key_set().raw_repr(), tensor.dim());
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  words_.insert(words_.end(), sizes.begin(), sizes.end());
  words_.insert(words_.end(), strides.begin(), strides.end());
  return true;
}

// By identity, too: a forward may ask whether two of them are one.
bool CallLayout::add_container(PyObject* container, int depth) {
  const auto known = std::ranges::find(containers_, container);
  const auto position = static_cast<std::size_t>(known - containers_.begin());
  if (known != containers_.end()) return is_whole_[position] && put(Tag::kAgain, position);
  containers_.push_back(container);
  is_whole_.push_back(false);
  if (told_apart_.contains(container)) put(Tag::kToldApart, reinterpret_cast<std::intptr_t>(container));
  if (!(PyODict_CheckExact(container) ? add_ordered(container, depth) : add_items(container, depth)))
    return false;
  is_whole_[position] = true;
  return true;
}

bool CallLayout::add_items(PyObject* container, int depth) {
  if (PyDict_CheckExact(container)) {
    put(Tag::kDict, PyDict_GET_SIZE(container));
    PyObject *name = nullptr, *value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(container, &position, &name, &value);) {
      if (!add_plain(name) || !add(value, depth)) return false;
    }
    return true;
  }
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(container);
  put(PyList_CheckExact(container) ? Tag::kList : Tag::kTuple, size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!add(PySequence_Fast_GET_ITEM(container, i), depth)) return false;
  }
  return true;
}

// In an order of its own, which it tells only of keys that it can hash: texts run no code of Python's.
bool CallLayout::add_ordered(PyObject* container, int depth) {
  put(Tag::kOrderedDict, PyDict_GET_SIZE(container));
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(container, &position, &name, &value);) {
    if (!PyUnicode_CheckExact(name)) return false;
  }
  for (const pybind11::handle key : pybind11::iter(container)) {
    if (!add_text(key.ptr()) || !add(PyDict_GetItem(container, key.ptr()), depth)) return false;
  }
  return true;
}

std::int64_t CallLayout::position_of(PyObject* tensor) {
  const auto known = std::ranges::find(tensors_, tensor);
  const auto position = known - tensors_.begin();
  if (known == tensors_.end()) tensors_.push_back(tensor);
  return position;
}

}  // namespace rekindle::python

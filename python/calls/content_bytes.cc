#include "python/calls/content_bytes.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace rekindle::python {

namespace py = pybind11;

namespace {

std::string layout_of(const Py_buffer& view) {
  std::string layout = view.format == nullptr ? "B" : view.format;
  for (int i = 0; i < view.ndim; ++i) {
    layout += ' ' + std::to_string(view.shape[i]) + ':' + std::to_string(view.strides[i]);
  }
  return layout + (view.readonly != 0 ? " readonly" : "");
}

// Integers over the memory of a buffer, whose copy is much faster than PyBuffer_ToContiguous; undefined where
// its items or strides are none that tensors have.
at::Tensor integers_over(const Py_buffer& view) {
  constexpr std::array kTypes{std::pair{1, at::kByte}, std::pair{2, at::kShort}, std::pair{4, at::kInt},
                              std::pair{8, at::kLong}};
  const auto* const type =
      std::ranges::find_if(kTypes, [&](const auto& each) { return each.first == view.itemsize; });
  if (type == kTypes.end() || view.suboffsets != nullptr) return {};
  std::vector<std::int64_t> strides;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.strides[i] < 0 || view.strides[i] % view.itemsize != 0) return {};
    strides.push_back(view.strides[i] / view.itemsize);
  }
  return at::from_blob(view.buf, at::IntArrayRef(view.shape, static_cast<std::size_t>(view.ndim)), strides,
                       at::TensorOptions().dtype(type->second));
}

}  // namespace

std::optional<ContentBytes> bytes_of(const py::object& object) {
  if (THPVariable_Check(object.ptr())) {
    const at::Tensor tensor = THPVariable_Unpack(object.ptr()).detach().contiguous();
    return ContentBytes{"", digest_of({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()})};
  }
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto size = static_cast<std::size_t>(view.len);
  const auto* data = static_cast<const char*>(view.buf);
  at::Tensor copy;
  std::string slow_copy;
  if (PyBuffer_IsContiguous(&view, 'A') == 0) {
    copy = integers_over(view);
    if (copy.defined()) {
      copy = copy.contiguous();
      data = static_cast<const char*>(copy.const_data_ptr());
    } else {
      slow_copy.resize(size);
      PyBuffer_ToContiguous(slow_copy.data(), &view, view.len, 'C');
      data = slow_copy.data();
    }
  }
  ContentBytes bytes{layout_of(view), digest_of({data, size})};
  PyBuffer_Release(&view);
  return bytes;
}

}  // namespace rekindle::python

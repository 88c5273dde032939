#include "python/bindings/guard.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include "python/bindings/stand_ins.h"

namespace rekindle::python {

namespace py = pybind11;

std::vector<std::int64_t> ambient_state() {
  const at::Context& context = at::globalContext();
  std::vector<std::int64_t> state{
      at::GradMode::is_enabled(),
      c10::InferenceMode::is_enabled(),
      static_cast<std::int64_t>(c10::get_default_dtype_as_scalartype()),
      context.deterministicAlgorithms(),
      context.deterministicAlgorithmsWarnOnly(),
      static_cast<std::int64_t>(context.float32MatmulPrecision()),
      context.userEnabledMkldnn(),
      context.userEnabledFlashSDP(),
      context.userEnabledMemEfficientSDP(),
      context.userEnabledMathSDP(),
      context.userEnabledCuDNNSDP(),
      context.userEnabledCuDNN(),
      context.benchmarkCuDNN(),
      context.deterministicCuDNN(),
      context.deterministicFillUninitializedMemory(),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::RNN)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL)),
      static_cast<std::int64_t>(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV)),
      at::autocast::is_autocast_cache_enabled(),
      torch::autograd::AnomalyMode::is_enabled(),
      torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr,
      at::impl::PythonTorchFunctionTLS::stack_len(),
      c10::impl::TorchDispatchModeTLS::stack_len(),
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode),
      static_cast<std::int64_t>(at::SavedTensorDefaultHooks::get_tls_state().stack.size()),
      torch::jit::tracer::isTracing(),
  };
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    state.push_back(at::autocast::is_autocast_enabled(device));
    state.push_back(static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device)));
  }
  return state;
}

namespace {

// Borrowed: the dict of a dict or class; null for anything else.
PyObject* table_of(PyObject* object) {
  if (PyDict_Check(object)) return object;
  if (!PyType_Check(object)) return nullptr;
  auto* type = reinterpret_cast<PyTypeObject*>(object);
#if PY_VERSION_HEX >= 0x030C0000
  PyObject* table = PyType_GetDict(type);
  Py_DECREF(table);  // the class keeps it
  return table;
#else
  return type->tp_dict;
#endif
}

// Changes with every change of a dict and is never used again; 0 where Python keeps no such number. The order
// of an OrderedDict is not part of its dict.
std::uint64_t version_of(PyObject* object) {
#if PY_VERSION_HEX < 0x030C0000
  if (PyODict_Check(object) && PyDict_GET_SIZE(object) > 1) return 0;
  if (PyObject* table = table_of(object)) return reinterpret_cast<PyDictObject*>(table)->ma_version_tag;
#endif
  static_cast<void>(object);
  return 0;
}

template <typename Visit>
bool visit_table(PyObject* table, Visit visit) {
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(table, &position, &key, &value);) {
    value = stands_for(value);
    if (value != nullptr && !(visit(key) && visit(value))) return false;
  }
  return true;
}

template <typename Visit>
bool visit_ordered(PyObject* table, Visit visit) {
  for (const py::handle key : py::reinterpret_borrow<py::object>(table)) {
    if (!visit(key.ptr()) || !visit(PyDict_GetItem(table, key.ptr()))) return false;
  }
  return true;
}

template <typename Visit>
bool visit_function(PyObject* object, Visit visit) {
  if (!visit(PyFunction_GET_CODE(object)) || !visit(PyFunction_GET_DEFAULTS(object)) ||
      !visit(PyFunction_GET_KW_DEFAULTS(object))) {
    return false;
  }
  PyObject* closure = PyFunction_GET_CLOSURE(object);
  for (Py_ssize_t i = 0; closure != nullptr && i < PyTuple_GET_SIZE(closure); ++i) {
    if (!visit(PyCell_GET(PyTuple_GET_ITEM(closure, i)))) return false;
  }
  PyObject* attributes = reinterpret_cast<PyFunctionObject*>(object)->func_dict;  // null until one is set
  return attributes == nullptr || visit_table(attributes, visit);
}

// Calls `visit` with each borrowed part, which may be null, until it returns false.
template <typename Visit>
bool visit_parts(PyObject* object, Visit visit) {
  if (PyODict_Check(object)) return visit_ordered(object, visit);
  if (PyObject* table = table_of(object)) return visit_table(table, visit);
  if (PyFunction_Check(object)) return visit_function(object, visit);
  if (!PyList_Check(object) && !PyTuple_Check(object)) return true;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    if (!visit(PySequence_Fast_GET_ITEM(object, i))) return false;
  }
  return true;
}

// The items of a set in their order, taken past what a subclass makes of it.
py::object in_order(PyObject* set) {
  const auto plain = py::reinterpret_steal<py::object>(PySet_Type.tp_iter(set));
  auto items = py::reinterpret_steal<py::object>(plain ? PySequence_Tuple(plain.ptr()) : nullptr);
  if (!items) throw py::error_already_set();
  return items;
}

bool same_order(PyObject* set, PyObject* items) {
  const Py_ssize_t size = PyTuple_GET_SIZE(items);
  if (PySet_GET_SIZE(set) != size) return false;
  if (size == 0) return true;
  const py::object now = in_order(set);
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (PyTuple_GET_ITEM(now.ptr(), i) != PyTuple_GET_ITEM(items, i)) return false;
  }
  return true;
}

// Borrowed: the bases of a class, in the order in which they are searched; null for anything else.
PyObject* bases_of(PyObject* object) {
  return PyType_Check(object) ? reinterpret_cast<PyTypeObject*>(object)->tp_mro : nullptr;
}

// Digest of the bytes of a tensor or of an object with a buffer; none when they cannot be read.
std::optional<Digest> content_digest(const py::object& object) {
  if (THPVariable_Check(object.ptr())) {
    const at::Tensor tensor = THPVariable_Unpack(object.ptr()).detach().contiguous();
    return digest_of({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_ANY_CONTIGUOUS) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const Digest digest = digest_of({static_cast<const char*>(view.buf), static_cast<std::size_t>(view.len)});
  PyBuffer_Release(&view);
  return digest;
}

}  // namespace

Guard::Guard(const py::list& containers, const std::vector<at::Tensor>& tensors, const py::list& items,
             const py::list& contents, const py::list& reads)
    : ambient_(ambient_state()) {
  for (const py::handle handle : containers) {
    Container container{py::reinterpret_borrow<py::object>(handle),
                        py::type::of(handle),
                        py::reinterpret_borrow<py::object>(bases_of(handle.ptr())),
                        {},
                        version_of(handle.ptr())};
    if (PyAnySet_Check(handle.ptr())) {
      container.items.push_back(in_order(handle.ptr()));
    } else {
      visit_parts(handle.ptr(), [&](PyObject* part) {
        container.items.push_back(py::reinterpret_borrow<py::object>(part));
        return true;
      });
    }
    containers_.push_back(std::move(container));
  }
  for (const at::Tensor& tensor : tensors) add(tensor);
  for (const py::handle handle : items) {
    const auto [container, key] = handle.cast<std::pair<py::object, py::object>>();
    PyObject* table = table_of(container.ptr());
    if (table == nullptr) throw py::type_error("a guard's item is neither in a dict nor in a class");
    PyObject* const value = stands_for(PyDict_GetItem(table, key.ptr()));
    items_.push_back({container, key, py::reinterpret_borrow<py::object>(value)});
  }
  for (const py::handle handle : contents) {
    const auto object = py::reinterpret_borrow<py::object>(handle);
    if (THPVariable_Check(object.ptr())) add(THPVariable_Unpack(object.ptr()));
    contents_.push_back({object, content_digest(object)});
  }
  for (const py::handle handle : reads) {
    const auto [object, function] = handle.cast<std::pair<py::object, py::object>>();
    reads_.push_back({object, function, function(object).cast<py::tuple>()});
  }
}

void Guard::add(const at::Tensor& tensor) {
  tensors_.push_back({tensor, tensor.scalar_type(), tensor.device(), tensor.sizes().vec(),
                      tensor.strides().vec(), tensor.requires_grad()});
}

bool Guard::same(const Container& container) {
  PyObject* object = container.object.ptr();
  if (py::type::handle_of(object).ptr() != container.type.ptr()) return false;
  if (bases_of(object) != container.bases.ptr()) return false;
  const std::uint64_t version = version_of(object);
  if (version != 0 && version == container.version) return true;
  if (PyAnySet_Check(object)) return same_order(object, container.items[0].ptr());
  std::size_t i = 0;
  const bool equal = visit_parts(object, [&](PyObject* part) {
    return i < container.items.size() && container.items[i++].ptr() == part;
  });
  if (!equal || i != container.items.size()) return false;
  container.version = version;
  return true;
}

bool Guard::same(const Item& item) {
  return stands_for(PyDict_GetItem(table_of(item.container.ptr()), item.key.ptr())) == item.value.ptr();
}

bool Guard::same(const Content& content) {
  return content.digest.has_value() && content_digest(content.object) == content.digest;
}

bool Guard::same(const Read& read) {
  const auto now = read.function(read.object).cast<py::tuple>();
  if (now.size() != read.parts.size()) return false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const py::object old = read.parts[i], part = now[i];
    const bool equal =
        part.is(old) || (PyLong_CheckExact(old.ptr()) && PyLong_CheckExact(part.ptr()) && part.equal(old));
    if (!equal) return false;
  }
  return true;
}

bool Guard::same(const TensorState& state) {
  const at::Tensor& tensor = state.tensor;
  return tensor.scalar_type() == state.dtype && tensor.requires_grad() == state.requires_grad &&
         tensor.device() == state.device && tensor.sizes() == state.sizes &&
         tensor.strides() == state.strides;
}

bool Guard::check() const {
  for (const Container& container : containers_) {
    if (!same(container)) return false;
  }
  for (const TensorState& tensor : tensors_) {
    if (!same(tensor)) return false;
  }
  for (const Item& item : items_) {
    if (!same(item)) return false;
  }
  for (const Content& content : contents_) {
    if (!same(content)) return false;
  }
  for (const Read& read : reads_) {
    if (!same(read)) return false;
  }
  return ambient_ == ambient_state();
}

}  // namespace rekindle::python

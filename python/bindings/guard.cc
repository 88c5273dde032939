#include "python/bindings/guard.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/jit/frontend/tracer.h>

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
      at::impl::PythonTorchFunctionTLS::stack_len(),
      c10::impl::TorchDispatchModeTLS::stack_len(),
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode),
      torch::jit::tracer::isTracing(),
  };
  for (const c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    state.push_back(at::autocast::is_autocast_enabled(device));
    state.push_back(static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device)));
  }
  return state;
}

Guard::Guard(const py::list& containers, const std::vector<at::Tensor>& tensors) : ambient_(ambient_state()) {
  for (const py::handle handle : containers) {
    Container container{py::reinterpret_borrow<py::object>(handle), {}};
    if (PyDict_Check(handle.ptr())) {
      PyObject *key = nullptr, *value = nullptr;
      for (Py_ssize_t position = 0; PyDict_Next(handle.ptr(), &position, &key, &value);) {
        container.items.push_back(py::reinterpret_borrow<py::object>(key));
        container.items.push_back(py::reinterpret_borrow<py::object>(value));
      }
    } else if (PyAnySet_Check(handle.ptr())) {
      container.items.push_back(py::reinterpret_steal<py::object>(PyFrozenSet_New(handle.ptr())));
    } else {
      for (const py::handle item : handle) container.items.push_back(py::reinterpret_borrow<py::object>(item));
    }
    containers_.push_back(std::move(container));
  }
  for (const at::Tensor& tensor : tensors) {
    tensors_.push_back({tensor, tensor.scalar_type(), tensor.device(), tensor.sizes().vec(), tensor.strides().vec(),
                        tensor.requires_grad()});
  }
}

bool Guard::same(const Container& container) {
  PyObject* object = container.object.ptr();
  if (PyDict_Check(object)) {
    if (2 * static_cast<std::size_t>(PyDict_Size(object)) != container.items.size()) return false;
    PyObject *key = nullptr, *value = nullptr;
    std::size_t i = 0;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &value); i += 2) {
      if (key != container.items[i].ptr() || value != container.items[i + 1].ptr()) return false;
    }
    return true;
  }
  if (PyAnySet_Check(object)) return container.object.equal(container.items[0]);
  if (!PyList_Check(object) && !PyTuple_Check(object)) return false;
  if (static_cast<std::size_t>(PySequence_Fast_GET_SIZE(object)) != container.items.size()) return false;
  PyObject** items = PySequence_Fast_ITEMS(object);
  for (std::size_t i = 0; i < container.items.size(); ++i) {
    if (items[i] != container.items[i].ptr()) return false;
  }
  return true;
}

bool Guard::same(const TensorState& state) {
  const at::Tensor& tensor = state.tensor;
  return tensor.scalar_type() == state.dtype && tensor.requires_grad() == state.requires_grad &&
         tensor.device() == state.device && tensor.sizes() == state.sizes && tensor.strides() == state.strides;
}

bool Guard::check() const {
  for (const Container& container : containers_) {
    if (!same(container)) return false;
  }
  for (const TensorState& tensor : tensors_) {
    if (!same(tensor)) return false;
  }
  return ambient_ == ambient_state();
}

}  // namespace rekindle::python

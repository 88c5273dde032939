#include "python/bindings/errors.h"

#include <array>
#include <string>

namespace py = pybind11;

namespace rekindle::python {
namespace {

// In the order of ErrorCode.
constexpr std::array<const char*, 6> kNames = {"NotFound",    "Corruption", "InvalidArgument",
                                               "Unsupported", "Io",         "Internal"};
// Owned by the module, which is never unloaded.
std::array<PyObject*, kNames.size()> classes{};

py::object new_exception(const py::module_& m, const char* name, PyObject* base) {
  const std::string full = py::cast<std::string>(m.attr("__name__")) + "." + name;
  auto made = py::reinterpret_steal<py::object>(PyErr_NewException(full.c_str(), base, nullptr));
  if (!made) throw py::error_already_set();
  return made;
}

}  // namespace

void bind_errors(py::module_& m) {
  const py::object base = new_exception(m, "RekindleError", PyExc_RuntimeError);
  m.attr("RekindleError") = base;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    py::object made = new_exception(m, kNames[i], base.ptr());
    m.attr(kNames[i]) = made;
    classes[i] = made.release().ptr();
  }
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const RekindleException& e) {
      PyErr_SetString(classes[static_cast<std::size_t>(e.code())], e.what());
    }
  });
}

}  // namespace rekindle::python

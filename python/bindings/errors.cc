#include "python/bindings/errors.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <string>

#include "session/lower/plan_mismatch.h"
#include "session/run/error_note.h"

namespace py = pybind11;

namespace rekindle::python {
namespace {

// In the order of ErrorCode.
constexpr std::array<const char*, 6> kNames = {"NotFound",    "Corruption", "InvalidArgument",
                                               "Unsupported", "Io",         "Internal"};
// Owned by the module, which is never unloaded.
std::array<PyObject*, kNames.size()> classes{};
PyObject* plan_mismatch = nullptr;

py::object new_exception(const py::module_& m, const char* name, PyObject* base) {
  const std::string full = py::cast<std::string>(m.attr("__name__")) + "." + name;
  auto made = py::reinterpret_steal<py::object>(PyErr_NewException(full.c_str(), base, nullptr));
  if (!made) throw py::error_already_set();
  return made;
}

// exception.add_note(text), which Python has from 3.11 on.
void add_note(PyObject* exception, const std::string& text) {
  if (exception == nullptr || !PyObject_HasAttrString(exception, "add_note")) return;
  const auto added =
      py::reinterpret_steal<py::object>(PyObject_CallMethod(exception, "add_note", "s", text.c_str()));
  if (!added) PyErr_Clear();
}

void note_python_error(const std::string& text) {
  const py::gil_scoped_acquire gil;
  try {
    throw;
  } catch (python_error& error) {
    error.persist();              // when nobody has: Python's own record of it
    const py::error_scope again;  // the engine leaves one behind
    PyErr_NormalizeException(&error.type, &error.value, &error.traceback);
    add_note(error.value, text);
  } catch (const py::error_already_set& error) {
    add_note(error.value().ptr(), text);
  } catch (...) {
    // An error of no language that has notes: it goes on without one, for
    // the caller (executor.cc) throws it again.
  }
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
  py::object mismatch = new_exception(m, "PlanMismatch", PyExc_RuntimeError);
  m.attr("PlanMismatch") = mismatch;
  plan_mismatch = mismatch.release().ptr();
  session::set_error_note(&note_python_error);
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const RekindleException& e) {
      PyErr_SetString(classes[static_cast<std::size_t>(e.code())], e.what());
    } catch (const session::PlanMismatch& e) {
      PyErr_SetString(plan_mismatch, e.what_without_backtrace());
    } catch (const c10::Error&) {
      torch::translate_exception_to_python(raised);  // IndexError, LinAlgError, ..., as in eager
    } catch (const python_error&) {
      torch::translate_exception_to_python(raised);
    }
  });
}

}  // namespace rekindle::python

#include "python/recording/audit.h"

#include <stdexcept>
#include <string_view>
#include <unordered_set>

namespace rekindle::python {

namespace py = pybind11;

namespace {

// Who is told of audited events on this thread. Python has no way to take a hook away: it asks this.
struct Auditor {
  PyObject* told = nullptr;  // a reference of its own
  bool telling = false;
};

Auditor& auditor() {
  static thread_local Auditor of_thread;
  return of_thread;
}

// What happens all the time, and what other means see.
bool is_everyday(std::string_view event) {
  static const auto* const events =
      new std::unordered_set<std::string_view>{"import",
                                               "compile",
                                               "exec",
                                               "marshal.loads",
                                               "marshal.dumps",
                                               "code.__new__",
                                               "function.__new__",
                                               "builtins.id",
                                               "object.__getattr__",
                                               "object.__setattr__",
                                               "array.__new__",
                                               "pickle.find_class",
                                               "sys._getframe",
                                               "sys.addaudithook",
                                               "object.__delattr__",
                                               "sys.settrace",
                                               "sys.setprofile",
                                               "marshal.load",
                                               "cpython.PyInterpreterState_New"};
  return events->contains(event);
}

int on_audit(const char* event, PyObject*, void*) {
  if (!Py_IsInitialized()) return 0;
  Auditor& asked = auditor();
  if (asked.told == nullptr || asked.telling || is_everyday(event)) return 0;
  asked.telling = true;
  PyObject* const result = PyObject_CallFunction(asked.told, "s", event);
  asked.telling = false;
  Py_XDECREF(result);
  return result == nullptr ? -1 : 0;
}

}  // namespace

void set_audit(const py::object& told) {
  static const bool added = PySys_AddAuditHook(&on_audit, nullptr) == 0;
  if (!added) throw std::runtime_error("Python takes no audit hook");
  Auditor& asked = auditor();
  PyObject* const before = asked.told;
  asked.told = told.is_none() ? nullptr : told.inc_ref().ptr();
  Py_XDECREF(before);
}

}  // namespace rekindle::python

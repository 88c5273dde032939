// Being told, on the current thread, of Python code that starts and of C functions that are called: the
// profile hook of Python before 3.12, which is told before the call. Its contract is call_hook in
// python/rekindle/recording/interpreter_events.py. In C++ because an export makes some hundred thousand such
// events, of which a few hundred matter. And of what Python audits, see `set_audit`.
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

class ProfileHook {
 public:
  ProfileHook(py::object on_start, py::object on_call, py::object judge, py::object side)
      : on_start_(std::move(on_start)),
        on_call_(std::move(on_call)),
        judge_(std::move(judge)),
        side_(std::move(side)) {}

  void start(const py::object& self) {
    previous_ = py::module_::import("sys").attr("getprofile")();
    active_ = {self.ptr(), this};
    PyEval_SetProfile(&ProfileHook::on_event, self.ptr());
  }

  // Restores what was there before. Lets go of the callbacks: they lead back here, where no collector looks.
  void stop() {
    py::module_::import("sys").attr("setprofile")(std::exchange(previous_, py::none()));
    active_ = {};
    on_start_ = on_call_ = judge_ = side_ = py::none();
    done_.clear();
    sides_.clear();
    verdicts_.clear();
  }

  // As a profile function set from Python: the forward may put this one aside and back.
  void call(const py::object& frame, const std::string& event, const py::object& argument) {
    if (event == "call") started(reinterpret_cast<PyFrameObject*>(frame.ptr()));
    if (event == "c_call") called(frame, argument.ptr());
  }

 private:
  static int on_event(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) {
    if (what != PyTrace_CALL && what != PyTrace_C_CALL) return 0;
    try {
      auto& hook = self == active_.first ? *active_.second : py::handle(self).cast<ProfileHook&>();
      if (what == PyTrace_CALL) hook.started(frame);
      if (what == PyTrace_C_CALL) hook.called(reinterpret_cast<PyObject*>(frame), argument);
      return 0;
    } catch (py::error_already_set& error) {
      error.restore();
      return -1;
    }
  }

  void started(PyFrameObject* frame) {
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    if (done_.contains(code.ptr())) return;
    if (py::cast<bool>(on_start_(py::handle(reinterpret_cast<PyObject*>(frame)))))
      done_.emplace(code.ptr(), code);
  }

  void called(py::handle frame, PyObject* function) {
    if ((side_of(frame) & verdict_of(function)) != 0) on_call_(frame, py::handle(function));
  }

  int side_of(py::handle frame) {
    auto* const running = reinterpret_cast<PyFrameObject*>(frame.ptr());
    auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(running)));
    const auto known = sides_.find(code.ptr());
    if (known != sides_.end()) return known->second.first;
    const int side = py::cast<int>(side_(frame));
    sides_.emplace(code.ptr(), std::pair(side, code));
    return side;
  }

  // All objects that stand for a function of C, a method bound to other objects say, share its definition.
  int verdict_of(PyObject* function) {
    if (!PyCFunction_Check(function)) return py::cast<int>(judge_(py::handle(function)));
    PyMethodDef* const definition = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
    const auto known = verdicts_.find(definition);
    if (known != verdicts_.end()) return known->second.first;
    const int verdict = py::cast<int>(judge_(py::handle(function)));
    PyObject* const self = PyCFunction_GET_SELF(function);
    const bool is_method = self != nullptr && !PyModule_Check(self) && !PyCapsule_CheckExact(self);
    auto kept = py::reinterpret_borrow<py::object>(is_method ? Py_None : function);
    verdicts_.emplace(definition, std::pair(verdict, std::move(kept)));
    return verdict;
  }

  // Spares most events the cast. Between start and stop the interpreter keeps the object alive.
  static inline thread_local std::pair<PyObject*, ProfileHook*> active_;

  py::object on_start_;
  py::object on_call_;
  py::object previous_ = py::none();
  py::object judge_, side_;
  // The objects in the values keep the identities from being reused.
  std::unordered_map<PyObject*, py::object> done_;
  std::unordered_map<PyObject*, std::pair<int, py::object>> sides_;
  std::unordered_map<PyMethodDef*, std::pair<int, py::object>> verdicts_;
};

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

void set_audit(const py::object& told) {
  static const bool added = PySys_AddAuditHook(&on_audit, nullptr) == 0;
  if (!added) throw std::runtime_error("Python takes no audit hook");
  Auditor& asked = auditor();
  PyObject* const before = asked.told;
  asked.told = told.is_none() ? nullptr : told.inc_ref().ptr();
  Py_XDECREF(before);
}

}  // namespace

void bind_calls(py::module_& m) {
  py::class_<ProfileHook>(m, "ProfileHook")
      .def(py::init<py::object, py::object, py::object, py::object>(), py::arg("on_start"),
           py::arg("on_call"), py::arg("judge"), py::arg("side"))
      .def("start", [](const py::object& self) { self.cast<ProfileHook&>().start(self); })
      .def("stop", &ProfileHook::stop)
      .def("__call__", &ProfileHook::call);
  m.def("set_audit", &set_audit, py::arg("told"),
        "Call `told(event)` before an audited event of this thread, as opening a file, that is not an "
        "everyday one; what it raises is raised there. None: no more.");
}

}  // namespace rekindle::python

// Being told, on the current thread, of Python code that starts and of C functions that are called: the
// profile hook of Python before 3.12. Its contract is CallHook in python/rekindle/fingerprint/calls.py. In
// C++ because an export makes some hundred thousand such events, of which a few hundred matter.
#include <pybind11/pybind11.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "python/bindings/bindings.h"

namespace rekindle::python {

namespace py = pybind11;

namespace {

// Lets a name be looked up without a copy of it.
struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
};

class ProfileHook {
 public:
  ProfileHook(py::object on_start, py::object on_call, const py::iterable& watched)
      : on_start_(std::move(on_start)), on_call_(std::move(on_call)) {
    for (const py::handle& name : watched) watched_.insert(py::cast<std::string>(name));
  }

  void start(const py::object& self) {
    previous_ = py::module_::import("sys").attr("getprofile")();
    active_ = {self.ptr(), this};
    PyEval_SetProfile(&ProfileHook::on_event, self.ptr());
  }

  // Restores what was there before. Lets go of the callbacks: they lead back here, where no collector looks.
  void stop() {
    py::module_::import("sys").attr("setprofile")(std::exchange(previous_, py::none()));
    active_ = {};
    on_start_ = on_call_ = py::none();
    done_.clear();
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
    if (is_watched(function)) on_call_(frame, py::handle(function));
  }

  bool is_watched(PyObject* function) const {
    if (PyCFunction_Check(function)) {
      return watched_.contains(reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name);
    }
    const py::object name = py::getattr(function, "__name__", py::none());
    return py::isinstance<py::str>(name) && watched_.contains(py::cast<std::string>(name));
  }

  // Spares most events the cast. Between start and stop the interpreter keeps the object alive.
  static inline thread_local std::pair<PyObject*, ProfileHook*> active_;

  py::object on_start_;
  py::object on_call_;
  py::object previous_ = py::none();
  std::unordered_set<std::string, NameHash, std::equal_to<>> watched_;
  std::unordered_map<PyObject*, py::object> done_;  // the values keep the identities from being reused
};

}  // namespace

void bind_calls(py::module_& m) {
  py::class_<ProfileHook>(m, "ProfileHook")
      .def(py::init<py::object, py::object, const py::iterable&>(), py::arg("on_start"), py::arg("on_call"),
           py::arg("watched"))
      .def("start", [](const py::object& self) { self.cast<ProfileHook&>().start(self); })
      .def("stop", &ProfileHook::stop)
      .def("__call__", &ProfileHook::call);
}

}  // namespace rekindle::python

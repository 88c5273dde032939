#include "python/recording/profile_hook.h"

namespace rekindle::python {

ProfileHook::ProfileHook(py::object on_start, py::object on_call, py::object judge, py::object side)
    : on_start_(std::move(on_start)),
      on_call_(std::move(on_call)),
      judge_(std::move(judge)),
      side_(std::move(side)) {}

void ProfileHook::start(const py::object& self) {
  previous_ = py::module_::import("sys").attr("getprofile")();
  import_code_ = py::module_::import("importlib._bootstrap").attr("_find_and_load").attr("__code__");
  importing_ = nullptr;
  active_ = {self.ptr(), this};
  PyEval_SetProfile(&ProfileHook::on_event, self.ptr());
}

void ProfileHook::stop() {
  py::module_::import("sys").attr("setprofile")(std::exchange(previous_, py::none()));
  active_ = {};
  on_start_ = on_call_ = judge_ = side_ = import_code_ = py::none();
  done_.clear();
  sides_.clear();
  verdicts_.clear();
}

void ProfileHook::call(const py::object& frame, const std::string& event, const py::object& argument) {
  if (event == "call") started(reinterpret_cast<PyFrameObject*>(frame.ptr()));
  if (event == "c_call") called(frame, argument.ptr());
}

int ProfileHook::on_event(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) {
  if (what != PyTrace_CALL && what != PyTrace_C_CALL && what != PyTrace_RETURN) return 0;
  try {
    auto& hook = self == active_.first ? *active_.second : py::handle(self).cast<ProfileHook&>();
    if (hook.importing_ != nullptr) {
      if (what == PyTrace_RETURN && frame == hook.importing_) hook.importing_ = nullptr;  // raised or not
    } else if (what == PyTrace_CALL && hook.is_import(frame)) {
      hook.importing_ = frame;
    } else if (what == PyTrace_CALL) {
      hook.started(frame);
    } else if (what == PyTrace_C_CALL) {
      hook.called(reinterpret_cast<PyObject*>(frame), argument);
    }
    return 0;
  } catch (py::error_already_set& error) {
    error.restore();
    return -1;
  }
}

bool ProfileHook::is_import(PyFrameObject* frame) const {
  PyCodeObject* const code = PyFrame_GetCode(frame);
  Py_DECREF(code);  // the frame holds it
  return reinterpret_cast<PyObject*>(code) == import_code_.ptr();
}

void ProfileHook::started(PyFrameObject* frame) {
  const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  if (done_.contains(code.ptr())) return;
  if (py::cast<bool>(on_start_(py::handle(reinterpret_cast<PyObject*>(frame)))))
    done_.emplace(code.ptr(), code);
}

void ProfileHook::called(py::handle frame, PyObject* function) {
  if ((side_of(frame) & verdict_of(function)) != 0) on_call_(frame, py::handle(function));
}

int ProfileHook::side_of(py::handle frame) {
  auto* const running = reinterpret_cast<PyFrameObject*>(frame.ptr());
  auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(running)));
  const auto known = sides_.find(code.ptr());
  if (known != sides_.end()) return known->second.first;
  const int side = py::cast<int>(side_(frame));
  sides_.emplace(code.ptr(), std::pair(side, code));
  return side;
}

// All objects that stand for a function of C, a method bound to other objects say, share its definition.
int ProfileHook::verdict_of(PyObject* function) {
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

}  // namespace rekindle::python

// ProfileHook: tells, on the current thread, of Python code that starts and of C functions that are called:
// the profile hook of Python before 3.12, which is told before the call. Its contract is call_hook in
// python/rekindle/recording/interpreter_events.py. In C++ because an export makes some hundred thousand such
// events, of which a few hundred matter; an import that comes with it may make millions, of which none does.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <unordered_map>
#include <utility>

namespace rekindle::python {

namespace py = pybind11;

class ProfileHook {
 public:
  // Calls on_start(frame) where Python code starts, until it returns true for that code, and
  // on_call(frame, function) where a function of C is called and side(frame) & judge(function) is not 0.
  ProfileHook(py::object on_start, py::object on_call, py::object judge, py::object side);

  // `self` is this object as Python has it.
  void start(const py::object& self);
  // Restores what was there before, and lets go of the callbacks: they lead back here, where no collector
  // looks.
  void stop();
  // Handles one event as a profile function of Python's does: a forward that puts this hook aside and back
  // sets it so.
  void call(const py::object& frame, const std::string& event, const py::object& argument);

 private:
  static int on_event(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);
  bool is_import(PyFrameObject* frame) const;
  void started(PyFrameObject* frame);
  void called(py::handle frame, PyObject* function);
  int side_of(py::handle frame);
  int verdict_of(PyObject* function);

  // Spares most events the cast. Between start and stop the interpreter keeps the object alive.
  static inline thread_local std::pair<PyObject*, ProfileHook*> active_;

  py::object on_start_;
  py::object on_call_;
  py::object previous_ = py::none();
  py::object judge_, side_;
  py::object import_code_;              // of what runs around every import of a module that is not loaded
  PyFrameObject* importing_ = nullptr;  // the outermost that runs; nothing is told until it ends
  // The objects in the values keep the identities from being reused.
  std::unordered_map<PyObject*, py::object> done_;
  std::unordered_map<PyObject*, std::pair<int, py::object>> sides_;
  std::unordered_map<PyMethodDef*, std::pair<int, py::object>> verdicts_;
};

}  // namespace rekindle::python

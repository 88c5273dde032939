// BoundSession: a session as Python has it, with the Python objects that it calls.
#pragma once

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>
#include <vector>

#include "device/first_touch.h"
#include "python/calls/held_functions.h"
#include "python/calls/owned.h"
#include "session/host_function.h"
#include "session/session.h"

namespace rekindle::python {

namespace py = pybind11;

// A replay by a callable of Python's, which goes under the GIL, or not at all.
inline session::Replay in_python(py::object replay) {
  using Tensors = std::vector<at::Tensor>;
  const auto kept = std::make_shared<Owned<py::object>>(std::move(replay));
  return [kept](const Tensors& inputs, const Tensors& random_states, const Tensors& cotangents,
                const session::Cut& cut) {
    const py::gil_scoped_acquire gil;
    Tensors gradients;
    const py::object found =
        (**kept)(inputs, random_states, cotangents, cut.results, cut.ending, cut.undefined);
    for (const py::handle gradient : found)
      gradients.push_back(gradient.is_none() ? at::Tensor() : gradient.cast<at::Tensor>());
    return gradients;
  };
}

// A session with the Python objects that it calls, as the garbage collector wants to know them.
class BoundSession {
 public:
  explicit BoundSession(std::shared_ptr<session::Session> made) : session(std::move(made)) {}

  void set_functions(const py::list& functions) { session->set_functions(functions_.set(functions)); }

  void set_replay(const py::object& replay) {
    session->set_replay(replay.is_none() ? session::Replay() : in_python(replay));
    replay_ = replay.is_none() ? nullptr : replay.ptr();
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(functions_.list());
    if (!session->may_replay())
      Py_VISIT(replay_);  // otherwise an autograd node keeps it, which no collector sees
    return 0;
  }

  void clear() {
    set_functions(py::list());
    set_replay(py::none());
  }

  const std::shared_ptr<session::Session> session;

 private:
  HeldFunctions functions_;
  PyObject* replay_ = nullptr;  // kept by the session
};

// The memory that is made ready during a lookup, until its session is given it or there is none.
struct PendingMemory {
  void withdraw() { memory.reset(); }

  std::shared_ptr<device::FirstTouch> memory;  // null once it was withdrawn
};

}  // namespace rekindle::python

// ServedCall: a graph bound to the state of a module, called with the tensors of a call for the module's
// result.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "python/calls/result_template.h"
#include "python/calls/state_writes.h"
#include "session/session.h"

namespace rekindle::python {

// For graphs whose result needs no look at the outputs. Thread-safe under the GIL, which it releases while
// the graph runs.
class ServedCall {
 public:
  // Tells which tensors a call hands to the graph: those at the positions `used` among the call's tensors
  // and, after them, the state. record: as of Session::forward.
  struct Inputs {
    pybind11::list state;  // of tensors, read at each call
    std::vector<std::size_t> used;
    bool record = false;
  };
  ServedCall(std::shared_ptr<session::Session> session, Inputs inputs, StateWrites writes,
             ResultTemplate result);

  // Writes what the forward writes; after an error, all is as it was. Nobody else may see the memory of that
  // (written_memory.h). Throws what Session::forward and write_outputs throw, and IndexError where there are
  // fewer tensors than the graph takes.
  pybind11::object operator()(const pybind11::list& arguments) const;

  // For Python's garbage collector.
  int traverse(visitproc visit, void* argument) const;
  void clear() { inputs_.state = pybind11::list(); }

 private:
  std::shared_ptr<session::Session> session_;
  Inputs inputs_;
  StateWrites writes_;
  std::vector<std::ptrdiff_t> copied_;  // per input of the graph: its place among the writes; -1: none
  ResultTemplate result_;
};

}  // namespace rekindle::python

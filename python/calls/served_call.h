// ServedCall: a graph bound to the state of a module, called with the tensors of a call for the module's
// result.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "python/calls/result_template.h"
#include "session/session.h"

namespace rekindle::python {

// For graphs that write nothing and whose result needs no look at the outputs. Thread-safe under the GIL,
// which it releases while the graph runs.
class ServedCall {
 public:
  // state: a list of tensors, read at each call. used: which of the call's tensors and, after them, of the
  // state the graph takes. record: as of Session::forward.
  ServedCall(std::shared_ptr<session::Session> session, pybind11::list state, std::vector<std::size_t> used,
             bool record, ResultTemplate result);

  // Throws what Session::forward throws, and IndexError where there are fewer tensors than the graph takes.
  pybind11::object operator()(const pybind11::list& arguments) const;

  // For Python's garbage collector.
  int traverse(visitproc visit, void* argument) const;
  void clear() { state_ = pybind11::list(); }

 private:
  std::shared_ptr<session::Session> session_;
  pybind11::list state_;
  std::vector<std::size_t> used_;
  bool record_;
  ResultTemplate result_;
};

}  // namespace rekindle::python

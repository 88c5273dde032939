// PythonOp: one call of a custom autograd Function in a graph, bound to the live Function.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <optional>
#include <vector>

#include "python/calls/owned.h"
#include "session/host_function.h"

namespace rekindle::python {

// Binds a graph's call of an autograd Function to the live one; see python/rekindle/functions/calls.py for
// how it is described.
struct PythonCall {
  pybind11::object apply;            // Function.apply, without the layers of Python around it
  pybind11::tuple arguments;         // None in the place of each tensor
  std::vector<std::int64_t> places;  // per input of the node: the argument it is; -1: one inside of another
  pybind11::object make_arguments;   // None, or called with the inputs for the whole tuple
  std::vector<std::size_t> results;  // which of the things returned are tensors
  pybind11::tuple others;            // what the rest is
  std::vector<std::size_t> dirty;    // inputs written in place
  std::map<std::size_t, std::size_t> reuses;  // result -> the input in whose memory it is declared to be
  // Told what is otherwise: changed(result), wrote(inputs), reused(result, input), does_not_reuse(...).
  pybind11::object watch;
  pybind11::object infer;  // None, or called with meta tensors for meta tensors
  bool recomputes = false;
};

// Takes the GIL for the call only. Holds the live objects until it goes.
class PythonOp : public session::HostFunction {
 public:
  explicit PythonOp(PythonCall call);
  session::HostResults call(const std::vector<at::Tensor>& inputs, const std::vector<bool>& own,
                            const std::vector<at::Tensor>& planned) override;
  bool writes(std::size_t i) const override;
  bool may_overwrite(std::size_t i) const override;
  bool reuses(std::size_t i) const override { return call_->reuses.contains(i); }
  void differs_in_gradients(const std::vector<std::int64_t>& now) override;
  bool has_one_node() const override { return true; }
  bool recomputes() const override { return call_->recomputes; }
  std::optional<std::vector<at::Tensor>> infer(const std::vector<at::Tensor>& inputs) const override;

  // For Python's garbage collector. After clear() it must not be called.
  int traverse(visitproc visit, void* argument) const;
  void clear() { call_.reset(); }

 private:
  pybind11::tuple arguments(const std::vector<at::Tensor>& inputs) const;
  bool is_planned(pybind11::handle result, const std::vector<at::Tensor>& planned) const;
  session::HostResults results(pybind11::handle result, const std::vector<at::Tensor>& inputs,
                               const std::vector<bool>& own);

  Owned<PythonCall> call_;
  std::vector<bool> told_;  // per result: an undeclared reuse was reported
};

}  // namespace rekindle::python

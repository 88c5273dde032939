// HostFunction: code outside of C++ that a graph calls, as a custom autograd Function of the wrapped model.
//
// A graph names one by its number, in the operator rekindle::call_host(Tensor?[] inputs, int function) ->
// Tensor[]. What the number means is the session's business (Session::set_functions): a cached graph can call
// only what its owner has bound.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <optional>
#include <vector>

#include "session/session.h"

namespace rekindle::session {

struct HostResults {
  std::vector<at::Tensor> tensors;  // under autograd with their history
  std::vector<bool> copy;           // per tensor: it is in an input's memory, undeclared; the graph copies it
};

class HostFunction {
 public:
  virtual ~HostFunction() = default;

  // Runs it. `inputs`: the node's, undefined where absent; it may keep any of them. `own`: per input, whether
  // the tensor is a copy made for this call. `planned`: meta tensors like the results that the plan is for,
  // undefined where any size will do; other sizes or dtypes are an error of the function's own choice. Runs
  // under the dispatch keys and the grad mode of whoever called the session.
  virtual HostResults call(const std::vector<at::Tensor>& inputs, const std::vector<bool>& own,
                           const std::vector<at::Tensor>& planned) = 0;
  // Whether it writes to input `i`, and whether it is declared to: otherwise it is given a copy.
  virtual bool writes(std::size_t i) const = 0;
  virtual bool may_overwrite(std::size_t i) const = 0;
  // Whether result `i` is declared to be in the memory of an input: it is never copied then.
  virtual bool reuses(std::size_t i) const = 0;
  // Is told that other results require a gradient than when the graph was made, now those at these positions.
  // It may throw what makes the caller run the forward in eager; otherwise such a gradient is absent.
  virtual void differs_in_gradients(const std::vector<std::int64_t>& /*now*/) {}
  // Whether all results come from one node of the autograd graph that computes its gradients whoever asks for
  // them, as a Python Function's does; its outputs are the inputs' gradients in order. Others are
  // differentiated by the engine.
  virtual bool has_one_node() const { return false; }
  // Returns true where a forward is to keep the inputs alone. Each backward then calls it again, with these
  // inputs, and differentiates that call.
  virtual bool recomputes() const { return false; }
  // Meta tensors like the results for inputs like these meta tensors;
  // nullopt when it does not know without running.
  virtual std::optional<std::vector<at::Tensor>> infer(const std::vector<at::Tensor>& inputs) const = 0;
};

// While alive, rekindle::call_host on this thread calls `functions` under the dispatch keys of its
// construction. Scopes nest.
class HostScope {
 public:
  explicit HostScope(std::shared_ptr<const HostFunctions> functions);
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

  // Throws c10::Error when no scope on this thread has a function of that number; find() returns null then.
  static HostFunction& function(std::int64_t number);
  static HostFunction* find(std::int64_t number);
  // The same, to be kept.
  static std::shared_ptr<HostFunction> owner(std::int64_t number);
  // The dispatch keys of the innermost scope.
  static c10::impl::LocalDispatchKeySet keys();

 private:
  const std::shared_ptr<const HostFunctions> functions_;
  const c10::impl::LocalDispatchKeySet keys_;
  HostScope* const outer_;
};

}  // namespace rekindle::session

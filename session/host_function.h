// HostFunction: code outside of C++ that a graph calls, as a custom autograd Function of the wrapped model.
//
// A graph names one by its number, in the operator rekindle::call_host(Tensor?[] inputs, int function) -> Tensor[]. What the
// number means is the session's business (Session::set_functions): a cached graph can call only what its owner has bound.
// The function runs with the dispatch keys of whoever called the session, so that autocast and autograd are as in eager;
// under autograd it may return tensors with a history, which the backward then runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>

#include "session/session.h"

namespace rekindle::session {

// While alive, rekindle::call_host on this thread calls `functions` under the dispatch keys of its construction. Scopes nest.
class HostScope {
 public:
  explicit HostScope(std::shared_ptr<const HostFunctions> functions);
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  friend std::vector<at::Tensor> call_host(const c10::List<std::optional<at::Tensor>>& inputs, std::int64_t function);

  const std::shared_ptr<const HostFunctions> functions_;
  const c10::impl::LocalDispatchKeySet keys_;
  HostScope* const outer_;
};

}  // namespace rekindle::session

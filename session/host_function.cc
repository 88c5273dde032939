#include "session/host_function.h"

#include <torch/library.h>

namespace rekindle::session {
namespace {

thread_local HostScope* current = nullptr;

}  // namespace

HostScope::HostScope(std::shared_ptr<const HostFunctions> functions)
    : functions_(std::move(functions)), keys_(c10::impl::tls_local_dispatch_key_set()), outer_(current) {
  current = this;
}

HostScope::~HostScope() { current = outer_; }

std::vector<at::Tensor> call_host(const c10::List<std::optional<at::Tensor>>& inputs, std::int64_t function) {
  const HostScope* scope = current;
  TORCH_CHECK_NOT_IMPLEMENTED(scope != nullptr && scope->functions_ != nullptr,
                              "rekindle::call_host runs in a session with functions only");
  const HostFunctions& functions = *scope->functions_;
  TORCH_CHECK(function >= 0 && static_cast<std::size_t>(function) < functions.size(), "the graph calls function ", function,
              " of ", functions.size());
  std::vector<at::Tensor> given;
  for (const std::optional<at::Tensor>& input : inputs) given.push_back(input.value_or(at::Tensor()));
  const c10::impl::ForceDispatchKeyGuard keys(scope->keys_);
  return functions[static_cast<std::size_t>(function)](given);
}

TORCH_LIBRARY_FRAGMENT(rekindle, library) {
  // Not a function of its arguments alone: it is never folded, merged or dropped.
  library.def("call_host(Tensor?[] inputs, int function) -> Tensor[]", &call_host, {at::Tag::nondeterministic_seeded});
}

}  // namespace rekindle::session

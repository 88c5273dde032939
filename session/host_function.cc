#include "session/host_function.h"

#include <torch/library.h>

namespace rekindle::session {
namespace {

thread_local HostScope* current = nullptr;

// The node of this name has a lowering of its own (ops/host.cc); the dispatcher only knows its schema.
std::vector<at::Tensor> call_host(const c10::List<std::optional<at::Tensor>>& /*inputs*/,
                                  std::int64_t /*function*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "rekindle::call_host runs in a session only");
}

}  // namespace

HostScope::HostScope(std::shared_ptr<const HostFunctions> functions)
    : functions_(std::move(functions)), keys_(c10::impl::tls_local_dispatch_key_set()), outer_(current) {
  current = this;
}

HostScope::~HostScope() { current = outer_; }

HostFunction* HostScope::find(std::int64_t number) {
  const HostFunctions* functions = current == nullptr ? nullptr : current->functions_.get();
  if (functions == nullptr || number < 0 || static_cast<std::size_t>(number) >= functions->size())
    return nullptr;
  return (*functions)[static_cast<std::size_t>(number)].get();
}

HostFunction& HostScope::function(std::int64_t number) {
  HostFunction* found = find(number);
  TORCH_CHECK_NOT_IMPLEMENTED(found != nullptr, "the graph calls host function ", number,
                              ", which the session does not have");
  return *found;
}

std::shared_ptr<HostFunction> HostScope::owner(std::int64_t number) {
  function(number);
  return (*current->functions_)[static_cast<std::size_t>(number)];
}

c10::impl::LocalDispatchKeySet HostScope::keys() { return current->keys_; }

TORCH_LIBRARY_FRAGMENT(rekindle, library) {
  // Not a function of its arguments alone: it is never folded, merged or dropped.
  library.def("call_host(Tensor?[] inputs, int function) -> Tensor[]", &call_host,
              {at::Tag::nondeterministic_seeded});
}

}  // namespace rekindle::session

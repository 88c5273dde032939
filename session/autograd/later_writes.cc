#include "session/autograd/later_writes.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "session/autograd/saved_versions.h"
#include "src/base/mutex.h"

namespace rekindle::session {
namespace {

using torch::autograd::variable_list;

// How often tensors were written without a change. Counters that nobody else has any more are forgotten.
class OwnWrites {
 public:
  void add(const c10::VariableVersion& counter, std::uint32_t times) {
    const std::lock_guard lock(mutex_);
    std::erase_if(counted_, [](const Counted& one) { return one.counter.unique(); });
    const auto known = std::ranges::find(counted_, identity_of(counter), &Counted::identity);
    if (known == counted_.end()) {
      counted_.push_back({counter, identity_of(counter), times});
    } else {
      known->times += times;
    }
  }

  std::uint32_t of(const c10::VariableVersion& counter) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(counted_, identity_of(counter), &Counted::identity);
    return known == counted_.end() ? 0 : known->times;
  }

 private:
  struct Counted {
    c10::VariableVersion counter;
    std::uintptr_t identity;
    std::uint32_t times;
  };
  static std::uintptr_t identity_of(const c10::VariableVersion& counter) {
    return identities_of({counter}).front();
  }

  Mutex mutex_;
  std::vector<Counted> counted_;
};

OwnWrites& own_writes() {
  static OwnWrites writes;
  return writes;
}

// Of the user's writes.
std::uint32_t version_of(const c10::VariableVersion& counter) {
  return counter.current_version() - own_writes().of(counter);
}

class LaterWrites : public torch::autograd::FunctionPreHook {
 public:
  explicit LaterWrites(std::span<const at::Tensor> written) {
    for (const at::Tensor& tensor : written) {
      const c10::VariableVersion& counter = torch::autograd::impl::version_counter(tensor);
      if (counter.enabled()) versions_.emplace_back(counter, version_of(counter));  // not in inference mode
    }
  }

  variable_list operator()(const variable_list& gradients) override {
    for (const auto& [counter, then] : versions_) {
      TORCH_CHECK(version_of(counter) == then,
                  "one of the variables needed for gradient computation has been modified by an inplace "
                  "operation: a tensor that the wrapped module has made or written is at version ",
                  version_of(counter), "; expected version ", then, " instead");
    }
    return gradients;
  }

 private:
  std::vector<std::pair<c10::VariableVersion, std::uint32_t>> versions_;
};

}  // namespace

void refuse_later_writes(std::span<const at::Tensor> results, std::span<const at::Tensor> written) {
  if (written.empty()) return;
  const auto first = std::ranges::find_if(results, [](const at::Tensor& result) {
    return result.defined() && result.requires_grad() && result.grad_fn() != nullptr;
  });
  if (first != results.end()) first->grad_fn()->add_pre_hook(std::make_unique<LaterWrites>(written));
}

void note_own_writes(std::span<const std::pair<at::Tensor, std::uint32_t>> versions) {
  std::vector<std::uintptr_t> noted;  // tensors that see one memory have one counter
  for (const auto& [tensor, version] : versions) {
    const c10::VariableVersion& counter = torch::autograd::impl::version_counter(tensor);
    const std::uintptr_t identity = identities_of({counter}).front();
    if (!counter.enabled() || std::ranges::find(noted, identity) != noted.end()) continue;
    noted.push_back(identity);
    const std::uint32_t now = counter.current_version();
    if (now != version) own_writes().add(counter, now - version);
  }
}

}  // namespace rekindle::session

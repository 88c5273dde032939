#include "session/run/tape_end.h"

#include <string>

namespace rekindle::session {
namespace {

using torch::autograd::variable_list;

class TapeEnd : public torch::autograd::Node {
 public:
  explicit TapeEnd(const char* name) : name_(name) {}
  variable_list apply(variable_list&&) override {
    TORCH_INTERNAL_ASSERT(false, "the end of a tape was run");
    return {};
  }
  std::string name() const override { return name_; }

 private:
  const char* name_;
};

}  // namespace

std::shared_ptr<torch::autograd::Node> make_tape_end(const char* name) {
  return {new TapeEnd(name), torch::autograd::deleteNode};
}

c10::impl::LocalDispatchKeySet keys_with_autograd() {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

}  // namespace rekindle::session

#include "device/copies.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include <map>
#include <utility>

namespace rekindle::device {
namespace {

// Whether one kernel for all takes less time than one for each, as where each is a launch.
bool are_copied_together(const std::vector<at::Tensor>& tensors) {
  return tensors.size() > 1 && !tensors.front().is_cpu();
}

// PyTorch copies a list in one kernel where all of it is of one dtype, as counters and statistics are not.
void copy_together(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  std::map<at::ScalarType, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> alike;
  for (std::size_t i = 0; i < to.size(); ++i) {
    auto& [targets, sources] = alike[to[i].scalar_type()];
    targets.push_back(to[i]);
    sources.push_back(from[i]);
  }
  for (const auto& [dtype, lists] : alike) at::_foreach_copy_(lists.first, lists.second);
}

}  // namespace

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (are_copied_together(to)) return copy_together(to, from);
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool together = are_copied_together(tensors);
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors)
    copies.push_back(together ? at::empty_like(tensor) : tensor.clone());
  if (together) copy_all(copies, tensors);
  return copies;
}

}  // namespace rekindle::device

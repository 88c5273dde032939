#include "python/calls/state_writes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "session/autograd/result_node.h"

namespace rekindle::python {
namespace {

// Counts no version.
void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (to.size() > 1 && !to.front().is_cpu()) return at::_foreach_copy_(to, from);  // one kernel for all
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

}  // namespace

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

void write_outputs(const StateWrites& writes, const std::vector<at::Tensor>& written,
                   const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& outputs) {
  TORCH_CHECK(outputs.size() >= written.size(), "a graph writes more than it computes");
  for (std::size_t i = 0; i < written.size(); ++i) {  // an error of one comes before all writes
    if (std::ranges::find(writes.silent, i) == writes.silent.end())
      torch::autograd::impl::bump_version(written[i]);
  }
  const auto count = static_cast<std::ptrdiff_t>(written.size());
  try {
    copy_all(written, {outputs.end() - count, outputs.end()});
    session::refuse_later_writes(outputs, writes.saved, written);
  } catch (...) {
    write_back(written, before);
    throw;
  }
}

void write_back(const std::vector<at::Tensor>& written, const std::vector<at::Tensor>& before) {
  copy_all(written, before);
}

}  // namespace rekindle::python

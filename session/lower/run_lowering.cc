#include "session/lower/run_lowering.h"

#include <algorithm>
#include <numeric>

#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

// The results of a lowering that views its input; empty when the layout does not allow it.
Tensors views_of(const Lowering& lowering, const Tensors& inputs) {
  Tensors views;
  for (const View& view : lowering.views) {
    views.push_back(view(inputs.at(0)));
    if (!views.back().defined()) return {};
  }
  return views;
}

// Of the first input that has contents; the CPU's without one.
at::Device device_of(const Tensors& inputs) {
  const auto found =
      std::ranges::find_if(inputs, [](const at::Tensor& x) { return x.defined() && !x.is_meta(); });
  return found == inputs.end() ? at::Device(at::kCPU) : found->device();
}

}  // namespace

NodeResults run_lowering(const Lowering& lowering, const std::vector<at::Tensor>& inputs,
                         const std::vector<Held>& held) {
  Tensors known = lowering.constants;
  if (known.empty()) known = views_of(lowering, inputs);
  if (!known.empty()) return {known, std::vector<Held>(known.size())};
  TORCH_CHECK(lowering.kernel, "the op has no kernel for this input layout");
  const at::Device device = device_of(inputs);
  std::vector<at::Tensor> slots = inputs;
  for (const Layout& layout : lowering.outputs)
    slots.push_back(lowering.gives ? at::Tensor() : empty_of(layout, device));
  slots.resize(slots.size() + lowering.held);
  const std::size_t end = slots.size();
  for (const Layout& layout : lowering.scratch) slots.push_back(empty_of(layout, device));
  std::vector<Held> others = held;
  others.resize(slots.size());
  std::vector<std::uint32_t> places(slots.size());
  std::iota(places.begin(), places.end(), 0);
  lowering.kernel(Args(slots.data(), others.data(), places.data(), places.data() + inputs.size()));
  const auto first = static_cast<std::ptrdiff_t>(inputs.size()), last = static_cast<std::ptrdiff_t>(end);
  return {{slots.begin() + first, slots.begin() + last}, {others.begin() + first, others.begin() + last}};
}

}  // namespace rekindle::session

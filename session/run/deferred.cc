#include "session/run/deferred.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "session/lower/tensor_types.h"
#include "session/plan/result_layout.h"
#include "src/graph/op_info.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// The input that is the sum of gradients so far, to which the node adds: of an accumulating Add both may be.
std::optional<std::size_t> present_sum(const graph::Node& node) {
  const std::optional<std::size_t> sum = graph::sum_input(node);
  return sum && node.input(*sum) != nullptr ? sum : std::nullopt;
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() && a.is_alias_of(b);
}

// Whether elements at several indices are one and the same otherwise than by a stride of 0.
bool windows_overlap(const at::Tensor& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride and size, the innermost first
  for (std::int64_t dim = 0; dim < view.dim(); ++dim) {
    if (view.size(dim) > 1 && view.stride(dim) != 0) dims.emplace_back(view.stride(dim), view.size(dim));
  }
  std::ranges::sort(dims);
  std::int64_t last = 0;  // the furthest element of the dimensions so far
  for (const auto& [stride, size] : dims) {
    if (stride <= last) return true;
    last += (size - 1) * stride;
  }
  return false;
}

// A copy of a view that lies as the view does, but for windows that overlap.
at::Tensor copied(const at::Tensor& view) {
  if (view.layout() != at::kStrided || windows_overlap(view)) return view.clone(at::MemoryFormat::Contiguous);
  const at::Tensor copy = at::empty_strided(view.sizes(), view.strides(), view.options());
  each_once(copy, view.strides()).copy_(each_once(view, view.strides()));
  return copy;
}

// Where an undefined result of a recorded derivative is one of the tracked inputs' gradients: its layout.
at::Tensor layout_of_absent(const graph::Node& node, std::size_t result, const Tensors& inputs) {
  if (!graph::is_torch_gradient(node)) return {};
  const at::Tensor& tracked = inputs[graph::gradient_cotangents(node) + 1 + result];
  return tracked.defined() ? meta_of(tracked) : at::Tensor();
}

}  // namespace

bool takes_absent_deferred(const graph::Node& node) {
  return graph::is_torch_gradient(node) || present_sum(node);
}

NodeResults Deferred::results_of(const Args& args, const Tensors& inputs) const {
  if (const std::optional<std::size_t> sum = present_sum(*node)) {
    const bool is_add = node->is("Add");  // of two gradients; otherwise of a sum and what is made of input 0
    const bool has_sum = inputs[*sum].defined();
    if (!inputs[0].defined())  // of neither, the layout
      return {{args.in(is_add && !has_sum ? 0 : *sum)}, {nullptr}};
    if (is_add && !has_sum) return {{args.in(0)}, {nullptr}};
  }
  const std::size_t cotangents = graph::is_torch_gradient(*node) ? graph::gradient_cotangents(*node) : 0;
  const auto first = inputs.begin(), last = first + static_cast<std::ptrdiff_t>(cotangents);
  if (cotangents > 0 && std::none_of(first, last, [](const at::Tensor& x) { return x.defined(); }))
    return {Tensors(node->outputs().size()), std::vector<Held>(node->outputs().size())};
  std::vector<Held> held;
  for (std::size_t i = 0; i < inputs.size(); ++i) held.push_back(args.held_in(i));
  LowerContext context(*node, inputs, recording);
  context.set_known(constants);
  context.set_device(device);
  return run_lowering(lower(context), inputs, held);
}

void Deferred::run(const Args& args) const {
  Tensors inputs;
  for (std::size_t i = 0; i < metas.size(); ++i) {
    const at::Tensor& input = args.in(i);
    const bool absent = input.defined() && input.is_meta() && !graph::is_shape_only(*node, i);
    inputs.push_back(absent ? at::Tensor() : input.defined() ? input : metas[i]);
  }
  NodeResults found = results_of(args, inputs);
  Tensors& results = found.tensors;
  const std::size_t outputs = node->outputs().size();
  for (std::size_t i = 0; i < outputs; ++i) {
    for (const at::Tensor& input : inputs) {
      if (!shares_memory(results[i], input)) continue;
      if (delivered[i]) {
        results[i] = copied(results[i]);
      } else if (!results[i].is_inference() && !input.is_inference()) {
        // An edit of the input in place shows in the view.
        torch::autograd::impl::set_version_counter(results[i], torch::autograd::impl::version_counter(input));
      }
    }
    if (found.held[i] != nullptr) args.held_out(i) = found.held[i];
    if (!results[i].defined() && found.held[i] == nullptr) results[i] = layout_of_absent(*node, i, inputs);
    args.out(i) = results[i];
  }
  for (std::size_t i = 0; i < sized.size(); ++i) {
    args.out(outputs + i) = results[sized[i]].defined() ? meta_of(results[sized[i]]) : at::Tensor();
  }
}

}  // namespace rekindle::session

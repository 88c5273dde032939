#include "session/deferred.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "session/tensor_types.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// The input that is the sum of gradients so far, to which the node adds: of an accumulating Add both may be.
std::size_t sum_input(const graph::Node& node) {
  return node.is("Add") ? 1 : node.is("EmbeddingGradient", "rekindle") ? 3 : 2;
}

bool adds_to_sum(const graph::Node& node) {
  if (node.is("Add")) return node.int_attribute("accumulate", 0) != 0;
  const bool fused = node.is("LinearWeightGradient", "rekindle") || node.is("EmbeddingGradient", "rekindle");
  return fused && node.input(sum_input(node)) != nullptr;
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() && a.is_alias_of(b);
}

// One run of a lowering: tensors and tapes as a frame would hold them, in the order inputs, outputs, scratch.
struct Run {
  Tensors slots;
  std::vector<Held> held;
  std::vector<std::uint32_t> in, out;

  Run(const Lowering& lowering, const Tensors& inputs, const Args& args, at::Device device) : slots(inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      held.push_back(args.held_in(i));
      in.push_back(static_cast<std::uint32_t>(i));
    }
    const auto add = [&](at::Tensor tensor) {
      out.push_back(static_cast<std::uint32_t>(slots.size()));
      slots.push_back(std::move(tensor));
      held.emplace_back();
    };
    for (const Layout& layout : lowering.outputs)
      add(lowering.gives ? at::Tensor() : empty_of(layout, device));
    for (std::size_t i = 0; i < lowering.held; ++i) add({});
    for (const Layout& layout : lowering.scratch) add(empty_of(layout, device));
  }

  void operator()(const Kernel& kernel) { kernel(Args(slots.data(), held.data(), in.data(), out.data())); }
};

// The results of a lowering that views its input; empty when the layout does not allow it.
Tensors views_of(const Lowering& lowering, const at::Tensor& base) {
  Tensors views;
  for (const View& view : lowering.views) {
    views.push_back(view(base));
    if (!views.back().defined()) return {};
  }
  return views;
}

}  // namespace

bool takes_absent_deferred(const graph::Node& node) {
  return graph::is_torch_gradient(node) || adds_to_sum(node);
}

void Deferred::run(const Args& args) const {
  Tensors inputs;
  for (std::size_t i = 0; i < metas.size(); ++i)
    inputs.push_back(args.in(i).defined() ? args.in(i) : metas[i]);
  const std::size_t outputs = node->outputs().size();
  Tensors results;
  if (adds_to_sum(*node) && !(inputs[0].defined() && inputs[sum_input(*node)].defined())) {
    results.push_back(inputs[inputs[0].defined() ? 0 : sum_input(*node)]);
  } else {
    LowerContext context(*node, inputs, recording);
    const Lowering lowering = lower(context);
    results = !lowering.constants.empty() ? lowering.constants
                                          : views_of(lowering, inputs.empty() ? at::Tensor() : inputs[0]);
    if (results.empty()) {
      const auto known =
          std::ranges::find_if(inputs, [](const at::Tensor& x) { return x.defined() && !x.is_meta(); });
      Run run(lowering, inputs, args, known == inputs.end() ? at::Device(at::kCPU) : known->device());
      TORCH_CHECK(lowering.kernel, "the op has no kernel for this input layout");
      run(lowering.kernel);
      for (std::size_t i = 0; i < outputs; ++i) {
        results.push_back(run.slots[run.out[i]]);
        if (run.held[run.out[i]] != nullptr) args.held_out(i) = run.held[run.out[i]];
      }
    }
  }
  for (std::size_t i = 0; i < outputs; ++i) {
    for (const at::Tensor& input : inputs) {
      if (!shares_memory(results[i], input)) continue;
      if (delivered[i]) {
        results[i] = results[i].clone(at::MemoryFormat::Contiguous);
      } else if (!results[i].is_inference() &&
                 !input.is_inference()) {  // an edit of the input in place shows in the view
        torch::autograd::impl::set_version_counter(results[i], torch::autograd::impl::version_counter(input));
      }
    }
    args.out(i) = results[i];
  }
  for (std::size_t i = 0; i < sized.size(); ++i) {
    args.out(outputs + i) = results[sized[i]].defined() ? meta_of(results[sized[i]]) : at::Tensor();
  }
}

}  // namespace rekindle::session

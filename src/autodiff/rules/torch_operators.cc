// Gradients of operators of PyTorch's dispatcher that many models spend their memory in: what PyTorch would
// keep on a tape (rules/torch.cc) is then the plan's, and nothing is recorded in the forward.
#include <array>

#include "src/autodiff/rule.h"
#include "src/graph/torch_node.h"

namespace rekindle::autodiff {
namespace {

using graph::qualified_name;

// Emits a node with an output for each of the three inputs `at` whose gradient is wanted.
void set_wanted(RuleContext& ctx, std::string_view op, std::vector<Value*> inputs, Attributes attributes,
                const std::array<std::size_t, 3>& at) {
  std::vector<std::int64_t> wanted;
  std::size_t outputs = 0;
  for (const std::size_t i : at) {
    wanted.push_back(ctx.needs(i) ? 1 : 0);
    outputs += ctx.needs(i) ? 1 : 0;
  }
  attributes["wanted"] = wanted;
  const std::vector<Value*> found = ctx.rekindle_op(op, std::move(inputs), std::move(attributes), outputs);
  std::size_t next = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (wanted[i] != 0) ctx.set_dx(at[i], found[next++]);
  }
}

// The rule of all operators, which records a tape.
Status taped(RuleContext& ctx) { return (*rules().find(qualified_name(graph::kTorchDomain, "")))(ctx); }

Status convolution_gradient(RuleContext& ctx) {
  if (ctx.node().attribute("_computed") != nullptr) return taped(ctx);
  Attributes attributes;
  for (const char* name : {"stride", "padding", "dilation", "transposed", "output_padding", "groups"}) {
    const Attribute* attribute = ctx.node().attribute(name);
    if (attribute == nullptr) return taped(ctx);
    attributes[name] = *attribute;
  }
  set_wanted(ctx, "ConvolutionGradient", {ctx.dy(), ctx.x(0), ctx.x(1)}, std::move(attributes), {0, 1, 2});
  return {};
}

// In training: the statistics are the batch's, so that no running ones are read.
Status batch_norm_gradient(RuleContext& ctx) {
  const Attribute* eps = ctx.node().attribute("eps");
  if (ctx.node().int_attribute("training", 0) == 0 || eps == nullptr || ctx.dy() == nullptr || ctx.needs(3) ||
      ctx.needs(4))
    return taped(ctx);
  set_wanted(ctx, "BatchNormGradient", {ctx.dy(), ctx.x(0), ctx.y(1), ctx.y(2), ctx.x(1)}, {{"eps", *eps}},
             {0, 1, 2});
  return {};
}

Status relu_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("ReluGradient", {ctx.dy(), ctx.y()}));
  return {};
}

REKINDLE_GRADIENT("torch", "aten.convolution.default", convolution_gradient);
REKINDLE_GRADIENT("torch", "aten._native_batch_norm_legit_functional.default", batch_norm_gradient);
REKINDLE_GRADIENT("torch", "aten.relu.default", relu_gradient);

}  // namespace
}  // namespace rekindle::autodiff

// The one rule for every operator of PyTorch's dispatcher: PyTorch records its
// forward on a tape and differentiates it.
#include "src/autodiff/rule.h"
#include "src/graph/torch_node.h"

namespace rekindle::autodiff {
namespace {

Status torch_gradient(RuleContext& ctx) {
  const std::size_t results = graph::torch_results(ctx.node());
  const auto count = static_cast<std::int64_t>(ctx.node().inputs().size());
  const auto own = static_cast<std::size_t>(ctx.node().int_attribute("_own", count));
  std::vector<Value*> inputs, tracked;
  std::vector<std::int64_t> positions;
  for (std::size_t i = 0; i < results; ++i) inputs.push_back(ctx.dy(i));
  for (std::size_t i = 0; i < ctx.node().inputs().size(); ++i) {
    if (i >= own || !ctx.needs(i)) continue;
    tracked.push_back(ctx.x(i));
    positions.push_back(static_cast<std::int64_t>(i));
  }
  inputs.push_back(ctx.y(results));
  inputs.insert(inputs.end(), tracked.begin(), tracked.end());
  const auto gradients = ctx.rekindle_op(
      "TorchGradient", inputs, {{"cotangents", static_cast<std::int64_t>(results)}}, tracked.size());
  for (std::size_t i = 0; i < tracked.size(); ++i)
    ctx.set_dx(static_cast<std::size_t>(positions[i]), gradients[i]);
  ctx.set_attribute("_tracked", std::move(positions));
  return {};
}

REKINDLE_GRADIENT("torch", "", torch_gradient);

}  // namespace
}  // namespace rekindle::autodiff

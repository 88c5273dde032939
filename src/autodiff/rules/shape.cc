// Gradients of ops that move elements without changing them. None of them reads the values of its inputs.
#include <numeric>

#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

Status reshape_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("ReshapeLike", {ctx.dy(), ctx.x()}));
  return {};
}

Status transpose_gradient(RuleContext& ctx) {
  const std::vector<std::int64_t> perm = ctx.node().ints_attribute("perm", {});
  if (perm.empty()) {  // the order reversed, which is its own inverse
    ctx.set_dx(0, ctx.op("Transpose", {ctx.dy()}));
    return {};
  }
  std::vector<std::int64_t> inverse(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  ctx.set_dx(0, ctx.op("Transpose", {ctx.dy()}, {{"perm", inverse}}));
  return {};
}

Status expand_gradient(RuleContext& ctx) {
  ctx.set_unreduced_dx(0, ctx.dy());
  return {};
}

Status concat_gradient(RuleContext& ctx) {
  std::vector<Value*> inputs = {ctx.dy()};
  inputs.insert(inputs.end(), ctx.node().inputs().begin(), ctx.node().inputs().end());
  const std::size_t count = ctx.node().inputs().size();
  const std::vector<Value*> dx = ctx.rekindle_op("ConcatGradient", std::move(inputs),
                                                 {{"axis", ctx.node().int_attribute("axis", 0)}}, count);
  for (std::size_t i = 0; i < count; ++i) ctx.set_dx(i, dx[i]);
  return {};
}

Status split_gradient(RuleContext& ctx) {
  std::vector<Value*> parts;
  for (std::size_t i = 0; i < ctx.node().outputs().size(); ++i) parts.push_back(ctx.dy_or_zeros(i));
  ctx.set_dx(0, ctx.op("Concat", std::move(parts), {{"axis", ctx.node().int_attribute("axis", 0)}}));
  return {};
}

Status slice_gradient(RuleContext& ctx) {
  std::vector<Value*> inputs = ctx.node().inputs();
  inputs.insert(inputs.begin(), ctx.dy());
  ctx.set_dx(0, ctx.rekindle_op("SliceGradient", std::move(inputs)));
  return {};
}

// dy in the shape [repeats0, size0, repeats1, size1, ...], summed over the repeats.
Status tile_gradient(RuleContext& ctx) {
  const std::optional<std::size_t> rank = rank_of(ctx.x());
  if (!rank) return ctx.unsupported("the rank of its input is not known; infer the graph's shapes first");
  if (*rank == 0) {
    ctx.set_dx(0, ctx.dy());
    return {};
  }
  Value* column = ctx.int64s({1});
  Value* sizes = ctx.op("Unsqueeze", {ctx.op("Shape", {ctx.x()}), column});
  Value* repeats = ctx.op("Unsqueeze", {ctx.x(1), column});
  Value* shape = ctx.op("Reshape", {ctx.op("Concat", {repeats, sizes}, {{"axis", 1}}), ctx.int64s({-1})});
  std::vector<std::int64_t> axes(*rank);
  for (std::size_t i = 0; i < *rank; ++i) axes[i] = static_cast<std::int64_t>(2 * i);
  Value* split = ctx.op("Reshape", {ctx.dy(), shape}, {{"allowzero", 1}});
  ctx.set_dx(0, ctx.op("ReduceSum", {split, ctx.int64s(axes)}, {{"keepdims", 0}}));
  return {};
}

// Padding by the opposite amounts: what was added is cut off, what was cut off comes back as zeros.
Status pad_gradient(RuleContext& ctx) {
  const std::string mode = ctx.node().string_attribute("mode", "constant");
  if (mode != "constant") return ctx.unsupported("mode is \"" + mode + "\", only \"constant\" has a rule");
  if (ctx.needs(2)) return ctx.unsupported("its padding value needs a gradient");
  ctx.set_dx(0, ctx.op("Pad", {ctx.dy(), ctx.op("Neg", {ctx.x(1)}), nullptr, ctx.x(3)}));
  return {};
}

Status trilu_gradient(RuleContext& ctx) {
  ctx.set_dx(0, ctx.rekindle_op("TriluGradient", {ctx.dy(), ctx.x(1)},
                                {{"upper", ctx.node().int_attribute("upper", 1)}}));
  return {};
}

REKINDLE_GRADIENT("", "Reshape", reshape_gradient);
REKINDLE_GRADIENT("", "Flatten", reshape_gradient);
REKINDLE_GRADIENT("", "Squeeze", reshape_gradient);
REKINDLE_GRADIENT("", "Unsqueeze", reshape_gradient);
REKINDLE_GRADIENT("", "Transpose", transpose_gradient);
REKINDLE_GRADIENT("", "Expand", expand_gradient);
REKINDLE_GRADIENT("", "Concat", concat_gradient);
REKINDLE_GRADIENT("", "Split", split_gradient);
REKINDLE_GRADIENT("", "Slice", slice_gradient);
REKINDLE_GRADIENT("", "Tile", tile_gradient);
REKINDLE_GRADIENT("", "Pad", pad_gradient);
REKINDLE_GRADIENT("", "Trilu", trilu_gradient);

}  // namespace
}  // namespace rekindle::autodiff

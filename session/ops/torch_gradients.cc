// Gradients of operators of PyTorch's dispatcher, computed by PyTorch, as autograd would have it do: the same
// calls as in its derivatives.yaml.
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "session/lower/eager_kernel.h"
#include "session/lower/placed.h"
#include "session/lower/settled.h"
#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Wanted = std::array<bool, 3>;

Wanted wanted_of(const LowerContext& context) {
  const Sizes flags = context.node().ints_attribute("wanted", {});
  TORCH_CHECK(flags.size() == 3, "wanted has ", flags.size(), " flags, not 3");
  const Wanted wanted{flags[0] != 0, flags[1] != 0, flags[2] != 0};
  const auto count = static_cast<std::size_t>(std::count(wanted.begin(), wanted.end(), true));
  TORCH_CHECK(count == context.num_outputs(), count, " gradients are wanted, but the node has ",
              context.num_outputs(), " outputs");
  return wanted;
}

Tensors wanted_ones(Gradients all, const Wanted& wanted) {
  auto& [first, second, third] = all;
  const std::array<at::Tensor*, 3> found{&first, &second, &third};
  Tensors gradients;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (wanted[i]) gradients.push_back(std::move(*found[i]));
  }
  return gradients;
}

// The gradients that `compute` returns, of which those that are wanted have the layouts `all`.
Lowering gradients(const LowerContext& context, const Wanted& wanted, const std::array<Layout, 3>& all,
                   std::string name, std::function<Gradients(const Args&)> compute) {
  Lowering lowering;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (wanted[i]) lowering.outputs.push_back(all[i]);
  }
  auto some = [wanted, compute = std::move(compute)](const Args& args) {
    return wanted_ones(compute(args), wanted);
  };
  if (can_place(context.device())) {
    lowering.kernel = placed(std::move(some), lowering.outputs, {}, std::move(name));
    return lowering;
  }
  lowering.gives = true;
  lowering.kernel = [some = std::move(some), planned = lowering.outputs,
                     name = std::move(name)](const Args& args) {
    Tensors found = some(args);
    for (std::size_t i = 0; i < found.size(); ++i)
      args.out(i) = settled_gradient(std::move(found[i]), planned[i], name);
  };
  return lowering;
}

// Inputs: dy, x, weight. Outputs: those of dx, dweight, dbias that are wanted.
Lowering lower_convolution_gradient(const LowerContext& context) {
  const auto ints = [&](const char* name) { return context.node().ints_attribute(name, {}); };
  const bool transposed = context.int_attribute("transposed", 0) != 0;
  const std::int64_t groups = context.int_attribute("groups", 1);
  const Wanted wanted = wanted_of(context);
  TORCH_CHECK(context.rank(2) >= 2, "the weight of a convolution has ", context.rank(2), " dimensions");
  const Sizes weight = context.sizes(2), bias = {transposed ? weight[1] * groups : weight[0]};
  return gradients(
      context, wanted,
      {layout_of(context.meta(1)), layout_of(context.meta(2)), Layout{context.dtype(2), bias, {}}},
      "the gradient of a convolution",
      [=, stride = ints("stride"), padding = ints("padding"), dilation = ints("dilation"),
       output_padding = ints("output_padding")](const Args& args) {
        return at::convolution_backward(args.in(0), args.in(1), args.in(2), bias, stride, padding, dilation,
                                        transposed, output_padding, groups, wanted);
      });
}

// Inputs: dy, x, mean, inv_std_dev, scale?. Outputs: those of dx, dscale, dbias that are wanted.
Lowering lower_batch_norm_gradient(const LowerContext& context) {
  const Wanted wanted = wanted_of(context);
  TORCH_CHECK(context.rank(1) >= 2, "a batch norm of a tensor with ", context.rank(1), " dimensions");
  const bool scaled = context.has(4);
  const Layout parameter{scaled ? context.dtype(4) : context.dtype(1), {context.sizes(1)[1]}, {}};
  return gradients(
      context, wanted, {layout_of(context.meta(1)), parameter, parameter}, "the gradient of a batch norm",
      [wanted, scaled, epsilon = context.number_attribute("eps")](const Args& args) {
        const std::optional<at::Tensor> scale = scaled ? std::optional(args.in(4)) : std::nullopt;
        return batch_norm_gradient(args.in(0), {args.in(1), args.in(2), args.in(3), scale, epsilon}, wanted);
      });
}

}  // namespace

REKINDLE_OP("rekindle", "ConvolutionGradient", lower_convolution_gradient);
REKINDLE_OP("rekindle", "BatchNormGradient", lower_batch_norm_gradient);

}  // namespace rekindle::session

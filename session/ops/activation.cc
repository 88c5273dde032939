// Activations with parameters, and the gradients of activations: inputs dy and what the forward took or gave.
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

using BinaryOut = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Tensor&);

template <BinaryOut function>
Lowering gradient(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0),
                  [](const Args& args) { function(args.out(), args.in(0), args.in(1)); }, {0, 1});
}

at::Tensor& sigmoid_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& y) {
  return at::sigmoid_backward_out(out, dy, y);
}
at::Tensor& tanh_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& y) {
  return at::tanh_backward_out(out, dy, y);
}
at::Tensor& silu_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& x) {
  return at::silu_backward_out(out, dy, x);
}
at::Tensor& relu_gradient(at::Tensor& out, const at::Tensor& dy, const at::Tensor& y) {
  return at::threshold_backward_out(out, dy, y, 0);
}

Lowering lower_gelu(const LowerContext& context) {
  const std::string approximate = context.string_attribute("approximate", "none");
  return computed(context.dtype(0), context.sizes(0),
                  [approximate](const Args& args) { at::gelu_out(args.out(), args.in(0), approximate); });
}

Lowering lower_gelu_gradient(const LowerContext& context) {
  const std::string approximate = context.string_attribute("approximate", "none");
  return computed(context.dtype(1), context.sizes(1),
                  [approximate](const Args& args) {
                    at::gelu_backward_out(args.out(), args.in(0), args.in(1), approximate);
                  },
                  {0});
}

Lowering lower_silu(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0),
                  [](const Args& args) { at::silu_out(args.out(), args.in(0)); }, {0});
}

Lowering lower_leaky_relu(const LowerContext& context) {
  const double slope = context.float_attribute("alpha", 0.01);
  return computed(context.dtype(0), context.sizes(0),
                  [slope](const Args& args) { at::leaky_relu_out(args.out(), args.in(0), slope); });
}

Lowering lower_elu(const LowerContext& context) {
  const double alpha = context.float_attribute("alpha", 1.0);
  return computed(context.dtype(0), context.sizes(0),
                  [alpha](const Args& args) { at::elu_out(args.out(), args.in(0), alpha); });
}

Lowering lower_softplus(const LowerContext& context) {
  return computed(context.dtype(0), context.sizes(0),
                  [](const Args& args) { at::softplus_out(args.out(), args.in(0)); });
}

// ATen's hardsigmoid has fixed slopes; ONNX's has attributes.
Lowering lower_hard_sigmoid(const LowerContext& context) {
  const double alpha = context.float_attribute("alpha", 0.2), beta = context.float_attribute("beta", 0.5);
  return computed(context.dtype(0), context.sizes(0),
                  [alpha, beta](const Args& args) {
                    at::mul_out(args.out(), args.in(0), at::Scalar(alpha));
                    args.out().add_(beta).clamp_(0, 1);
                  },
                  {0});
}

}  // namespace

REKINDLE_OP("", "Gelu", lower_gelu);
REKINDLE_OP("", "LeakyRelu", lower_leaky_relu);
REKINDLE_OP("", "Elu", lower_elu);
REKINDLE_OP("", "Softplus", lower_softplus);
REKINDLE_OP("", "HardSigmoid", lower_hard_sigmoid);
REKINDLE_OP("rekindle", "GeluGradient", lower_gelu_gradient);
REKINDLE_OP("rekindle", "ReluGradient", gradient<relu_gradient>);
REKINDLE_OP("rekindle", "TanhGradient", gradient<tanh_gradient>);
REKINDLE_OP("rekindle", "SigmoidGradient", gradient<sigmoid_gradient>);
REKINDLE_OP("rekindle", "Silu", lower_silu);
REKINDLE_OP("rekindle", "SiluGradient", gradient<silu_gradient>);

}  // namespace rekindle::session

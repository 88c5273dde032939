// Ops that carry a state along a sequence: LinearAttention and CausalConvWithState.
#include <ATen/ops/cat.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

bool given(const Tensors& in, std::size_t i) { return i < in.size() && in[i].defined(); }

struct LinearAttention {
  std::int64_t q_heads, kv_heads;
  double scale;
  bool gated, delta;
};

// [B, T, heads * D] as float32 [T, B, heads, D].
at::Tensor steps(const at::Tensor& x, std::int64_t heads) {
  return x.to(at::kFloat).view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(0, 1);
}

// in: query, key, value, state[B, heads, d_k, d_v]?, decay?, beta?.
// Outputs: y[B, T, q_heads * d_v], last state.
Tensors attend(const LinearAttention& how, const Tensors& in) {
  const at::Tensor q = steps(in[0], how.q_heads), k = steps(in[1], how.kv_heads),
                   v = steps(in[2], how.kv_heads);
  at::Tensor state = given(in, 3) ? in[3].to(at::kFloat)
                                  : at::zeros({q.size(1), how.kv_heads, k.size(3), v.size(3)}, q.options());
  const at::Tensor decay = how.gated ? steps(in[4], how.kv_heads).exp() : at::Tensor();
  const at::Tensor beta =
      how.delta ? steps(in[5], in[5].size(2)).unsqueeze(3) : at::Tensor();  // [T, B, heads or 1, 1, 1]
  const double scale = how.scale != 0 ? how.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensors outputs;
  for (std::int64_t t = 0; t < q.size(0); ++t) {
    if (how.gated) state = state.mul(decay.select(0, t).unsqueeze(-1));
    const at::Tensor key = k.select(0, t).unsqueeze(-1);
    at::Tensor value = v.select(0, t).unsqueeze(-2);
    if (how.delta) value = value.sub(key.transpose(-1, -2).matmul(state)).mul(beta.select(0, t));
    state = state.add(key.matmul(value));
    const at::Tensor read = state.repeat_interleave(how.q_heads / how.kv_heads, 1);
    outputs.push_back(q.select(0, t).unsqueeze(-2).matmul(read).mul(scale).flatten(1));
  }
  return {at::stack(outputs, 1).to(in[0].scalar_type()),
          state.to(given(in, 3) ? in[3].scalar_type() : in[0].scalar_type())};
}

Lowering lower_linear_attention(const LowerContext& context) {
  const std::string rule = context.string_attribute("update_rule", "gated_delta");
  TORCH_CHECK(rule == "linear" || rule == "gated" || rule == "delta" || rule == "gated_delta",
              "update_rule '", rule, "'");
  const LinearAttention how{context.int_attribute("q_num_heads", 0), context.int_attribute("kv_num_heads", 0),
                            context.float_attribute("scale", 0), rule.starts_with("gated"),
                            rule.ends_with("delta")};
  TORCH_CHECK(how.q_heads > 0 && how.kv_heads > 0 && how.q_heads % how.kv_heads == 0 &&
                  context.rank(0) == 3 && context.meta(0).size(1) > 0,
              "LinearAttention of ", context.meta(0).sizes(), " with ", how.q_heads, " and ", how.kv_heads,
              " heads");
  TORCH_CHECK(context.has(4) == how.gated && context.has(5) == how.delta, "update_rule ", rule,
              " with another set of inputs");
  return functional(context, [how](const Tensors& in) { return attend(how, in); });
}

// Inputs: x[B, C, L], weight[C, 1, K], bias?, the K - 1 elements before x?.
// Outputs: y[B, C, L], the last K - 1 elements.
Lowering lower_causal_conv_with_state(const LowerContext& context) {
  const std::string activation = context.string_attribute("activation", "none");
  TORCH_CHECK(activation == "none" || activation == "silu" || activation == "swish", "activation '",
              activation, "'");
  return functional(context, [activates = activation != "none"](const Tensors& in) -> Tensors {
    const std::int64_t channels = in[0].size(1), before = in[1].size(2) - 1;
    const at::Tensor past =
        given(in, 3) ? in[3] : at::zeros({in[0].size(0), channels, before}, in[0].options());
    const at::Tensor x = at::cat({past, in[0]}, 2);
    const std::optional<at::Tensor> bias = given(in, 2) ? std::optional(in[2]) : std::nullopt;
    const Sizes one{1}, none{0};
    const at::Tensor y = at::conv1d(x, in[1], bias, one, none, one, channels);
    return {activates ? y.mul(y.sigmoid()) : y, x.narrow(2, x.size(2) - before, before)};
  });
}

}  // namespace

REKINDLE_OP("", "CausalConvWithState", lower_causal_conv_with_state);
REKINDLE_OP("", "LinearAttention", lower_linear_attention);

}  // namespace rekindle::session

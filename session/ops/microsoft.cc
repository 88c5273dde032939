// Ops of the domain com.microsoft that optimized transformer models carry.
// Defined by onnxruntime's ContribOperators.md.
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "session/ops/attention_onnx.h"

namespace rekindle::session {
namespace {

bool given(const Tensors& in, std::size_t i) { return i < in.size() && in[i].defined(); }

Lowering lower_gelu_of_microsoft(const LowerContext& context) {
  return functional(context, [](const Tensors& in) -> Tensors {
    return {at::gelu(given(in, 1) ? in[0].add(in[1]) : in[0])};
  });
}

Lowering lower_fast_gelu(const LowerContext& context) {
  return functional(context, [](const Tensors& in) -> Tensors {
    return {at::gelu(given(in, 1) ? in[0].add(in[1]) : in[0], "tanh")};
  });
}

Lowering lower_quick_gelu(const LowerContext& context) {
  const double alpha = context.float_attribute("alpha", 1.702);
  return functional(
      context, [alpha](const Tensors& in) -> Tensors { return {in[0].mul(in[0].mul(alpha).sigmoid())}; });
}

Lowering lower_fused_matmul(const LowerContext& context) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      context.int_attribute("transBatchA", 0) == 0 && context.int_attribute("transBatchB", 0) == 0,
      "FusedMatMul with transposed batches");
  const bool a = context.int_attribute("transA", 0) != 0, b = context.int_attribute("transB", 0) != 0;
  const double alpha = context.float_attribute("alpha", 1);
  return functional(context, [a, b, alpha](const Tensors& in) -> Tensors {
    const at::Tensor left = a ? in[0].transpose(-1, -2) : in[0], right = b ? in[1].transpose(-1, -2) : in[1];
    return {at::matmul(left, right).mul(alpha)};
  });
}

// Outputs: y, mean, 1 / deviation, the sum that was normalized. `simplified`:
// no mean is taken off, nor beta an input.
template <bool simplified>
Lowering skip_normalization(const LowerContext& context) {
  const double epsilon = context.float_attribute("epsilon", simplified ? 1e-5 : 1e-12);
  return functional(context, [epsilon](const Tensors& in) -> Tensors {
    const std::size_t bias = simplified ? 3 : 4;
    at::Tensor sum = in[0].add(in[1]);
    if (given(in, bias)) sum = sum.add(in[bias]);
    const at::Tensor x = sum.to(at::kFloat), mean = x.mean(-1, /*keepdim=*/true),
                     centered = simplified ? x : x.sub(mean);
    const at::Tensor inverse = centered.square().mean(-1, /*keepdim=*/true).add(epsilon).rsqrt();
    at::Tensor y = centered.mul(inverse).mul(in[2].to(at::kFloat));
    if (!simplified && given(in, 3)) y = y.add(in[3].to(at::kFloat));
    return {y.to(in[0].scalar_type()), mean, inverse, sum};
  });
}

// Inputs: x, positions (one: where the sequence begins; or [B, L]), cos, sin.
Lowering lower_rotary_embedding_of_microsoft(const LowerContext& context) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      context.int_attribute("is_packed_batching", 0) == 0 && context.float_attribute("scale", 1) == 1,
      "RotaryEmbedding with packed batches or a scale");
  const std::int64_t rotated = context.int_attribute("rotary_embedding_dim", 0),
                     half = context.meta(2).size(-1);
  std::int64_t heads = context.int_attribute("num_heads", 0);
  if (heads == 0 && context.rank(0) == 3) heads = context.meta(0).size(2) / (2 * half);
  const bool interleaved = context.int_attribute("interleaved", 0) != 0;
  return functional(context, [heads, rotated, interleaved](const Tensors& in) -> Tensors {
    const std::int64_t batch = in[0].size(0), length = in[0].size(in[0].dim() == 4 ? 2 : 1);
    at::Tensor positions = in[1].to(at::kLong);
    if (positions.numel() == 1)
      positions = at::arange(length, positions.options()).add(positions.reshape({1})).expand({batch, length});
    return {rotate({in[0], in[2], in[3], positions}, heads, rotated, interleaved)};
  });
}

// Inputs: query, key, value, bias of all three?, key padding mask?, bias
// on the scores?, past key?, past value?.
Lowering lower_multi_head_attention(const LowerContext& context) {
  const std::int64_t heads = context.int_attribute("num_heads", 0);
  TORCH_CHECK_NOT_IMPLEMENTED(context.has(1) && context.has(2),
                              "MultiHeadAttention with packed key and value");
  TORCH_CHECK_NOT_IMPLEMENTED(!context.has(4) || context.rank(4) == 2,
                              "MultiHeadAttention with a key padding mask of rank ",
                              context.has(4) ? context.rank(4) : 0);
  const Attention how{heads,
                      heads,
                      0,
                      -1,
                      -1,
                      context.int_attribute("unidirectional", 0) != 0,
                      context.float_attribute("scale", 0),
                      0,
                      at::kFloat};
  const double filler = context.float_attribute("mask_filter_value", -10000);
  return functional(context, [how, filler](const Tensors& in) {
    Tensors taken{in[0],
                  in[1],
                  in[2],
                  at::Tensor(),
                  given(in, 6) ? in[6] : at::Tensor(),
                  given(in, 7) ? in[7] : at::Tensor()};
    if (given(in, 3)) {
      std::int64_t begin = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        if (taken[i].dim() != 3) break;  // keys and values that come with heads have their bias already
        taken[i] = taken[i].add(in[3].narrow(0, begin, taken[i].size(2)));
        begin += taken[i].size(2);
      }
    }
    if (given(in, 5)) taken[3] = in[5];
    if (given(in, 4)) {
      const at::Tensor padding = in[4].eq(0).unsqueeze(1).unsqueeze(1).to(in[0].scalar_type()).mul(filler);
      taken[3] = taken[3].defined() ? taken[3].add(padding) : padding;
    }
    return attend(how, taken);
  });
}

}  // namespace

REKINDLE_OP("com.microsoft", "BiasGelu", lower_gelu_of_microsoft);
REKINDLE_OP("com.microsoft", "FastGelu", lower_fast_gelu);
REKINDLE_OP("com.microsoft", "FusedMatMul", lower_fused_matmul);
REKINDLE_OP("com.microsoft", "Gelu", lower_gelu_of_microsoft);
REKINDLE_OP("com.microsoft", "MultiHeadAttention", lower_multi_head_attention);
REKINDLE_OP("com.microsoft", "QuickGelu", lower_quick_gelu);
REKINDLE_OP("com.microsoft", "RotaryEmbedding", lower_rotary_embedding_of_microsoft);
REKINDLE_OP("com.microsoft", "SkipLayerNormalization", skip_normalization<false>);
REKINDLE_OP("com.microsoft", "SkipSimplifiedLayerNormalization", skip_normalization<true>);

}  // namespace rekindle::session

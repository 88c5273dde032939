// ONNX's Attention and RotaryEmbedding. Training uses rekindle::ScaledDotProductAttention (attention.cc).
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "session/lower/tensor_types.h"
#include "session/ops/attention_onnx.h"

namespace rekindle::session {
namespace {

// [B, L, heads * E] as [B, heads, L, E]; 4-d tensors are that already.
at::Tensor with_heads(const at::Tensor& x, std::int64_t heads) {
  if (x.dim() == 4) return x;
  TORCH_CHECK(x.dim() == 3 && heads > 0 && x.size(2) % heads == 0, "Attention of ", x.sizes(), " with ",
              heads, " heads");
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor minus_infinity_unless(const at::Tensor& allowed, at::ScalarType type) {
  const at::Tensor zero = at::zeros({}, allowed.options().dtype(type));
  return at::where(allowed, zero, zero.sub(INFINITY));
}

// Which of S keys each of L queries may see by position: a query stands `offset` (a number or one per batch)
// places behind its index.
at::Tensor positions_allowed(const Attention& how, std::int64_t queries, std::int64_t keys,
                             const at::Tensor& offset) {
  const at::Tensor place = at::arange(queries, offset.options()).unsqueeze(1).add(offset);
  const at::Tensor key = at::arange(keys, offset.options()).unsqueeze(0);
  at::Tensor allowed = key.ge(0).expand_as(place.add(key));
  if (how.causal) allowed = allowed.logical_and(key.le(place));
  if (how.left >= 0) allowed = allowed.logical_and(key.ge(place.sub(how.left)));
  if (how.right >= 0) allowed = allowed.logical_and(key.le(place.add(how.right)));
  return allowed;
}

// in: q, k, v, mask?, past key?, past value?, number of keys that are no
// padding?. The bias on the scores; undefined: none.
at::Tensor bias_of(const Attention& how, const Tensors& in, const at::Tensor& q, std::int64_t keys) {
  const auto given = [&](std::size_t i) { return i < in.size() && in[i].defined(); };
  const std::int64_t queries = q.size(2);
  at::Tensor bias;
  const auto add = [&](const at::Tensor& more) { bias = bias.defined() ? bias.add(more) : more; };
  if (given(3)) {
    at::Tensor mask =
        in[3].scalar_type() == at::kBool ? minus_infinity_unless(in[3], q.scalar_type()) : in[3];
    if (mask.size(-1) < keys) mask = at::constant_pad_nd(mask, {0, keys - mask.size(-1)}, -INFINITY);
    add(mask);
  }
  if (how.causal || how.left >= 0 || how.right >= 0) {
    at::Tensor offset = at::zeros({}, q.options().dtype(at::kLong));
    if (given(4)) {
      offset = offset.add(in[4].size(2));
    } else if (given(6)) {
      offset = in[6].to(at::kLong).sub(queries).view({-1, 1, 1, 1});
    }
    add(minus_infinity_unless(positions_allowed(how, queries, keys, offset), q.scalar_type()));
  }
  if (given(6)) {
    const at::Tensor valid =
        at::arange(keys, q.options().dtype(at::kLong)).lt(in[6].to(at::kLong).view({-1, 1, 1, 1}));
    add(minus_infinity_unless(valid, q.scalar_type()));
  }
  return bias;
}

// A row that may see nothing has probability zero everywhere.
at::Tensor probabilities(const at::Tensor& scores, at::ScalarType type) {
  const at::Tensor nothing = scores.eq(-INFINITY).all(-1, /*keepdim=*/true);
  return at::softmax(scores.to(type), -1).masked_fill(nothing, 0).to(scores.scalar_type());
}

}  // namespace

Tensors attend(const Attention& how, const Tensors& in) {
  const auto past = [&](std::size_t i) { return i < in.size() && in[i].defined(); };
  const at::Tensor q = with_heads(in[0], how.q_heads);
  at::Tensor k = with_heads(in[1], how.kv_heads), v = with_heads(in[2], how.kv_heads);
  TORCH_CHECK(past(4) == past(5), "past_key and past_value come together");
  if (past(4)) k = at::cat({in[4], k}, 2);
  if (past(5)) v = at::cat({in[5], v}, 2);
  const at::Tensor present_k = k, present_v = v;
  if (const std::int64_t each = q.size(1) / k.size(1); each > 1) {
    k = k.repeat_interleave(each, 1);
    v = v.repeat_interleave(each, 1);
  }
  const double scale = std::sqrt(how.scale != 0 ? how.scale : 1 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor factor =
      at::scalar_tensor(scale, q.options());  // rounded to the inputs' type, as ONNX has it
  at::Tensor scores = q.mul(factor).matmul(k.transpose(2, 3).mul(factor)), shown = scores;
  if (how.softcap > 0) scores = scores.div(how.softcap).tanh().mul(how.softcap);
  if (how.qk_mode == 1) shown = scores;
  if (const at::Tensor bias = bias_of(how, in, q, k.size(2)); bias.defined()) scores = scores.add(bias);
  if (how.qk_mode == 2) shown = scores;
  const at::Tensor weights = probabilities(scores, how.softmax_type);
  if (how.qk_mode == 3) shown = weights;
  at::Tensor y = weights.matmul(v);
  if (in[0].dim() == 3) y = y.transpose(1, 2).flatten(2);
  return {y, present_k, present_v, shown};
}

namespace {

Lowering lower_attention(const LowerContext& context) {
  const auto precision = context.int_attribute("softmax_precision", 0);
  const at::ScalarType type = context.dtype(0);
  const Attention how{context.int_attribute("q_num_heads", 0),
                      context.int_attribute("kv_num_heads", 0),
                      context.int_attribute("qk_matmul_output_mode", 0),
                      context.int_attribute("left_window_size", -1),
                      context.int_attribute("right_window_size", -1),
                      context.int_attribute("is_causal", 0) != 0,
                      context.float_attribute("scale", 0),
                      context.float_attribute("softcap", 0),
                      precision == 0 ? type : scalar_type_of(static_cast<graph::DType>(precision))};
  return functional(context, [how](const Tensors& in) { return attend(how, in); });
}

}  // namespace

at::Tensor rotate(const Tensors& in, std::int64_t heads, std::int64_t rotated, bool interleaved) {
  const at::Tensor x = with_heads(in[0], heads).transpose(1, 2);  // [B, L, heads, E]
  if (rotated == 0) rotated = x.size(3);
  const bool by_position = in.size() > 3 && in[3].defined();
  const auto angles = [&](const at::Tensor& cache) {
    const at::Tensor picked = by_position ? cache.index_select(0, in[3].to(at::kLong).reshape({-1})) : cache;
    return picked.narrow(-1, 0, rotated / 2).reshape({x.size(0), x.size(1), 1, rotated / 2});
  };
  const at::Tensor cos = angles(in[1]), sin = angles(in[2]);
  const at::Tensor part = x.narrow(3, 0, rotated), rest = x.narrow(3, rotated, x.size(3) - rotated);
  const at::Tensor first = interleaved ? part.slice(3, 0, rotated, 2) : part.narrow(3, 0, rotated / 2);
  const at::Tensor second =
      interleaved ? part.slice(3, 1, rotated, 2) : part.narrow(3, rotated / 2, rotated / 2);
  const at::Tensor real = first.mul(cos).sub(second.mul(sin)),
                   imaginary = first.mul(sin).add(second.mul(cos));
  const at::Tensor turned =
      interleaved ? at::stack({real, imaginary}, -1).flatten(3) : at::cat({real, imaginary}, 3);
  const at::Tensor y = at::cat({turned, rest}, 3);
  return in[0].dim() == 3 ? y.flatten(2) : y.transpose(1, 2);
}

namespace {

Lowering lower_rotary_embedding(const LowerContext& context) {
  return functional(context,
                    [heads = context.int_attribute("num_heads", 0),
                     rotated = context.int_attribute("rotary_embedding_dim", 0),
                     interleaved = context.int_attribute("interleaved", 0) != 0](
                        const Tensors& in) -> Tensors { return {rotate(in, heads, rotated, interleaved)}; });
}

}  // namespace

REKINDLE_OP("", "Attention", lower_attention);
REKINDLE_OP("", "RotaryEmbedding", lower_rotary_embedding);

}  // namespace rekindle::session

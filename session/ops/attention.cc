// ScaledDotProductAttention without dropout, on the CPU by PyTorch's fused kernels. These have no out
// variant: what they return is copied into planned memory, so that it outlives nothing and
// views of it are known to the plan. Other devices compute the scores as a whole.
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

struct ScaledDotProduct {
  bool causal = false, mask = false, bool_mask = false,
       empty = false;  // empty: no query, or nothing to look at
  double scale = 0;
};

ScaledDotProduct attention_of(const LowerContext& context, std::size_t query, std::size_t mask) {
  const at::Tensor &q = context.meta(query), &k = context.meta(query + 1), &v = context.meta(query + 2);
  TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(3) == k.size(3) &&
                  k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(1) == k.size(1),
              "ScaledDotProductAttention of ", q.sizes(), ", ", k.sizes(), " and ", v.sizes());
  ScaledDotProduct attention;
  attention.causal = context.int_attribute("is_causal", 0) != 0;
  attention.scale = context.float_attribute("scale", 1.0 / std::sqrt(static_cast<double>(q.size(3))));
  attention.empty = q.numel() == 0 || k.numel() == 0;  // PyTorch's kernels divide by these
  attention.mask = context.has(mask);
  attention.bool_mask = attention.mask && context.dtype(mask) == at::kBool;
  return attention;
}

std::optional<at::Tensor> additive_mask(const Args& args, const ScaledDotProduct& attention,
                                        std::size_t input) {
  if (!attention.mask) return std::nullopt;
  at::Tensor mask = args.in(input);
  if (attention.bool_mask) {
    const auto options = args.in(0).options();
    mask = at::where(mask, at::scalar_tensor(0, options),
                     at::scalar_tensor(-std::numeric_limits<double>::infinity(), options));
  }
  while (mask.dim() < 4) mask = mask.unsqueeze(0);
  return mask;
}

// PyTorch's fused kernels take it that the elements of a row lie one after the other; its own caller asks.
at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

// Query, key and value, and scores [B, H, L, S] with the mask on them, in float32 at least.
struct Scored {
  at::Tensor query, key, value, scores;
};

Scored scores_of(const Args& args, const ScaledDotProduct& attention, std::size_t query, std::size_t mask) {
  const at::ScalarType precise = args.in(query).scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Scored scored{
      args.in(query).to(precise), args.in(query + 1).to(precise), args.in(query + 2).to(precise), {}};
  scored.scores = scored.query.matmul(scored.key.transpose(-2, -1)).mul_(attention.scale);
  if (attention.causal) {
    const auto options = scored.scores.options().dtype(at::kBool);
    const at::Tensor seen = at::ones({scored.scores.size(2), scored.scores.size(3)}, options).tril();
    scored.scores.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (const auto added = additive_mask(args, attention, mask)) scored.scores.add_(*added);
  return scored;
}

void attend(const Args& args, const ScaledDotProduct& attention) {
  const Scored scored = scores_of(args, attention, 0, 3);
  args.out(0).copy_(at::_safe_softmax(scored.scores, -1).matmul(scored.value));
  args.out(1).copy_(at::logsumexp(scored.scores, -1));
}

// With P the softmax of the scores S: dV = P' dY, dS = P * (dY V' - rowsum(dY * Y)), dQ = dS K, dK = dS' Q,
// times the scale (Dao et al., "FlashAttention", 2022, algorithm 4).
void attend_backward(const Args& args, const ScaledDotProduct& attention) {
  const Scored scored = scores_of(args, attention, 1, 6);
  const at::Tensor dy = args.in(0).to(scored.query.scalar_type());
  const at::Tensor weights = at::_safe_softmax(scored.scores, -1);
  const at::Tensor dot = dy.mul(args.in(4)).sum(-1, /*keepdim=*/true);
  const at::Tensor ds =
      dy.matmul(scored.value.transpose(-2, -1)).sub_(dot).mul_(weights).mul_(attention.scale);
  args.out(0).copy_(ds.matmul(scored.key));
  args.out(1).copy_(ds.transpose(-2, -1).matmul(scored.query));
  args.out(2).copy_(weights.transpose(-2, -1).matmul(dy));
}

Layout heads_first_over_heads_last(at::ScalarType type, const Sizes& sizes) {
  const std::int64_t heads = sizes[1], length = sizes[2], width = sizes[3];
  return {type, sizes, Sizes{length * heads * width, width, heads * width, 1}};
}

// Outputs: y [B, H, L, E] laid out as [B, L, H, E], logsumexp [B, H, L] laid out as [B, L, H].
Lowering lower_scaled_dot_product_attention(const LowerContext& context) {
  const ScaledDotProduct attention = attention_of(context, 0, 3);
  const Sizes sizes = context.sizes(0);
  TORCH_CHECK(sizes.size() == 4, "attention over a query of rank ", sizes.size());
  const at::ScalarType precise = context.dtype(0) == at::kDouble ? at::kDouble : at::kFloat;
  Lowering lowering;
  lowering.outputs = {heads_first_over_heads_last(context.dtype(0), sizes),
                      {precise, {sizes[0], sizes[1], sizes[2]}, Sizes{sizes[1] * sizes[2], 1, sizes[1]}}};
  lowering.kernel = [attention](const Args& args) {
    if (attention.empty) {
      args.out(0).zero_();
      args.out(1).fill_(-std::numeric_limits<double>::infinity());
      return;
    }
    if (!args.in(0).is_cpu()) return attend(args, attention);
    const auto [y, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        with_dense_rows(args.in(0)), with_dense_rows(args.in(1)), with_dense_rows(args.in(2)), 0.0,
        attention.causal, additive_mask(args, attention, 3), attention.scale);
    args.out(0).copy_(y);
    args.out(1).copy_(logsumexp);
  };
  return lowering;
}

// Inputs: dy, q, k, v, y, logsumexp, mask?. Outputs: dq, dk, dv, laid out like y.
Lowering lower_scaled_dot_product_attention_gradient(const LowerContext& context) {
  const ScaledDotProduct attention = attention_of(context, 1, 6);
  Lowering lowering;
  for (std::size_t i = 1; i <= 3; ++i) {
    lowering.outputs.push_back(heads_first_over_heads_last(context.dtype(i), context.sizes(i)));
  }
  lowering.kernel = [attention](const Args& args) {
    if (attention.empty) {
      for (std::size_t i = 0; i < 3; ++i) args.out(i).zero_();
      return;
    }
    if (!args.in(0).is_cpu()) return attend_backward(args, attention);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        with_dense_rows(args.in(0)), with_dense_rows(args.in(1)), with_dense_rows(args.in(2)),
        with_dense_rows(args.in(3)), args.in(4), args.in(5), 0.0, attention.causal,
        additive_mask(args, attention, 6), attention.scale);
    args.out(0).copy_(dq);
    args.out(1).copy_(dk);
    args.out(2).copy_(dv);
  };
  return lowering;
}

}  // namespace

REKINDLE_OP("rekindle", "ScaledDotProductAttention", lower_scaled_dot_product_attention);
REKINDLE_OP("rekindle", "ScaledDotProductAttentionGradient", lower_scaled_dot_product_attention_gradient);

}  // namespace rekindle::session

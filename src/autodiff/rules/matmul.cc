// Gradients of matrix products. That of a weight comes first: what it reads besides is the forward's largest
// value often, or is computed again for it, and gives its memory to the other gradient.
#include <numeric>
#include <utility>

#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

// The last two of `rank` dimensions swapped.
Value* transposed(RuleContext& ctx, Value* matrix, std::size_t rank) {
  std::vector<std::int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[rank - 1], perm[rank - 2]);
  return ctx.op("Transpose", {matrix}, {{"perm", perm}});
}

Value* unsqueezed(RuleContext& ctx, Value* x, std::int64_t axis) {
  return ctx.op("Unsqueeze", {x, ctx.int64s({axis})});
}

// The shape of a product with the batch dimensions of y and the matrix
// dimensions of x; both have rank 2 or more.
TensorType with_batch_of(const TensorType& y, const TensorType& x) {
  if (!y.dims || !x.dims) return {};
  TensorType type = y;
  std::copy(x.dims->end() - 2, x.dims->end(), type.dims->end() - 2);
  return type;
}

// a[K] · b[..., K, N] -> y[..., N]
void vector_matrix_gradient(RuleContext& ctx, std::size_t rank_b) {
  Value* row = unsqueezed(ctx, ctx.dy(), -2);
  if (ctx.needs(0)) {
    Value* da = ctx.op("MatMul", {row, transposed(ctx, ctx.x(1), rank_b)});  // [..., 1, K]
    ctx.set_unreduced_dx(0, da, {});
  }
  if (ctx.needs(1)) ctx.set_dx(1, ctx.op("MatMul", {unsqueezed(ctx, ctx.x(0), 1), row}));
}

// a[..., M, K] · b[K] -> y[..., M]
void matrix_vector_gradient(RuleContext& ctx) {
  Value* column = unsqueezed(ctx, ctx.dy(), -1);
  if (ctx.needs(0)) ctx.set_dx(0, ctx.op("Mul", {column, ctx.x(1)}));
  if (!ctx.needs(1)) return;
  Value* db = ctx.rekindle_op("LinearWeightGradient", {column, ctx.x(0)});  // [1, K]
  ctx.set_dx(1, ctx.rekindle_op("ReshapeLike", {db, ctx.x(1)}));
}

// a[..., M, K] · b[K, N] -> y[..., M, N]
void matrix_weight_gradient(RuleContext& ctx, std::size_t rank_a) {
  Value *a = ctx.x(0), *dy = ctx.dy();
  if (ctx.needs(1)) {  // one product over all rows, instead of a batch of products that is then summed
    ctx.set_dx(1, rank_a == 2 ? ctx.op("MatMul", {transposed(ctx, a, rank_a), dy})
                              : ctx.rekindle_op("LinearWeightGradient", {a, dy}));
  }
  if (ctx.needs(0)) ctx.set_dx(0, ctx.op("MatMul", {dy, transposed(ctx, ctx.x(1), 2)}));
}

void matrix_matrix_gradient(RuleContext& ctx, std::size_t rank_a, std::size_t rank_b) {
  if (rank_b == 2) return matrix_weight_gradient(ctx, rank_a);
  Value *a = ctx.x(0), *b = ctx.x(1), *dy = ctx.dy();
  const TensorType& y = ctx.node().output()->type();
  if (ctx.needs(0)) {
    ctx.set_unreduced_dx(0, ctx.op("MatMul", {dy, transposed(ctx, b, rank_b)}), with_batch_of(y, a->type()));
  }
  if (!ctx.needs(1)) return;
  Value* db = ctx.op("MatMul", {transposed(ctx, a, rank_a), dy});
  if (rank_a == 2) {
    ctx.set_dx(1, db);
  } else {
    ctx.set_unreduced_dx(1, db, with_batch_of(y, b->type()));
  }
}

Status matmul_gradient(RuleContext& ctx) {
  const std::optional<std::size_t> rank_a = rank_of(ctx.x(0)), rank_b = rank_of(ctx.x(1));
  if (!rank_a || !rank_b)
    return ctx.unsupported("the ranks of its inputs are not known; infer the graph's shapes first");
  if (*rank_a == 1 && *rank_b == 1) {
    if (ctx.needs(0)) ctx.set_dx(0, ctx.op("Mul", {ctx.dy(), ctx.x(1)}));
    if (ctx.needs(1)) ctx.set_dx(1, ctx.op("Mul", {ctx.dy(), ctx.x(0)}));
  } else if (*rank_a == 1) {
    vector_matrix_gradient(ctx, *rank_b);
  } else if (*rank_b == 1) {
    matrix_vector_gradient(ctx);
  } else {
    matrix_matrix_gradient(ctx, *rank_a, *rank_b);
  }
  return {};
}

Value* gemm(RuleContext& ctx, Value* a, bool transpose_a, Value* b, bool transpose_b) {
  const double alpha = ctx.node().float_attribute("alpha", 1);
  return ctx.op("Gemm", {a, b},
                {{"alpha", alpha}, {"transA", transpose_a ? 1 : 0}, {"transB", transpose_b ? 1 : 0}});
}

// y = alpha * a' · b' + beta * c, where a' and b' are a and b or their transposes.
Status gemm_gradient(RuleContext& ctx) {
  Value *a = ctx.x(0), *b = ctx.x(1), *dy = ctx.dy();
  const bool transpose_a = ctx.node().int_attribute("transA", 0) != 0;
  const bool transpose_b = ctx.node().int_attribute("transB", 0) != 0;
  if (ctx.needs(1))
    ctx.set_dx(1, transpose_b ? gemm(ctx, dy, true, a, transpose_a) : gemm(ctx, a, !transpose_a, dy, false));
  if (ctx.needs(0))
    ctx.set_dx(0, transpose_a ? gemm(ctx, b, transpose_b, dy, true) : gemm(ctx, dy, false, b, !transpose_b));
  if (ctx.needs(2)) {
    const double beta = ctx.node().float_attribute("beta", 1);
    ctx.set_unreduced_dx(2, beta == 1 ? dy : ctx.op("Mul", {dy, ctx.scalar(beta, dy)}));
  }
  return {};
}

Status linear_gradient(RuleContext& ctx) {
  if (ctx.needs(1)) ctx.set_dx(1, ctx.rekindle_op("LinearWeightGradient", {ctx.dy(), ctx.x(0)}));
  if (ctx.needs(0)) ctx.set_dx(0, ctx.op("MatMul", {ctx.dy(), ctx.x(1)}));
  if (ctx.needs(2)) ctx.set_unreduced_dx(2, ctx.dy());
  return {};
}

REKINDLE_GRADIENT("", "MatMul", matmul_gradient);
REKINDLE_GRADIENT("", "Gemm", gemm_gradient);
REKINDLE_GRADIENT("rekindle", "Linear", linear_gradient);

}  // namespace
}  // namespace rekindle::autodiff

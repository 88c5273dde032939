// Matrix products. Leading dimensions are flattened into one so that each
// product is a single GEMM where it can be.
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/slice.h>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

// [..., K] as [rows, K]. The planner gives row-major tensors, so this is a
// view; a strided caller's input is copied.
at::Tensor as_matrix(const at::Tensor& x) {
  const auto leading = x.sizes().slice(0, static_cast<std::size_t>(x.dim() - 1));
  return x.dim() == 2
             ? x
             : x.reshape({c10::multiply_integers(leading), x.size(-1)});  // -1 cannot be told when K is 0
}

// Writes left * right + bias, scaled by alpha and beta where there is a bias, into out.
void multiply(at::Tensor out, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
              double beta = 1.0, double alpha = 1.0) {
  if (bias.defined()) {
    at::addmm_out(out, bias, left, right, beta, alpha);
  } else {
    at::mm_out(out, left, right);
  }
}

// A product with very many columns, such as that with a vocabulary, whose rows begin at no multiple of a
// cache line, takes MKL up to 1.45 times as long as its blocks do, which have the same bits
// (docs/decisions/0041).
constexpr std::int64_t kManyColumns = 8192, kBlock = 1024, kFloatsOfALine = 16;

bool runs_in_blocks(const at::Tensor& out) {
  const std::int64_t columns = out.size(1);
  return out.scalar_type() == at::kFloat && out.is_cpu() && columns >= kManyColumns &&
         columns % kFloatsOfALine != 0;
}

void multiply_in_blocks(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                        const at::Tensor& bias = {}) {
  if (!runs_in_blocks(out)) return multiply(out, left, right, bias);
  for (std::int64_t begin = 0; begin < out.size(1); begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, out.size(1));
    const auto block = [&](const at::Tensor& of) { return of.slice(of.dim() - 1, begin, end); };
    multiply(block(out), left, block(right), bias.defined() ? block(bias) : bias);
  }
}

Lowering lower_linear(const LowerContext& context) {
  Sizes sizes = context.sizes(0);
  const at::Tensor& weight = context.meta(1);
  TORCH_CHECK(!sizes.empty() && weight.dim() == 2 && sizes.back() == weight.size(1), "Linear of ",
              context.meta(0).sizes(), " and weight ", weight.sizes());
  sizes.back() = weight.size(0);
  const bool bias = context.has(2);
  return computed(context.dtype(0), sizes, [bias](const Args& args) {
    multiply_in_blocks(as_matrix(args.out()), as_matrix(args.in(0)), args.in(1).t(),
                       bias ? args.in(2) : at::Tensor());
  });
}

// Inputs: dy, x, base?. The result takes over the memory of a base that dies here.
Lowering lower_linear_weight_gradient(const LowerContext& context) {
  const std::int64_t rows = context.sizes(0).back(), columns = context.sizes(1).back();
  const bool base = context.has(2);
  Lowering lowering = computed(context.dtype(1), {rows, columns}, [base](const Args& args) {
    multiply(args.out(), as_matrix(args.in(0)).t(), as_matrix(args.in(1)), base ? args.in(2) : at::Tensor());
  });
  if (base) lowering.in_place = {2};
  return lowering;
}

Sizes matmul_sizes(const Sizes& a, const Sizes& b) {
  TORCH_CHECK(!a.empty() && !b.empty(), "MatMul of a scalar");
  const std::int64_t inner = b.size() == 1 ? b[0] : b[b.size() - 2];
  TORCH_CHECK(a.back() == inner, "MatMul of ", at::IntArrayRef(a), " and ", at::IntArrayRef(b));
  const Sizes batch_a(a.begin(),
                      a.end() - std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(a.size())));
  const Sizes batch_b(b.begin(),
                      b.end() - std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(b.size())));
  Sizes sizes = broadcast_sizes(batch_a, batch_b);
  if (a.size() > 1) sizes.push_back(a[a.size() - 2]);
  if (b.size() > 1) sizes.push_back(b.back());
  return sizes;
}

// Same batch dimensions on both sides: one bmm into the planned output.
void batched(const Args& args, std::int64_t batch) {
  const at::Tensor &a = args.in(0), &b = args.in(1);
  at::Tensor out = args.out().view({batch, a.size(-2), b.size(-1)});
  at::bmm_out(out, a.reshape({batch, a.size(-2), a.size(-1)}), b.reshape({batch, b.size(-2), b.size(-1)}));
}

Lowering lower_matmul(const LowerContext& context) {
  const Sizes a = context.sizes(0), b = context.sizes(1);
  Sizes sizes = matmul_sizes(a, b);
  if (a.size() >= 2 && b.size() == 2) {
    return computed(context.dtype(0), sizes, [](const Args& args) {
      multiply_in_blocks(as_matrix(args.out()), as_matrix(args.in(0)), args.in(1));
    });
  }
  if (a.size() == b.size() && a.size() > 2 && std::equal(a.begin(), a.end() - 2, b.begin())) {
    const std::int64_t batch = product(Sizes(a.begin(), a.end() - 2));
    return computed(context.dtype(0), sizes, [batch](const Args& args) { batched(args, batch); });
  }
  if (a.size() == 1 && b.size() == 2) {  // matmul_out would resize the output
    return computed(context.dtype(0), sizes, [](const Args& args) {
      at::Tensor out = args.out().unsqueeze(0);
      at::mm_out(out, args.in(0).unsqueeze(0), args.in(1));
    });
  }
  return computed(context.dtype(0), sizes,
                  [](const Args& args) { at::matmul_out(args.out(), args.in(0), args.in(1)); });
}

// alpha * a * b + beta * c of integers, whose factors need not be such: rounded to zero at the end, as the
// reference implementation does.
void multiply_integers(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                       double beta, double alpha) {
  at::Tensor sum = at::mm(a, b).to(at::kDouble).mul_(alpha);
  if (c.defined()) sum.add_(c.to(at::kDouble), beta);
  out.copy_(sum);
}

// ONNX Gemm: alpha * A' * B' + beta * C, with C broadcast.
Lowering lower_gemm(const LowerContext& context) {
  const bool transpose_a = context.int_attribute("transA", 0) != 0,
             transpose_b = context.int_attribute("transB", 0) != 0;
  const double alpha = context.float_attribute("alpha", 1.0), beta = context.float_attribute("beta", 1.0);
  const at::Tensor &a = context.meta(0), &b = context.meta(1);
  const bool bias = context.has(2);
  const Sizes sizes{a.size(transpose_a ? 1 : 0), b.size(transpose_b ? 0 : 1)};
  TORCH_CHECK(a.size(transpose_a ? 0 : 1) == b.size(transpose_b ? 1 : 0), "Gemm of ", a.sizes(), " and ",
              b.sizes());
  const bool scales_integers = at::isIntegralType(context.dtype(0), false) && (alpha != 1.0 || beta != 1.0);
  return computed(context.dtype(0), sizes, [=](const Args& args) {
    const at::Tensor left = transpose_a ? args.in(0).t() : args.in(0);
    const at::Tensor right = transpose_b ? args.in(1).t() : args.in(1);
    const at::Tensor base = bias ? args.in(2) : at::Tensor();
    if (scales_integers) return multiply_integers(args.out(), left, right, base, beta, alpha);
    multiply(args.out(), left, right, base, beta, alpha);
    if (!bias && alpha != 1.0) args.out().mul_(alpha);
  });
}

}  // namespace

REKINDLE_OP("", "MatMul", lower_matmul);
REKINDLE_OP("", "Gemm", lower_gemm);
REKINDLE_OP("rekindle", "Linear", lower_linear);
REKINDLE_OP("rekindle", "LinearWeightGradient", lower_linear_weight_gradient);

}  // namespace rekindle::session

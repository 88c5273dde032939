// Products with weights of 4 bits: onnxruntime's MatMulBnb4, its gradient, and the operator that exports
// trace for it.
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "kernels/dequantize_4bit.h"
#include "session/lower/op.h"

namespace rekindle::session {
namespace {

using kernels::Code4Bit;

// A weight [n, k] in blocks of `block` elements.
struct Weight4Bit {
  std::int64_t n = 0, k = 0, block = 0;
  Code4Bit code = Code4Bit::kFp4;

  void dequantize(const at::Tensor& packed, const at::Tensor& absmax, at::Tensor& weight) const {
    kernels::dequantize_4bit(packed.reshape({-1}).contiguous(), absmax.reshape({-1}).contiguous(), block,
                             code, weight);
  }
};

Code4Bit code_of(std::int64_t quant_type) {
  TORCH_CHECK_NOT_IMPLEMENTED(quant_type == 0 || quant_type == 1,
                              "MatMulBnb4 has quant_type 0 (FP4) or 1 (NF4), not ", quant_type);
  return quant_type == 1 ? Code4Bit::kNf4 : Code4Bit::kFp4;
}

// x [..., k] gives [..., n] with a transposed weight, x [..., n] gives [..., k] without.
Lowering lower_product(const LowerContext& context, bool transposed) {
  const Weight4Bit weight{context.int_attribute("N", 0), context.int_attribute("K", 0),
                          context.int_attribute("block_size", 0),
                          code_of(context.int_attribute("quant_type", 0))};
  TORCH_CHECK_NOT_IMPLEMENTED(context.int_attribute("bits", 4) == 4, "MatMulBnb4 has 4 bits, not ",
                              context.int_attribute("bits", 4));
  Sizes sizes = context.sizes(0);
  const std::int64_t inner = transposed ? weight.k : weight.n, outer = transposed ? weight.n : weight.k;
  TORCH_CHECK(weight.n > 0 && weight.k > 0 && !sizes.empty() && sizes.back() == inner,
              "MatMulBnb4 of a weight [", weight.n, ", ", weight.k, "] does not fit an input of shape ",
              at::IntArrayRef(sizes));
  sizes.back() = outer;
  Lowering lowering = computed(context.dtype(0), sizes, [weight, transposed, inner, outer](const Args& args) {
    weight.dequantize(args.in(1), args.in(2), args.out(1));
    const at::Tensor matrix = transposed ? args.out(1).t() : args.out(1);
    at::Tensor result = args.out().view({-1, outer});
    at::mm_out(result, args.in(0).reshape({-1, inner}), matrix);
  });
  lowering.scratch.push_back({context.dtype(0), {weight.n, weight.k}, {}});
  return lowering;
}

Lowering lower_matmul_bnb4(const LowerContext& context) {
  return lower_product(context, context.int_attribute("transB", 1) != 0);
}

// Inputs: dy, packed, absmax. The attributes are those of the product.
Lowering lower_matmul_bnb4_gradient(const LowerContext& context) {
  return lower_product(context, context.int_attribute("transB", 1) == 0);
}

// Differentiable in x, by what it is made of.
at::Tensor matmul_bnb4(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& absmax,
                       std::int64_t k, std::int64_t n, std::int64_t block_size, std::int64_t quant_type) {
  at::Tensor weight = at::empty({n, k}, x.options().requires_grad(false));
  Weight4Bit{n, k, block_size, code_of(quant_type)}.dequantize(packed, absmax, weight);
  return at::linear(x, weight);
}

}  // namespace

REKINDLE_OP("com.microsoft", "MatMulBnb4", lower_matmul_bnb4);
REKINDLE_OP("rekindle", "MatMulBnb4Gradient", lower_matmul_bnb4_gradient);

TORCH_LIBRARY_FRAGMENT(rekindle, library) {
  library.def(
      "matmul_bnb4(Tensor x, Tensor packed, Tensor absmax, int K, int N, int block_size, int quant_type)"
      " -> Tensor",
      &matmul_bnb4);
}

}  // namespace rekindle::session

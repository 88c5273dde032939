// Einsum and determinants.
#include <ATen/ops/einsum.h>
#include <ATen/ops/linalg_det.h>

#include <algorithm>

#include "session/lower/op.h"

namespace rekindle::session {
namespace {

Lowering lower_einsum(const LowerContext& context) {
  std::string equation = context.string_attribute("equation", "");
  std::erase(equation, ' ');
  return functional(context, [equation](const Tensors& in) -> Tensors { return {at::einsum(equation, in)}; });
}

Lowering lower_det(const LowerContext& context) {
  Sizes sizes = context.sizes(0);
  TORCH_CHECK(sizes.size() >= 2, "Det of a tensor of rank ", sizes.size());
  sizes.resize(sizes.size() - 2);
  return computed(context.dtype(0), sizes,
                  [](const Args& args) { args.out().copy_(at::linalg_det(args.in(0))); });
}

}  // namespace

REKINDLE_OP("", "Det", lower_det);
REKINDLE_OP("", "Einsum", lower_einsum);

}  // namespace rekindle::session

// Conversions between types.
#include "session/lower/op.h"
#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

// The largest finite number of a float8 type.
double largest(at::ScalarType type) {
  switch (type) {
    case at::kFloat8_e4m3fn:
      return 448;
    case at::kFloat8_e4m3fnuz:
      return 240;
    default:
      return 57344;  // both e5m2
  }
}

// `saturate`: numbers beyond a float8 type's largest become that; otherwise
// infinite or NaN, as PyTorch converts them.
Lowering lower_cast_to(const LowerContext& context, at::ScalarType type) {
  if (type == context.dtype(0)) {
    return viewed(context, context.sizes(0),
                  [](const at::Tensor& x) { return x.as_strided(x.sizes(), x.strides()); });
  }
  if (!is_float8(type))
    return computed(type, context.sizes(0), [](const Args& args) { args.out().copy_(args.in(0)); });
  const bool saturate = context.int_attribute("saturate", 1) != 0;
  return computed(type, context.sizes(0), [saturate, most = largest(type)](const Args& args) {
    const at::Tensor x = args.in(0).to(at::kFloat);
    args.out().copy_(saturate ? x.clamp(-most, most) : x);
  });
}

Lowering lower_cast(const LowerContext& context) {
  return lower_cast_to(context, scalar_type_of(static_cast<graph::DType>(context.int_attribute("to", 0))));
}

Lowering lower_cast_like(const LowerContext& context) { return lower_cast_to(context, context.dtype(1)); }

}  // namespace

REKINDLE_OP("", "Cast", lower_cast);
REKINDLE_OP("", "CastLike", lower_cast_like);

}  // namespace rekindle::session

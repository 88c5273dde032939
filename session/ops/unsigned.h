// PyTorch stores uint16, uint32 and uint64 but hardly computes with them: such ops run on int64 copies.
#pragma once

#include "session/lower/op.h"

namespace rekindle::session {

bool is_wide_unsigned(at::ScalarType type);
// The elements as int64. Of a uint64 the bits: a number of 2^63 or more comes out negative.
at::Tensor widened(const at::Tensor& x);
// The inverse; keeps the low bits.
void narrow_into(at::Tensor out, const at::Tensor& wide);

enum class UnsignedUse {
  kBits,     // only the low bits of the result count (sums, products, bitwise ops)
  kOrder,    // compares: uint64 numbers are shifted so that int64 orders them alike
  kNumbers,  // uint64 numbers of 2^63 and more are refused
};
// `lowering` of `context`'s node, whose kernel computes on int64 where an input is one of those types.
Lowering widen_unsigned(const LowerContext& context, Lowering lowering, UnsignedUse use);

template <Lower lower, UnsignedUse use = UnsignedUse::kBits>
Lowering with_unsigned(const LowerContext& context) {
  return widen_unsigned(context, lower(context), use);
}

}  // namespace rekindle::session

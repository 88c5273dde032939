#include "session/ops/unsigned.h"

#include <ATen/ops/empty.h>

#include <limits>
#include <numeric>

namespace rekindle::session {
namespace {

constexpr std::int64_t kTopBit = std::numeric_limits<std::int64_t>::min();

at::Tensor prepared(const at::Tensor& x, UnsignedUse use) {
  if (!x.defined() || !is_wide_unsigned(x.scalar_type())) return x;
  const at::Tensor wide = widened(x);
  if (x.scalar_type() != at::kUInt64) return wide;
  if (use == UnsignedUse::kOrder) return wide.bitwise_xor(kTopBit);
  TORCH_CHECK_NOT_IMPLEMENTED(use != UnsignedUse::kNumbers || !wide.lt(0).any().item().toBool(),
                              "uint64 numbers of 2^63 and more are not supported here");
  return wide;
}

}  // namespace

bool is_wide_unsigned(at::ScalarType type) {
  return type == at::kUInt16 || type == at::kUInt32 || type == at::kUInt64;
}

at::Tensor widened(const at::Tensor& x) {
  return x.scalar_type() == at::kUInt64 ? x.contiguous().view(at::kLong) : x.to(at::kLong);
}

void narrow_into(at::Tensor out, const at::Tensor& wide) {
  out.scalar_type() == at::kUInt64 ? void(out.view(at::kLong).copy_(wide)) : void(out.copy_(wide));
}

Lowering widen_unsigned(const LowerContext& context, Lowering lowering, UnsignedUse use) {
  bool needed = false;
  for (std::size_t i = 0; i < context.num_inputs(); ++i)
    needed |= context.has(i) && is_wide_unsigned(context.dtype(i));
  if (!needed || !lowering.kernel) return lowering;
  lowering.in_place.clear();
  lowering.kernel = [kernel = std::move(lowering.kernel), inputs = context.num_inputs(),
                     outputs = lowering.outputs.size(), use](const Args& args) {
    Tensors slots;
    for (std::size_t i = 0; i < inputs; ++i) slots.push_back(prepared(args.in(i), use));
    for (std::size_t i = 0; i < outputs; ++i) {
      const bool wide = is_wide_unsigned(args.out(i).scalar_type());
      slots.push_back(wide ? at::empty(args.out(i).sizes(), args.out(i).options().dtype(at::kLong))
                           : args.out(i));
    }
    std::vector<std::uint32_t> numbers(slots.size());
    std::iota(numbers.begin(), numbers.end(), 0u);
    kernel(Args(slots.data(), nullptr, numbers.data(), numbers.data() + inputs));
    for (std::size_t i = 0; i < outputs; ++i) {
      if (!is_wide_unsigned(args.out(i).scalar_type())) continue;
      const bool shifted = use == UnsignedUse::kOrder && args.out(i).scalar_type() == at::kUInt64;
      narrow_into(args.out(i), shifted ? slots[inputs + i].bitwise_xor(kTopBit) : slots[inputs + i]);
    }
  };
  return lowering;
}

}  // namespace rekindle::session

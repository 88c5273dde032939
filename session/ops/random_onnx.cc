// Random tensors from PyTorch's generator, or from one of their own where the node has a seed.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/multinomial.h>

#include <bit>

#include "session/lower/op.h"
#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

std::optional<at::Generator> generator_of(const LowerContext& context) {
  if (context.node().attribute("seed") == nullptr) return std::nullopt;
  return at::detail::createCPUGenerator(
      std::bit_cast<std::uint32_t>(static_cast<float>(context.float_attribute("seed", 0))));
}

at::ScalarType type_of(const LowerContext& context, at::ScalarType fallback) {
  const auto wanted = context.int_attribute("dtype", 0);
  return wanted == 0 ? fallback : scalar_type_of(static_cast<graph::DType>(wanted));
}

template <bool normal>
Lowering fill(const LowerContext& context) {
  const bool like = context.num_inputs() > 0;
  const Sizes sizes = like ? context.sizes(0) : context.node().ints_attribute("shape", {});
  const double a = context.float_attribute(normal ? "mean" : "low", 0),
               b = context.float_attribute(normal ? "scale" : "high", 1);
  const auto generator = generator_of(context);
  return computed(type_of(context, like ? context.dtype(0) : at::kFloat), sizes,
                  [a, b, generator](const Args& args) {
                    normal ? args.out().normal_(a, b, generator) : args.out().uniform_(a, b, generator);
                  });
}

Lowering lower_bernoulli(const LowerContext& context) {
  return computed(type_of(context, context.dtype(0)), context.sizes(0),
                  [generator = generator_of(context)](const Args& args) {
                    args.out().copy_(args.in(0).bernoulli(generator));
                  });
}

// Inputs: logarithms of probabilities [batch, classes].
Lowering lower_multinomial(const LowerContext& context) {
  const std::int64_t samples = context.int_attribute("sample_size", 1);
  return computed(
      type_of(context, at::kInt), {context.meta(0).size(0), samples},
      [samples, generator = generator_of(context)](const Args& args) {
        args.out().copy_(at::multinomial(args.in(0).softmax(-1), samples, /*replacement=*/true, generator));
      });
}

}  // namespace

REKINDLE_OP("", "Bernoulli", lower_bernoulli);
REKINDLE_OP("", "Multinomial", lower_multinomial);
REKINDLE_OP("", "RandomNormal", fill<true>);
REKINDLE_OP("", "RandomNormalLike", fill<true>);
REKINDLE_OP("", "RandomUniform", fill<false>);
REKINDLE_OP("", "RandomUniformLike", fill<false>);

}  // namespace rekindle::session

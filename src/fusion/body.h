// Body: what a fused kernel computes of each element, as a straight line of pointwise steps.
//
// An example: y = tanh(x * 0.5) of a bfloat16 x, as two kernels of PyTorch compute it:
//
//   s0 = mul(x0, 0.5): bfloat16
//   s1 = tanh(s0): bfloat16
//
// A step computes in the type of its operands, or in float32 where that has 16 bits, and rounds to its own
// type: so each has the bits that the kernel of its op has, and a body those of the kernels that it replaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/graph/type.h"

namespace rekindle::fusion {

// float32, float64, float16, bfloat16, int32, int64 and bool.
bool has_kernels(graph::DType dtype);

enum class Op : std::uint8_t {
  kCast,
  kNeg,
  kAbs,
  kReciprocal,
  kSqrt,
  kExp,
  kLog,
  kSin,
  kCos,
  kTanh,
  kErf,
  kSigmoid,
  kSilu,
  kRelu,
  kFloor,
  kCeil,
  kGelu,
  kGeluTanh,  // gelu's approximation by tanh
  kNot,
  kIsNaN,
  kAdd,
  kSub,
  kMul,
  kDiv,  // of floating point
  kMaximum,
  kMinimum,
  kEqual,
  kGreater,
  kGreaterOrEqual,
  kLess,
  kLessOrEqual,
  kAnd,
  kOr,
  kXor,
  // Gradients: of dy, and what the forward took or gave.
  kGeluGradient,
  kGeluTanhGradient,
  kReluGradient,
  kTanhGradient,
  kSigmoidGradient,
  kSiluGradient,
  kWhere,        // condition, then, else
  kMaskedScale,  // x, mask, scale: the gradient of a dropout
};

// The name of its function in the language of kernels (kernel_language.cc), and how many operands it has.
const char* name_of(Op op);
std::size_t operands_of(Op op);

struct Operand {
  enum class From : std::uint8_t { kInput, kStep, kNumber };
  From from = From::kInput;
  std::size_t index = 0;  // of the input, or of an earlier step
  double number = 0;      // exact in the type that the step computes in
  bool operator==(const Operand&) const = default;
};

struct Step {
  Op op = Op::kCast;
  std::vector<Operand> operands;
  graph::DType type = graph::DType::kFloat32;   // of the result
  graph::DType reads = graph::DType::kFloat32;  // of the operands; of the second and third of kWhere, the
                                                // first of kMaskedScale
};

struct Body {
  std::vector<graph::DType> inputs;
  std::vector<Step> steps;
  std::vector<std::size_t> outputs;  // steps
};

}  // namespace rekindle::fusion

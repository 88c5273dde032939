#include "session/lower/pointwise_steps.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

using fusion::Op;
using fusion::Operand;
using fusion::Step;

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53

// Makes the steps of one node.
class Steps {
 public:
  explicit Steps(const LowerContext& context) : context_(context) {}

  // A number, where it is known and the kernel takes it as one; else the input.
  Operand input(std::size_t i) const {
    const std::optional<double> number = known_number(i);
    if (number) return {Operand::From::kNumber, 0, *number};
    return {Operand::From::kInput, i, 0};
  }

  Operand add(Op op, std::vector<Operand> operands, graph::DType reads, graph::DType type) {
    steps_.push_back({op, std::move(operands), type, reads});
    return {Operand::From::kStep, steps_.size() - 1, 0};
  }
  // Of operands and a result of one type.
  Operand add(Op op, std::vector<Operand> operands, graph::DType type) {
    return add(op, std::move(operands), type, type);
  }

  graph::DType type(std::size_t i) const { return dtype_of(context_.dtype(i)); }
  std::optional<double> known_number(std::size_t i) const {
    if (!context_.is_constant(i) || context_.rank(i) != 0 || !fusion::has_kernels(type(i)))
      return std::nullopt;
    const double number = context_.constant(i).item().toDouble();
    const bool is_exact = at::isFloatingType(context_.dtype(i)) || std::abs(number) <= kLargestExactInteger;
    return is_exact ? std::optional(number) : std::nullopt;
  }
  std::vector<Step> made() { return std::move(steps_); }

 private:
  const LowerContext& context_;
  std::vector<Step> steps_;
};

using Make = void (*)(const LowerContext&, Steps&);

template <Op op>
void unary(const LowerContext&, Steps& steps) {
  steps.add(op, {steps.input(0)}, steps.type(0));
}

template <Op op>
void binary(const LowerContext&, Steps& steps) {
  steps.add(op, {steps.input(0), steps.input(1)}, steps.type(0));
}

template <Op op>
void test(const LowerContext& context, Steps& steps) {
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < context.num_inputs(); ++i) operands.push_back(steps.input(i));
  steps.add(op, std::move(operands), steps.type(0), graph::DType::kBool);
}

template <Op op>
void variadic(const LowerContext& context, Steps& steps) {
  if (context.num_inputs() < 2) return;
  Operand so_far = steps.input(0);
  for (std::size_t i = 1; i < context.num_inputs(); ++i)
    so_far = steps.add(op, {so_far, steps.input(i)}, steps.type(0));
}

// CUDA's kernel multiplies by the reciprocal of a number that it is given.
void divide(const LowerContext& context, Steps& steps) {
  if (!at::isFloatingType(context.dtype(0))) return;
  const std::optional<double> divisor = steps.known_number(1);
  if (!divisor || !context.device().is_cuda()) return binary<Op::kDiv>(context, steps);
  const double reciprocal =
      context.dtype(0) == at::kDouble ? 1.0 / *divisor : 1.0F / static_cast<float>(*divisor);
  steps.add(Op::kMul, {steps.input(0), {Operand::From::kNumber, 0, reciprocal}}, steps.type(0));
}

// Exponents for which ATen has kernels of their own.
void power(const LowerContext& context, Steps& steps) {
  const std::optional<double> exponent = steps.known_number(1);
  const Operand x = steps.input(0);
  if (!exponent || !at::isFloatingType(context.dtype(0))) return;
  if (*exponent == 2 || *exponent == 3) {
    const Operand square = steps.add(Op::kMul, {x, x}, steps.type(0));
    if (*exponent == 3) steps.add(Op::kMul, {square, x}, steps.type(0));
  } else if (*exponent == 0.5) {
    steps.add(Op::kSqrt, {x}, steps.type(0));
  } else if (*exponent == -1) {
    steps.add(Op::kReciprocal, {x}, steps.type(0));
  }
}

void cast(const LowerContext& context, Steps& steps) {
  const bool is_like = context.node().op_type() == "CastLike";
  const graph::DType to = is_like ? steps.type(1) : static_cast<graph::DType>(context.int_attribute("to", 0));
  steps.add(Op::kCast, {{Operand::From::kInput, 0, 0}}, steps.type(0), to);
}

void where(const LowerContext&, Steps& steps) {
  steps.add(Op::kWhere, {{Operand::From::kInput, 0, 0}, steps.input(1), steps.input(2)}, steps.type(1));
}

void clip(const LowerContext& context, Steps& steps) {
  Operand so_far = steps.input(0);
  if (context.has(1)) so_far = steps.add(Op::kMaximum, {so_far, steps.input(1)}, steps.type(0));
  if (context.has(2)) steps.add(Op::kMinimum, {so_far, steps.input(2)}, steps.type(0));
}

template <Op plain, Op by_tanh>
void gelu(const LowerContext& context, Steps& steps) {
  const bool is_by_tanh = context.string_attribute("approximate", "none") == "tanh";
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < fusion::operands_of(plain); ++i) operands.push_back(steps.input(i));
  steps.add(is_by_tanh ? by_tanh : plain, std::move(operands), steps.type(0));
}

void dropout_gradient(const LowerContext& context, Steps& steps) {
  const double ratio = context.scalar(2);
  if (ratio <= 0 || ratio >= 1) return;
  steps.add(Op::kMaskedScale,
            {{Operand::From::kInput, 0, 0},
             {Operand::From::kInput, 1, 0},
             {Operand::From::kNumber, 0, 1 / (1 - ratio)}},
            steps.type(0));
}

const std::unordered_map<std::string_view, Make>& makers_of_onnx() {
  static const std::unordered_map<std::string_view, Make> makers = {
      {"Abs", unary<Op::kAbs>},
      {"Add", binary<Op::kAdd>},
      {"And", test<Op::kAnd>},
      {"Cast", cast},
      {"CastLike", cast},
      {"Ceil", unary<Op::kCeil>},
      {"Clip", clip},
      {"Cos", unary<Op::kCos>},
      {"Div", divide},
      {"Equal", test<Op::kEqual>},
      {"Erf", unary<Op::kErf>},
      {"Exp", unary<Op::kExp>},
      {"Floor", unary<Op::kFloor>},
      {"Gelu", gelu<Op::kGelu, Op::kGeluTanh>},
      {"Greater", test<Op::kGreater>},
      {"GreaterOrEqual", test<Op::kGreaterOrEqual>},
      {"IsNaN", test<Op::kIsNaN>},
      {"Less", test<Op::kLess>},
      {"LessOrEqual", test<Op::kLessOrEqual>},
      {"Log", unary<Op::kLog>},
      {"Max", variadic<Op::kMaximum>},
      {"Min", variadic<Op::kMinimum>},
      {"Mul", binary<Op::kMul>},
      {"Neg", unary<Op::kNeg>},
      {"Not", test<Op::kNot>},
      {"Or", test<Op::kOr>},
      {"Pow", power},
      {"Reciprocal", unary<Op::kReciprocal>},
      {"Relu", unary<Op::kRelu>},
      {"Sigmoid", unary<Op::kSigmoid>},
      {"Sin", unary<Op::kSin>},
      {"Sqrt", unary<Op::kSqrt>},
      {"Sub", binary<Op::kSub>},
      {"Sum", variadic<Op::kAdd>},
      {"Tanh", unary<Op::kTanh>},
      {"Where", where},
      {"Xor", test<Op::kXor>},
  };
  return makers;
}

const std::unordered_map<std::string_view, Make>& makers_of_rekindle() {
  static const std::unordered_map<std::string_view, Make> makers = {
      {"DropoutGradient", dropout_gradient},
      {"GeluGradient", gelu<Op::kGeluGradient, Op::kGeluTanhGradient>},
      {"ReluGradient", binary<Op::kReluGradient>},
      {"SigmoidGradient", binary<Op::kSigmoidGradient>},
      {"Silu", unary<Op::kSilu>},
      {"SiluGradient", binary<Op::kSiluGradient>},
      {"TanhGradient", binary<Op::kTanhGradient>},
  };
  return makers;
}

bool computes_in_known_types(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (!fusion::has_kernels(step.reads) || !fusion::has_kernels(step.type)) return false;
  }
  return true;
}

}  // namespace

std::vector<Step> pointwise_steps(const LowerContext& context, const Lowering& lowering) {
  const graph::Node& node = context.node();
  if (context.device().is_cpu() || lowering.outputs.size() != 1 || !lowering.scratch.empty()) return {};
  const bool is_rekindle = node.domain() == graph::kRekindleDomain;
  if (!is_rekindle && !node.domain().empty()) return {};
  const auto& makers = is_rekindle ? makers_of_rekindle() : makers_of_onnx();
  const auto maker = makers.find(node.op_type());
  if (maker == makers.end()) return {};
  Steps steps(context);
  maker->second(context, steps);
  std::vector<Step> made = steps.made();
  if (made.empty() || !computes_in_known_types(made)) return {};
  return dtype_of(lowering.outputs[0].dtype) == made.back().type ? made : std::vector<Step>();
}

}  // namespace rekindle::session

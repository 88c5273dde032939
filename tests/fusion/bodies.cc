#include "tests/fusion/bodies.h"

#include <algorithm>

namespace rekindle::testing {

using fusion::Op;
using graph::DType;

namespace {

bool is_float(DType type) { return graph::is_differentiable(type); }

bool tells(Op op) { return op == Op::kNot || op == Op::kIsNaN || (op >= Op::kEqual && op <= Op::kXor); }

}  // namespace

std::vector<Op> ops_for(DType type) {
  std::vector<Op> ops;
  for (auto op = Op::kCast; op <= Op::kMaskedScale; op = static_cast<Op>(static_cast<int>(op) + 1)) {
    const bool is_simple = op == Op::kCast || op == Op::kWhere || tells(op);
    const bool counts =
        op == Op::kNeg || op == Op::kAbs || (op >= Op::kAdd && op <= Op::kMinimum && op != Op::kDiv);
    if (is_simple || is_float(type) || (counts && type != DType::kBool)) ops.push_back(op);
  }
  return ops;
}

fusion::Body body_of(Op op, DType type) {
  fusion::Body body;
  fusion::Step step{op, {}, tells(op) ? DType::kBool : type, type};
  for (std::size_t i = 0; i < fusion::operands_of(op); ++i) {
    const bool is_truth = (op == Op::kWhere && i == 0) || (op == Op::kMaskedScale && i == 1);
    if (op == Op::kMaskedScale && i == 2) {
      step.operands.push_back({fusion::Operand::From::kNumber, 0, 1.25});
      continue;
    }
    body.inputs.push_back(is_truth ? DType::kBool : type);
    step.operands.push_back({fusion::Operand::From::kInput, i, 0});
  }
  body.steps = {step};
  body.outputs = {0};
  return body;
}

}  // namespace rekindle::testing

// Ops whose outputs do not depend differentiably on their inputs. What is on neither list has no rule, which
// is an error.
#include "src/autodiff/rule.h"

namespace rekindle::autodiff {
namespace {

REKINDLE_NO_GRADIENT("rekindle", "StopGradient");
REKINDLE_NO_GRADIENT("rekindle", "ZerosLike");

REKINDLE_NO_GRADIENT("", "And");
REKINDLE_NO_GRADIENT("", "ArgMax");
REKINDLE_NO_GRADIENT("", "ArgMin");
REKINDLE_NO_GRADIENT("", "Bernoulli");
REKINDLE_NO_GRADIENT("", "BitShift");
REKINDLE_NO_GRADIENT("", "BitwiseAnd");
REKINDLE_NO_GRADIENT("", "BitwiseNot");
REKINDLE_NO_GRADIENT("", "BitwiseOr");
REKINDLE_NO_GRADIENT("", "BitwiseXor");
REKINDLE_NO_GRADIENT("", "Constant");
REKINDLE_NO_GRADIENT("", "ConstantOfShape");
REKINDLE_NO_GRADIENT("", "Equal");
REKINDLE_NO_GRADIENT("", "EyeLike");
REKINDLE_NO_GRADIENT("", "Greater");
REKINDLE_NO_GRADIENT("", "GreaterOrEqual");
REKINDLE_NO_GRADIENT("", "IsInf");
REKINDLE_NO_GRADIENT("", "IsNaN");
REKINDLE_NO_GRADIENT("", "Less");
REKINDLE_NO_GRADIENT("", "LessOrEqual");
REKINDLE_NO_GRADIENT("", "Multinomial");
REKINDLE_NO_GRADIENT("", "NonZero");
REKINDLE_NO_GRADIENT("", "Not");
REKINDLE_NO_GRADIENT("", "Or");
REKINDLE_NO_GRADIENT("", "RandomNormal");
REKINDLE_NO_GRADIENT("", "RandomNormalLike");
REKINDLE_NO_GRADIENT("", "RandomUniform");
REKINDLE_NO_GRADIENT("", "RandomUniformLike");
REKINDLE_NO_GRADIENT("", "Range");
REKINDLE_NO_GRADIENT("", "Shape");
REKINDLE_NO_GRADIENT("", "Size");
REKINDLE_NO_GRADIENT("", "Xor");

}  // namespace
}  // namespace rekindle::autodiff

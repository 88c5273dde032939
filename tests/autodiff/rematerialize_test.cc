// What the backward pass computes again instead of reading it from what the forward saved.
#include "src/autodiff/rematerialize.h"

#include "src/autodiff/partition.h"
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

using Names = std::vector<std::string>;

const char* const kInputs =
    "%x: float32[n, 8], %w: float32[8, 8], %b: float32[8], %v: float32[8, 8], %m: float32[n, 8]";
const char* const kDropout =
    "%t = Constant() {value = bool[]{true}}\n%r = Constant() {value = float32[]{0.25}}\n";

JointGraph joint_after(const std::string& body, const std::string& outputs = "%y") {
  JointGraph joint = joint_of(graph_text(kInputs, body, outputs), "11110");
  rematerialize(joint);
  verify_or_fail(joint);
  return joint;
}

Names saved_by(const JointGraph& joint) {
  Names names;
  for (const graph::Value* value : partition(joint).saved) names.push_back(value->name());
  return names;
}

// Of the backward nodes that compute a value again: op and value.
Names recomputed_by(const JointGraph& joint) {
  Names found;
  for (const graph::Node* node : partition(joint).backward) {
    const graph::Value* value = recomputed_value(*joint.graph, *node);
    if (value != nullptr) found.push_back(node->op_type() + " " + value->name());
  }
  return found;
}

TEST_CASE("an activation is computed again from its input", "[autodiff]") {
  const JointGraph joint = joint_after(
      "%h: float32[n, 8] = rekindle::Linear(%x, %w, %b)\n%g: float32[n, 8] = Gelu(%h)\n"
      "%y: float32[n, 8] = rekindle::Linear(%g, %v)");
  CHECK(saved_by(joint) == Names{"x", "w", "v", "h"});
  CHECK(recomputed_by(joint) == Names{"Gelu g"});
}

TEST_CASE("a dropout is applied again with the mask that was drawn", "[autodiff]") {
  const JointGraph joint =
      joint_after(std::string(kDropout) +
                  "%h: float32[n, 8] = rekindle::Linear(%x, %w, %b)\n%s: float32[n, 8] = Softmax(%h)\n"
                  "%d: float32[n, 8] = Dropout(%s, %r, %t)\n%y: float32[n, 8] = rekindle::Linear(%d, %v)");
  CHECK(saved_by(joint) == Names{"x", "w", "v", "s", "d_1"});
  CHECK(recomputed_by(joint) == Names{"DropoutGradient d"});
}

TEST_CASE("a chain is computed again from where it begins", "[autodiff]") {
  const JointGraph joint = joint_after(
      "%h: float32[n, 8] = rekindle::Linear(%x, %w, %b)\n%a: float32[n, 8] = Exp(%h)\n%c: float32[n, 8] = "
      "Mul(%h, %a)\n"
      "%e: float32[n, 8] = Mul(%c, %a)\n%y: float32[n, 8] = rekindle::Linear(%e, %v)");
  CHECK(saved_by(joint) == Names{"x", "w", "v", "h"});
  CHECK(recomputed_by(joint) == Names{"Exp a", "Mul c", "Mul e"});
}

TEST_CASE("what others can write is neither computed again nor computed from", "[autodiff]") {
  const char* const kLinear = "%h: float32[n, 8] = rekindle::Linear(%x, %w, %b)\n";
  const char* const kEnd = "\n%y: float32[n, 8] = rekindle::Linear(%g, %v)";
  SECTION("an output") {
    const JointGraph joint =
        joint_after(std::string(kLinear) + "%g: float32[n, 8] = Gelu(%h)" + kEnd, "%y, %g");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("an operand that is an output") {
    const JointGraph joint =
        joint_after(std::string(kLinear) + "%g: float32[n, 8] = Gelu(%h)" + kEnd, "%y, %h");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("an operand that is a view of an output") {
    const JointGraph joint =
        joint_after(std::string(kLinear) +
                        "%z: float32[8, n] = Transpose(%h)\n%g: float32[8, n] = Gelu(%z)\n"
                        "%u: float32[n, 8] = Transpose(%g)\n%y: float32[n, 8] = rekindle::Linear(%u, %v)",
                    "%y, %h");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("of which a view is an output") {
    const JointGraph joint = joint_after(
        std::string(kLinear) + "%g: float32[n, 8] = Gelu(%h)\n%u: float32[8, n] = Transpose(%g)" + kEnd,
        "%y, %u");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("an operand of which a view is an output") {
    const JointGraph joint = joint_after(
        std::string(kLinear) + "%g: float32[n, 8] = Gelu(%h)\n%u: float32[8, n] = Transpose(%h)" + kEnd,
        "%y, %u");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("of which a row is an output") {
    const JointGraph joint = joint_after(std::string(kLinear) +
                                             "%i = Constant() {value = int64[]{0}}\n%g: float32[n, 8] = "
                                             "Gelu(%h)\n%u: float32[8] = Gather(%g, %i)" +
                                             kEnd,
                                         "%y, %u");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("an input behind a stopped gradient") {
    const JointGraph joint = joint_after(
        "%p: float32[n, 8] = rekindle::StopGradient(%x)\n%g: float32[n, 8] = Gelu(%p)\n"
        "%a: float32[n, 8] = rekindle::Linear(%p, %w)\n%c: float32[n, 8] = rekindle::Linear(%g, %v)\n"
        "%y: float32[n, 8] = Add(%a, %c)");
    CHECK(recomputed_by(joint).empty());
  }
  SECTION("an input") {
    const JointGraph joint = joint_after("%g: float32[n, 8] = Mul(%x, %m)" + std::string(kEnd));
    CHECK(recomputed_by(joint).empty());
  }
}

TEST_CASE("what is not saved needs no second time", "[autodiff]") {
  const JointGraph joint = joint_after(
      "%h: float32[n, 8] = rekindle::Linear(%x, %w, %b)\n%g: float32[n, 8] = Relu(%h)\n"
      "%y: float32[n, 8] = rekindle::Linear(%g, %v)");
  CHECK(saved_by(joint) == Names{"x", "w", "v", "g"});
  CHECK(recomputed_by(joint).empty());
}

}  // namespace
}  // namespace rekindle::autodiff

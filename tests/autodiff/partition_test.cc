// The cut of a joint graph into forward and backward, and what is saved between them.
#include "src/autodiff/partition.h"

#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

std::vector<std::string> names_of(const std::vector<const graph::Value*>& values) {
  std::vector<std::string> names;
  for (const graph::Value* value : values) names.push_back(value->name());
  return names;
}

std::vector<std::string> ops_of(const std::vector<const graph::Node*>& nodes) {
  std::vector<std::string> ops;
  for (const graph::Node* node : nodes) ops.push_back(node->op_type());
  return ops;
}

using Names = std::vector<std::string>;

const char* const kDropout =
    "%t = Constant() {value = bool[]{true}}\n%r = Constant() {value = float32[]{0.25}}\n";

TEST_CASE("a two-layer network saves its inputs, the mask and what its activation reads", "[autodiff]") {
  const JointGraph joint = joint_of(
      graph_text(
          "%x: float32[n, 3], %w1: float32[8, 3], %b1: float32[8], %w2: float32[2, 8], %b2: float32[2]",
          std::string(kDropout) + "%h: float32[n, 8] = rekindle::Linear(%x, %w1, %b1)\n"
                                  "%g: float32[n, 8] = Gelu(%h)\n%d: float32[n, 8] = Dropout(%g, %r, %t)\n"
                                  "%y: float32[n, 2] = rekindle::Linear(%d, %w2, %b2)"),
      "01111");
  const Partition parts = partition(joint);
  CHECK(names_of(parts.saved) == Names{"x", "w2", "h", "d", "d_1"});
  CHECK(ops_of(parts.forward) == Names{"Constant", "Constant", "Linear", "Gelu", "Dropout", "Linear"});
  CHECK(ops_of(parts.backward) == Names{"LinearWeightGradient", "MatMul", "SumToSizeOf", "DropoutGradient",
                                        "GeluGradient", "LinearWeightGradient", "SumToSizeOf"});
}

TEST_CASE("values used only for their shape are not saved", "[autodiff]") {
  const JointGraph joint =
      joint_of(graph_text("%x: float32[2, 3], %b: float32[3]",
                          "%h: float32[2, 3] = Add(%x, %b)\n%y: float32[1, 1] = ReduceMean(%h)"),
               "11");
  CHECK(partition(joint).saved.empty());
}

TEST_CASE("attention saves no scores and cross entropy no probabilities", "[autodiff]") {
  const JointGraph attention = joint_of(
      graph_text("%q: float32[2, 3, 4, 5], %k: float32[2, 3, 4, 5], %v: float32[2, 3, 4, 5]",
                 "%y: float32[2, 3, 4, 5] = rekindle::ScaledDotProductAttention(%q, %k, %v) {is_causal = 1}"),
      "111");
  CHECK(names_of(partition(attention).saved) == Names{"q", "k", "v", "y", "y_1"});
  const JointGraph loss = joint_of(
      graph_text("%s: float32[5, 3], %t: int64[5]", "%y: float32[] = rekindle::CrossEntropyLoss(%s, %t)"),
      "10");
  CHECK(names_of(partition(loss).saved) == Names{"s", "t", "y_1"});
}

TEST_CASE("what only the backward needs runs there", "[autodiff]") {
  const JointGraph joint = joint_of(graph_text("%x: float32[2, 3]", "%y: float32[2, 3] = Sin(%x)"), "1");
  const Partition parts = partition(joint);
  CHECK(ops_of(parts.forward) == Names{"Sin"});
  CHECK(ops_of(parts.backward) == Names{"Cos", "Mul"});
  CHECK(names_of(parts.saved) == Names{"x"});
}

TEST_CASE("a constant that both passes read is not saved", "[autodiff]") {
  const JointGraph joint = joint_of(graph_text("%x: float32[2]",
                                               "%c = Constant() {value = float32[]{3}}\n"
                                               "%y: float32[2] = Mul(%x, %c)"),
                                    "1");
  const Partition parts = partition(joint);
  CHECK(ops_of(parts.forward) == Names{"Constant", "Mul"});
  CHECK(ops_of(parts.backward) == Names{"Mul"});
  CHECK(parts.saved.empty());
}

TEST_CASE("random nodes run in the forward pass, in order, whoever reads them", "[autodiff]") {
  const JointGraph joint = joint_of(
      graph_text("%x: float32[2]", std::string(kDropout) +
                                       "%e: float32[2] = Exp(%x)\n%u: float32[2] = Dropout(%e, %r, %t)\n"
                                       "%y: float32[2] = Dropout(%x, %r, %t)"),
      "1");
  const Partition parts = partition(joint);
  CHECK(ops_of(parts.forward) == Names{"Constant", "Constant", "Exp", "Dropout", "Dropout"});
  CHECK(names_of(parts.saved) == Names{"y_1"});
}

TEST_CASE("nodes that nothing depends on are in neither part", "[autodiff]") {
  const JointGraph joint =
      joint_of(graph_text("%x: float32[2]", "%dead: float32[2] = Exp(%x)\n%y: float32[2] = Neg(%x)"), "1");
  const Partition parts = partition(joint);
  CHECK(ops_of(parts.forward) == Names{"Neg"});
  CHECK(ops_of(parts.backward) == Names{"Neg"});
}

TEST_CASE("restricting cotangents saves nothing that the whole joint graph does not save", "[autodiff]") {
  const JointGraph joint =
      joint_of(graph_text("%x: float32[4]",
                          "%s = Constant() {value = int64[2]{1, 3}}\n"
                          "%p: float32[1], %q: float32[3] = Split(%x, %s)\n%e: float32[1] = Exp(%p)",
                          "%e, %q"),
               "1");
  const auto restricted = restrict_cotangents(joint, {false, true});
  REQUIRE(restricted.ok());
  CHECK(names_of(partition(joint).saved) == Names{"e"});
  CHECK(names_of(partition(*restricted).saved) == Names{"e"});
}

}  // namespace
}  // namespace rekindle::autodiff

// The reverse walk: what gets a cotangent, a gradient, a sum, an error.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

using Indices = std::vector<std::size_t>;

const std::string kProduct = graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Mul(%a, %b)");

TEST_CASE("the joint graph takes cotangents after the inputs and gives gradients after the outputs",
          "[autodiff]") {
  const JointGraph joint = joint_of(kProduct, "11");
  CHECK(graph::print(*joint.graph) ==
        "graph t(%a: float32[2], %b: float32[2], %d_y: float32[2]) {\n"
        "  opset 20, rekindle 1\n"
        "  %y: float32[2] = Mul(%a, %b)\n"
        "  %d_a: float32[2] = Mul(%d_y, %b)\n"
        "  %d_b: float32[2] = Mul(%d_y, %a)\n"
        "  return %y, %d_a, %d_b\n"
        "}\n");
  CHECK(joint.forward_inputs == 2);
  CHECK(joint.forward_outputs == 1);
  CHECK(joint.cotangent_of == Indices{0});
  CHECK(joint.gradient_of == Indices{0, 1});
}

TEST_CASE("only wanted gradients are made", "[autodiff]") {
  const JointGraph joint = joint_of(kProduct, "01");
  CHECK(body_of(joint) ==
        "%y = Mul(%a, %b)\n"
        "%d_b = Mul(%d_y, %a)\n"
        "return %y, %d_b\n");
  CHECK(joint.gradient_of == Indices{1});
}

TEST_CASE("without wanted gradients the joint graph is the forward graph", "[autodiff]") {
  const JointGraph joint = joint_of(kProduct, "00");
  CHECK(graph::print(*joint.graph) == kProduct);
  CHECK(joint.cotangent_of.empty());
  CHECK(joint.gradient_of.empty());
}

TEST_CASE("the forward graph is left alone", "[autodiff]") {
  const auto forward = parse_or_fail(kProduct);
  REQUIRE(differentiate(*forward, {true, true}).ok());
  CHECK(graph::print(*forward) == kProduct);
}

TEST_CASE("cotangents of a value used twice are summed in the order of its users, last first", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2]",
                               "%h: float32[2] = Tanh(%x)\n%u: float32[2] = Exp(%h)\n"
                               "%v: float32[2] = Sigmoid(%h)\n%y: float32[2] = Add(%u, %v)"),
                    "1") ==
        "%1 = rekindle::SigmoidGradient(%d_y, %v)\n"
        "%2 = Mul(%d_y, %u)\n"
        "%d_h = Add(%1, %2) {accumulate = 1}\n"
        "%d_x = rekindle::TanhGradient(%d_h, %h)\n"
        "return %d_x\n");
}

TEST_CASE("an input tied to two places of one node gets both gradients", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2]", "%y: float32[2] = Mul(%x, %x)"), "1") ==
        "%1 = Mul(%d_y, %x)\n"
        "%2 = Mul(%d_y, %x)\n"
        "%d_x = Add(%1, %2) {accumulate = 1}\n"
        "return %d_x\n");
}

TEST_CASE("a tied weight gets the sum of its uses", "[autodiff]") {
  CHECK(backward_of(graph_text("%w: float32[5, 3], %i: int64[2]",
                               "%h: float32[2, 3] = rekindle::Embedding(%w, %i)\n"
                               "%y: float32[2, 5] = rekindle::Linear(%h, %w)"),
                    "10") ==
        "%1 = rekindle::LinearWeightGradient(%d_y, %h)\n"
        "%d_h = MatMul(%d_y, %w)\n"
        "%2 = rekindle::EmbeddingGradient(%d_h, %i, %w) {padding_idx = -1}\n"
        "%d_w = Add(%1, %2) {accumulate = 1}\n"
        "return %d_w\n");
}

TEST_CASE("an output that is used inside and one that is listed twice accumulate", "[autodiff]") {
  CHECK(backward_of(
            graph_text("%x: float32[2]", "%h: float32[2] = Exp(%x)\n%y: float32[2] = Tanh(%h)", "%y, %h, %h"),
            "1") ==
        "%1 = Add(%d_h, %d_h_5) {accumulate = 1}\n"
        "%2 = rekindle::TanhGradient(%d_y, %y)\n"
        "%d_h_9 = Add(%1, %2) {accumulate = 1}\n"
        "%d_x = Mul(%d_h_9, %h)\n"
        "return %d_x\n");
}

TEST_CASE("an input that is returned gets its cotangent back", "[autodiff]") {
  CHECK(backward_of(graph_text("%x: float32[2]", "%y: float32[2] = Exp(%x)", "%x"), "1") == "return %d_x\n");
}

TEST_CASE("outputs that do not depend on a wanted input get no cotangent", "[autodiff]") {
  const JointGraph joint =
      joint_of(graph_text("%a: float32[2], %b: float32[2], %i: int64[2]",
                          "%u: float32[2] = Exp(%a)\n%v: float32[2] = Exp(%b)", "%u, %i, %v"),
               "010");
  CHECK(joint.cotangent_of == Indices{2});
  CHECK(joint.gradient_of == Indices{1});
}

TEST_CASE("a wanted input that no output depends on gets no gradient", "[autodiff]") {
  const JointGraph joint = joint_of(
      graph_text("%a: float32[2], %b: float32[2]", "%y: float32[2] = Exp(%a)\n%z: float32[2] = Exp(%b)"),
      "11");
  CHECK(joint.gradient_of == Indices{0});
}

TEST_CASE("nothing flows through a stopped gradient or an index", "[autodiff]") {
  const JointGraph joint = joint_of(graph_text("%x: float32[2, 3]",
                                               "%s: float32[2, 3] = rekindle::StopGradient(%x)\n"
                                               "%i: int64[2, 1] = ArgMax(%x) {axis = 1}\n"
                                               "%g: float32[2, 1] = GatherElements(%s, %i) {axis = 1}\n"
                                               "%y: float32[2, 3] = Mul(%g, %x)",
                                               "%y, %g, %i"),
                                    "1");
  CHECK(joint.cotangent_of == Indices{0});
  CHECK(body_of(joint) ==
        "%s = rekindle::StopGradient(%x)\n"
        "%i = ArgMax(%x) {axis = 1}\n"
        "%g = GatherElements(%s, %i) {axis = 1}\n"
        "%y = Mul(%g, %x)\n"
        "%d_x = Mul(%d_y, %g)\n"
        "return %y, %g, %i, %d_x\n");
}

TEST_CASE("an input used only for its shape gets no gradient", "[autodiff]") {
  const JointGraph joint = joint_of(graph_text("%x: float32[2], %l: float16[2]",
                                               "%h: float16[2] = CastLike(%x, %l)\n"
                                               "%s: int64[1] = Shape(%l)\n%y: float16[2] = Reshape(%h, %s)"),
                                    "11");
  CHECK(joint.gradient_of == Indices{0});
}

TEST_CASE("a cotangent that only seemed to reach a wanted input is dropped", "[autodiff]") {
  // Nothing is known of the type of %m, so it may depend on %x as far as the walk can tell.
  const JointGraph joint = joint_of(graph_text("%x: float32[2], %b: float32[2]",
                                               "%t = Constant() {value = bool[]{true}}\n"
                                               "%d: float32[2], %m = Dropout(%x, _, %t)\n"
                                               "%f = Cast(%m) {to = 1}\n%y: float32[2] = Exp(%b)",
                                               "%f, %y"),
                                    "11");
  CHECK(joint.cotangent_of == Indices{1});
  CHECK(joint.gradient_of == Indices{1});
}

TEST_CASE("parts of the forward graph that give nothing back are not visited", "[autodiff]") {
  // Mod has no rule, but no gradient has to pass it.
  const JointGraph joint = joint_of(graph_text("%x: float32[2, 2], %w: float32[2]",
                                               "%h: float32[2, 2] = Einsum(%x, %x)\n"
                                               "%y: float32[2, 2] = Mul(%h, %w)"),
                                    "01");
  CHECK(joint.gradient_of == Indices{1});
}

TEST_CASE("an op without a rule is named with its source", "[autodiff]") {
  const auto forward = parse_or_fail(graph_text("%x: float32[2]", "%y: float32[2] = Einsum(%x, %x)"));
  forward->nodes().front()->set_source("model.py:12 Block.forward");
  const auto joint = differentiate(*forward, {true});
  REQUIRE_FALSE(joint.ok());
  CHECK(joint.error().code == ErrorCode::kUnsupported);
  CHECK(joint.error().message ==
        "there is no gradient rule for Einsum (%y, from model.py:12 Block.forward); add one in "
        "src/autodiff/rules, or detach its inputs in the model");
}

TEST_CASE("backward nodes keep the source of their forward node", "[autodiff]") {
  const auto forward = parse_or_fail(graph_text("%x: float32[2]", "%y: float32[2] = Exp(%x)"));
  forward->nodes().front()->set_source("model.py:7");
  const auto joint = differentiate(*forward, {true});
  REQUIRE(joint.ok());
  CHECK(joint->graph->nodes().back()->source() == "model.py:7");
}

TEST_CASE("the opsets that rules need are declared", "[autodiff]") {
  const JointGraph joint =
      joint_of("graph t(%x: float32[2]) {\n  opset 20\n  %y: float32[2] = Relu(%x)\n  return %y\n}\n", "1");
  CHECK(joint.graph->opsets().at("rekindle") == graph::kRekindleOpset);
}

TEST_CASE("wrong requests are refused", "[autodiff]") {
  CHECK(error_of(kProduct, "1").message ==
        "differentiate: needs_gradient has 1 entries, the graph has 2 inputs");
  const Error error = error_of(graph_text("%i: int64[2]", "%y: int64[2] = Identity(%i)"), "1");
  CHECK(error.code == ErrorCode::kInvalidArgument);
  CHECK(error.message == "differentiate: input %i is int64, which has no gradient");
}

}  // namespace
}  // namespace rekindle::autodiff

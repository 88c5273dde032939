// What is left of a joint graph when only some cotangents are given.
#include "tests/autodiff/joint_text.h"

namespace rekindle::autodiff {
namespace {

using Indices = std::vector<std::size_t>;

JointGraph restrict_or_fail(const JointGraph& joint, std::string_view present) {
  auto restricted = restrict_cotangents(joint, flags(present));
  if (!restricted.ok()) FAIL(restricted.error().message);
  verify_or_fail(*restricted);
  return std::move(restricted).value();
}

const std::string kTwoHeads = graph_text("%x: float32[2], %a: float32[2], %b: float32[2]",
                                         "%h: float32[2] = Tanh(%x)\n%u: float32[2] = Mul(%h, %a)\n"
                                         "%v: float32[2] = Mul(%h, %b)",
                                         "%u, %v");

TEST_CASE("with all cotangents nothing changes", "[autodiff]") {
  const JointGraph joint = joint_of(kTwoHeads, "111");
  const JointGraph same = restrict_or_fail(joint, "11");
  CHECK(graph::print(*same.graph) == graph::print(*joint.graph));
  CHECK(same.cotangent_of == joint.cotangent_of);
  CHECK(same.gradient_of == joint.gradient_of);
}

TEST_CASE("an accumulation drops its absent term, and absent gradients are gone", "[autodiff]") {
  const JointGraph joint = joint_of(kTwoHeads, "111");
  const JointGraph first = restrict_or_fail(joint, "10");
  CHECK(body_of(first) ==
        "%h = Tanh(%x)\n"
        "%u = Mul(%h, %a)\n"
        "%v = Mul(%h, %b)\n"
        "%1 = Mul(%d_u, %a)\n"
        "%d_a = Mul(%d_u, %h)\n"
        "%d_x = rekindle::TanhGradient(%1, %h)\n"
        "return %u, %v, %d_x, %d_a\n");
  CHECK(first.cotangent_of == Indices{0});
  CHECK(first.gradient_of == Indices{0, 1});
  const JointGraph second = restrict_or_fail(joint, "01");
  CHECK(second.cotangent_of == Indices{1});
  CHECK(second.gradient_of == Indices{0, 2});
}

TEST_CASE("without cotangents only the forward graph is left", "[autodiff]") {
  const JointGraph none = restrict_or_fail(joint_of(kTwoHeads, "111"), "00");
  CHECK(graph::print(*none.graph) == kTwoHeads);
  CHECK(none.cotangent_of.empty());
  CHECK(none.gradient_of.empty());
}

TEST_CASE("the joint graph is left alone", "[autodiff]") {
  const JointGraph joint = joint_of(kTwoHeads, "111");
  const std::string before = graph::print(*joint.graph);
  restrict_or_fail(joint, "10");
  CHECK(graph::print(*joint.graph) == before);
}

TEST_CASE("a node that needs an absent cotangent beside a present one reads zeros", "[autodiff]") {
  const JointGraph joint = joint_of(graph_text("%x: float32[4]",
                                               "%s = Constant() {value = int64[2]{1, 3}}\n"
                                               "%p: float32[1], %q: float32[3] = Split(%x, %s)",
                                               "%p, %q"),
                                    "1");
  CHECK(body_of(restrict_or_fail(joint, "01")) ==
        "%s = Constant() {value = int64[2]{1, 3}}\n"
        "%p, %q = Split(%x, %s)\n"
        "%1 = rekindle::ZerosLike(%p)\n"
        "%d_x = Concat(%1, %d_q) {axis = 0}\n"
        "return %p, %q, %d_x\n");
}

TEST_CASE("zeros of an absent value come from the shape it was reshaped to", "[autodiff]") {
  const JointGraph joint = joint_of(graph_text("%x: float32[4]",
                                               "%s = Constant() {value = int64[2]{1, 3}}\n"
                                               "%p: float32[1], %q: float32[3] = Split(%x, %s)\n"
                                               "%e: float32[1] = Exp(%p)\n%u: float32[] = Squeeze(%e)\n"
                                               "%w: float32[] = Squeeze(%p)",
                                               "%w, %u, %q"),
                                    "1");
  CHECK(body_of(restrict_or_fail(joint, "001")) ==
        "%s = Constant() {value = int64[2]{1, 3}}\n"
        "%p, %q = Split(%x, %s)\n"
        "%e = Exp(%p)\n"
        "%u = Squeeze(%e)\n"
        "%w = Squeeze(%p)\n"
        "%1 = rekindle::ZerosLike(%p)\n"
        "%2 = rekindle::ZerosLike(%e)\n"
        "%3 = Mul(%2, %e)\n"
        "%4 = Add(%1, %3) {accumulate = 1}\n"
        "%d_x = Concat(%4, %d_q) {axis = 0}\n"
        "return %w, %u, %q, %d_x\n");
}

TEST_CASE("an op that adds to a sum leaves its absent term out", "[autodiff]") {
  const std::string text =
      "graph g(%x: float32[3, 2], %d_p: float32[2], %d_q: float32[2]) {\n"
      "  opset 20, rekindle 1\n"
      "  %i = Constant() {value = int64[]{0}}\n  %j = Constant() {value = int64[]{1}}\n"
      "  %p: float32[2] = Gather(%x, %i)\n  %q: float32[2] = Gather(%x, %j)\n"
      "  %a: float32[3, 2] = rekindle::GatherGradient(%d_p, %i, %x)\n"
      "  %d_x: float32[3, 2] = rekindle::GatherGradient(%d_q, %j, %x, %a)\n"
      "  return %p, %q, %d_x\n}";
  const JointGraph joint{.graph = parse_or_fail(text),
                         .forward_inputs = 1,
                         .forward_outputs = 2,
                         .cotangent_of = {0, 1},
                         .gradient_of = {0}};
  const std::string forward =
      "%i = Constant() {value = int64[]{0}}\n%j = Constant() {value = int64[]{1}}\n"
      "%p = Gather(%x, %i)\n%q = Gather(%x, %j)\n";
  CHECK(body_of(restrict_or_fail(joint, "10")) ==
        forward + "%a = rekindle::GatherGradient(%d_p, %i, %x)\nreturn %p, %q, %a\n");
  CHECK(body_of(restrict_or_fail(joint, "01")) ==
        forward + "%d_x = rekindle::GatherGradient(%d_q, %j, %x)\nreturn %p, %q, %d_x\n");
}

TEST_CASE("random nodes stay when their gradient goes", "[autodiff]") {
  const JointGraph joint =
      joint_of(graph_text("%x: float32[4]",
                          "%t = Constant() {value = bool[]{true}}\n"
                          "%u: float32[4] = Dropout(%x, _, %t)\n%v: float32[4] = Exp(%x)",
                          "%u, %v"),
               "1");
  CHECK(body_of(restrict_or_fail(joint, "01")) ==
        "%t = Constant() {value = bool[]{true}}\n"
        "%u, %u_1 = Dropout(%x, _, %t)\n"
        "%v = Exp(%x)\n"
        "%1 = Mul(%d_v, %v)\n"
        "return %u, %v, %1\n");
}

TEST_CASE("a wrong number of flags is refused", "[autodiff]") {
  const auto restricted = restrict_cotangents(joint_of(kTwoHeads, "111"), {true});
  REQUIRE_FALSE(restricted.ok());
  CHECK(restricted.error().message == "restrict_cotangents: 1 flags for 2 cotangents");
}

}  // namespace
}  // namespace rekindle::autodiff

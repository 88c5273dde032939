#include "src/graph/verify.h"

#include "tests/support/graph_text.h"

using namespace rekindle::graph;

namespace {

// The error of verify for a graph with these lines.
std::string error_of(const std::string& lines) {
  const auto parsed = parse("graph g(%x: float32[2], %y) { opset 20, rekindle 1\n" + lines + "\n}");
  if (!parsed.ok()) FAIL(parsed.error().message);
  const rekindle::Status status = verify(**parsed);
  if (status.ok()) return "";
  CHECK(status.error().code == rekindle::ErrorCode::kInternal);
  return status.error().message;
}

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("verify accepts what holds its invariants", "[graph]") {
  CHECK(error_of("return").empty());
  CHECK(error_of("%z, %m = Dropout(%x, _, %y) {seed = 1} return %z, %z, %x").empty());
}

TEST_CASE("verify names the node that breaks a rule", "[graph]") {
  CHECK_THAT(error_of("%z = Nope(%x) return %z"), Contains("Nope (%z): the op is not known"));
  CHECK_THAT(error_of("%z = com.example::Relu(%x) return %z"),
             Contains("com.example::Relu (%z): the op is not known"));
  CHECK_THAT(error_of("%z = Add(%x) return %z"), Contains("Add (%z): 1 inputs are not allowed"));
  CHECK_THAT(error_of("%z = Relu(%x, %x) return %z"), Contains("Relu (%z): 2 inputs"));
  CHECK_THAT(error_of("%z, %a = Relu(%x) return %z"), Contains("Relu (%z): 2 outputs"));
  CHECK_THAT(error_of("%z = Slice(%x, _, %y) return %z"), Contains("input 1 is absent but required"));
  CHECK_THAT(error_of("%z = Concat(%x, _, %y) {axis = 0} return %z"),
             Contains("input 1 is absent but required"));
}

TEST_CASE("verify checks the types of attributes and the values of constants", "[graph]") {
  CHECK_THAT(error_of("%z = Transpose(%x) {perm = 1} return %z"),
             Contains("'perm' is an int, must be a list of ints"));
  CHECK_THAT(error_of("%z = Elu(%x) {alpha = 1} return %z"), Contains("'alpha' is an int, must be a float"));
  CHECK_THAT(error_of("%z = RandomNormalLike(%x) {seed = 1} return %z"), Contains("must be a float"));
  CHECK_THAT(error_of("%z = Constant() return %z"), Contains("a Constant has one attribute, 'value'"));
  CHECK_THAT(error_of("%z: int64[2] = Constant() {value = int64[1]{1}} return %z"),
             Contains("type of a Constant's output"));
  Graph graph;
  graph.set_opset("", 20);
  auto broken = std::make_shared<ConstantTensor>(*make_int64_constant({1, 2}, {2}));
  broken->sizes = {3};
  graph.create_node({.op_type = "Constant", .attributes = {{"value", ConstantPtr(broken)}}});
  CHECK_THAT(verify(graph).error().message, Contains("do not fit its sizes"));
}

TEST_CASE("verify wants values defined before their use, in this graph, and an opset for each domain",
          "[graph]") {
  Graph graph, other;
  Value* x = graph.add_input("x", {});
  Node* late = graph.create_node({.op_type = "Relu", .inputs = {x}});
  graph.create_node({.op_type = "Relu", .inputs = {late->output()}}, late);
  CHECK_THAT(verify(graph).error().message, Contains("no opset for domain ''"));
  graph.set_opset("", 20);
  CHECK_THAT(verify(graph).error().message, Contains("input 0 is not defined before it is used"));
  late->set_input(0, nullptr);
  other.set_opset("", 20);
  other.add_output(x);
  CHECK_THAT(verify(other).error().message, Contains("output 0 is not defined"));
  other.set_output(0, other.add_input("x", {}));
  other.create_node({.op_type = "Relu", .inputs = {x}});
  CHECK_THAT(verify(other).error().message, Contains("not defined before it is used"));
}

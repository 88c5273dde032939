#include "src/graph/graph.h"

#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using rekindle::testing::graph_from;

namespace {

constexpr const char* kTiny = R"(graph tiny(%x: float32[2], %w: float32[2]) {
  opset 20
  %a = Add(%x, %w)
  %b = Mul(%a, %a)
  return %b, %x
}
)";

}  // namespace

TEST_CASE("each input position is one use", "[graph]") {
  const auto graph = graph_from(kTiny);
  const Value* a = graph->find_value("a");
  Node* mul = graph->find_value("b")->producer();
  REQUIRE(a->uses().size() == 2);
  CHECK(a->uses()[0] == Use{mul, 0});
  CHECK(a->uses()[1] == Use{mul, 1});
  mul->set_input(0, graph->find_value("x"));
  REQUIRE(a->uses().size() == 1);
  CHECK(a->uses()[0] == Use{mul, 1});
}

TEST_CASE("replace_all_uses reaches node inputs and graph outputs", "[graph]") {
  const auto graph = graph_from(kTiny);
  graph->replace_all_uses(graph->find_value("x"), graph->find_value("w"));
  CHECK(graph->find_value("x")->uses().empty());
  CHECK(graph->outputs()[1] == graph->find_value("w"));
  CHECK(graph->find_value("w")->uses().size() == 2);
  CHECK(verify(*graph).ok());
}

TEST_CASE("trailing absent inputs are dropped, inner ones are kept", "[graph]") {
  Graph graph;
  Value* x = graph.add_input("x", {});
  Node* clip = graph.create_node({.op_type = "Clip", .inputs = {x, nullptr, x}});
  CHECK(clip->inputs().size() == 3);
  clip->set_input(2, nullptr);
  CHECK(clip->inputs() == std::vector<Value*>{x});
  CHECK(clip->input(7) == nullptr);
  CHECK(x->uses().size() == 1);
}

TEST_CASE("a taken name gives a fresh one, a claimed name moves the other value", "[graph]") {
  Graph graph;
  Value* first = graph.add_input("x", {});
  Value* second = graph.add_input("x", {});
  CHECK(first->name() == "x");
  CHECK(second->name() != "x");
  graph.claim_name(second, "x");
  CHECK(second->name() == "x");
  CHECK(graph.find_value("x") == second);
  CHECK(graph.find_value(first->name()) == first);
  graph.claim_name(second, "x");
  CHECK(graph.find_value("x") == second);
}

TEST_CASE("erase_input moves later inputs up", "[graph]") {
  Graph graph;
  graph.add_input("a", {});
  Value* b = graph.add_input("b", {});
  graph.erase_input(0);
  CHECK(b->index() == 0);
  CHECK(graph.find_value("a") == nullptr);
  CHECK(verify(graph).ok());
}

TEST_CASE("erase_node forgets its uses and its outputs", "[graph]") {
  const auto graph = graph_from(kTiny);
  graph->set_output(0, graph->find_value("a"));
  graph->erase_node(graph->find_value("b")->producer());
  CHECK(graph->find_value("a")->uses().empty());
  CHECK(graph->find_value("b") == nullptr);
  CHECK(verify(*graph).ok());
}

TEST_CASE("create_node inserts before a node, add_node_output appends to one", "[graph]") {
  const auto graph = graph_from(kTiny);
  Node* mul = graph->find_value("b")->producer();
  Node* relu = graph->create_node({.op_type = "Relu", .inputs = {graph->find_value("a")}}, mul);
  mul->set_input(0, relu->output());
  CHECK(verify(*graph).ok());
  Node* dropout = graph->create_node({.op_type = "Dropout", .inputs = {graph->find_value("b")}});
  Value* mask = graph->add_node_output(dropout);
  CHECK(mask->producer() == dropout);
  CHECK(mask->index() == 1);
  CHECK(verify(*graph).ok());
}

TEST_CASE("a clone is equal and independent", "[graph]") {
  const auto graph = graph_from(kTiny);
  graph->nodes().front()->set_source("model.py:3 f");
  std::unordered_map<const Value*, Value*> map;
  const auto copy = graph->clone(&map);
  CHECK(print(*copy) == print(*graph));
  CHECK(copy->nodes().front()->source() == "model.py:3 f");
  CHECK(map.at(graph->find_value("b")) == copy->find_value("b"));
  copy->rename(copy->find_value("a"), "changed");
  CHECK(graph->find_value("a") != nullptr);
  CHECK(verify(*copy).ok());
}

TEST_CASE("a clone keeps names that look like fresh ones", "[graph]") {
  const auto graph = graph_from(R"(graph g(%v1) {
  opset 20
  %v0 = Relu(%v1)
  %v3, %v2 = Dropout(%v0)
  return %v2, %v3
})");
  CHECK(print(*graph->clone()) == print(*graph));
}

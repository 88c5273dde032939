// Random graphs of integer vectors: whatever passes run, in whatever order, the outputs stay the same.
#include <algorithm>
#include <map>
#include <random>

#include "src/graph/element.h"
#include "src/graph/op_info.h"
#include "tests/passes/pass_test.h"

using namespace rekindle;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

using Vector = std::vector<std::int64_t>;  // two elements; arithmetic wraps

// `drawn` counts the random nodes so far: a random node's result tells its place in their order.
Vector compute(const Node& node, const std::vector<Vector>& in, int& drawn) {
  if (node.is("Constant")) return graph::int_values(*graph::constant_of(node.output()));
  if (node.is("Shape")) return {2, 3};
  Vector out;
  const std::int64_t noise = graph::is_random(node) ? 1000 * ++drawn : 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const bool has_second = in.size() > 1 && !in[1].empty();
    const auto x = static_cast<std::uint64_t>(in[0][i]),
               y = has_second ? static_cast<std::uint64_t>(in[1][i]) : 0;
    std::uint64_t result = x + static_cast<std::uint64_t>(noise);  // Identity, Dropout, Cast, Concat of one
    if (node.is("Add")) result = x + y;
    if (node.is("Sub")) result = x - y;
    if (node.is("Mul")) result = x * y;
    if (node.is("Neg")) result = 0 - x;
    if (node.is("Max")) result = static_cast<std::uint64_t>(std::max(in[0][i], in[1][i]));
    out.push_back(static_cast<std::int64_t>(result));
  }
  return out;
}

std::map<std::string, Vector> run(const Graph& graph, int& drawn) {
  std::map<const Value*, Vector> values;
  for (const Value* input : graph.inputs())
    values[input] = {static_cast<std::int64_t>(input->index()) + 2, -5};
  for (const auto& node : graph.nodes()) {
    std::vector<Vector> in;
    for (const Value* input : node->inputs()) in.push_back(input == nullptr ? Vector{} : values.at(input));
    values[node->output()] = compute(*node, in, drawn);
  }
  std::map<std::string, Vector> results;
  for (const Value* output : graph.outputs()) results[output->name()] = values.at(output);
  return results;
}

std::unique_ptr<Graph> random_graph(std::mt19937& random) {
  auto graph = std::make_unique<Graph>("random");
  graph->set_opset("", 20);
  const graph::TensorType type{graph::DType::kInt64, {{graph::Dim::of(2)}}};
  const graph::TensorType wide{graph::DType::kFloat32, {{graph::Dim::of(2), graph::Dim::of(3)}}};
  Value* tensor = graph->add_input("tensor", wide);
  std::vector<Value*> pool{graph->add_input("a", type), graph->add_input("b", type)};
  // A training_mode that is not false.
  Value* on = graph->create_constant(graph::make_int64_constant({1, 1}, {2}));
  const auto pick = [&] { return pool[random() % pool.size()]; };
  for (int i = 0; i < 30; ++i) {
    static constexpr const char* kOps[] = {"Add",      "Sub",    "Mul",  "Max",    "Neg",
                                           "Identity", "Concat", "Cast", "Dropout"};
    const std::size_t kind = random() % 12;
    Value* made = nullptr;
    if (kind == 9) {
      made = graph->create_constant(
          graph::make_int64_constant({static_cast<std::int64_t>(random() % 3), 1}, {2}));
    } else if (kind == 10) {
      made = graph->create_node({.op_type = "Shape", .inputs = {tensor}})->output();
    } else if (kind == 11) {
      made = graph->create_node({.op_type = "Dropout", .inputs = {pick(), nullptr, on}})->output();
    } else {
      graph::NodeSpec spec{.op_type = kOps[kind], .inputs = {pick()}};
      if (kind < 4) spec.inputs.push_back(pick());
      if (kind == 6) spec.attributes["axis"] = std::int64_t{0};
      if (kind == 7) spec.attributes["to"] = std::int64_t{7};
      made = graph->create_node(std::move(spec))->output();
    }
    if (random() % 2 == 0 && made->type() == graph::TensorType{}) made->set_type(type);
    pool.push_back(made);
  }
  for (int i = 0; i < 4; ++i) graph->add_output(pick());
  return graph;
}

Result<std::vector<graph::ConstantPtr>> evaluate(const Node& node) {
  std::vector<Vector> in;
  for (const Value* input : node.inputs()) in.push_back(graph::int_values(*graph::constant_of(input)));
  int drawn = 0;
  return std::vector{graph::make_int64_constant(compute(node, in, drawn), {2})};
}

std::vector<std::string> names_of(const std::vector<Value*>& values) {
  std::vector<std::string> names;
  for (const Value* value : values) names.push_back(value->name());
  return names;
}

}  // namespace

TEST_CASE("random graphs keep their results, interface and random draws under any passes", "[passes]") {
  std::mt19937 random(17);
  std::size_t removed = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const auto graph = random_graph(random);
    const std::string before = graph::print(*graph);
    int drawn_before = 0, drawn_after = 0;
    const auto expected = run(*graph, drawn_before);
    const auto inputs = names_of(graph->inputs()), outputs = names_of(graph->outputs());
    const std::size_t nodes = graph->nodes().size();
    std::vector<std::string> names = passes::all_passes().names();
    std::shuffle(names.begin(), names.end(), random);
    const std::vector<std::string_view> order(names.begin(), names.end());
    passes::PassContext context;
    if (trial % 2 == 0) context.evaluate = evaluate;
    const auto changed = passes::run_passes_until_stable(*graph, order, context);
    INFO(before << "\n" << graph::print(*graph));
    REQUIRE(changed.ok());
    REQUIRE(graph::verify(*graph).ok());
    REQUIRE(names_of(graph->inputs()) == inputs);
    REQUIRE(names_of(graph->outputs()) == outputs);
    REQUIRE(run(*graph, drawn_after) == expected);
    REQUIRE(drawn_before == drawn_after);
    REQUIRE_FALSE(*passes::run_passes_until_stable(*graph, order, context));
    removed += nodes - graph->nodes().size();
  }
  CHECK(removed > 2000);
}

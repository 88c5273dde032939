#include "src/graph/onnx/function.h"

#include "src/graph/onnx/import.h"
#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using Catch::Matchers::Contains;

namespace {

onnx::NodeProto& add_node(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const std::string& op,
                          const std::string& domain, const std::vector<std::string>& inputs,
                          const std::string& output) {
  onnx::NodeProto& node = *nodes.Add();
  node.set_op_type(op);
  node.set_domain(domain);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void set_opset(onnx::OperatorSetIdProto& opset, const std::string& domain, std::int64_t version) {
  opset.set_domain(domain);
  opset.set_version(version);
}

// y = own::Leaky(x) with Leaky(a) = LeakyRelu(a + a), whose slope is the function's attribute `slope`.
onnx::ModelProto model_with_function() {
  onnx::ModelProto model;
  set_opset(*model.add_opset_import(), "", 20);
  set_opset(*model.add_opset_import(), "own", 1);
  model.mutable_graph()->add_input()->set_name("x");
  model.mutable_graph()->add_output()->set_name("y");
  onnx::NodeProto& call = add_node(*model.mutable_graph()->mutable_node(), "Leaky", "own", {"x"}, "y");
  onnx::AttributeProto& slope = *call.add_attribute();
  slope.set_name("slope");
  slope.set_type(onnx::AttributeProto::FLOAT);
  slope.set_f(0.5);
  onnx::FunctionProto& function = *model.add_functions();
  function.set_name("Leaky");
  function.set_domain("own");
  set_opset(*function.add_opset_import(), "", 20);
  function.add_input("a");
  function.add_output("b");
  function.add_attribute("slope");
  add_node(*function.mutable_node(), "Add", "", {"a", "a"}, "sum");
  onnx::NodeProto& leaky = add_node(*function.mutable_node(), "LeakyRelu", "", {"sum"}, "b");
  onnx::AttributeProto& alpha = *leaky.add_attribute();
  alpha.set_name("alpha");
  alpha.set_type(onnx::AttributeProto::FLOAT);
  alpha.set_ref_attr_name("slope");
  return model;
}

std::string imported(const onnx::ModelProto& model) {
  const auto graph = import_onnx(model.SerializeAsString());
  return graph.ok() ? print(**graph) : graph.error().message;
}

}  // namespace

TEST_CASE("a call of a model's function becomes its nodes", "[graph]") {
  onnx::ModelProto model = model_with_function();
  CHECK_THAT(imported(model),
             Contains("Add(%x, %x)") && Contains("%y = LeakyRelu(") && Contains("{alpha = 0.5}"));
  model.mutable_graph()->mutable_node(0)->clear_attribute();
  CHECK_THAT(imported(model), Contains("%y = LeakyRelu(") && !Contains("alpha"));
  add_node(*model.mutable_graph()->mutable_node(), "Leaky", "own", {"y"}, "z");
  CHECK_THAT(imported(model), Contains("Add(%y, %y)"));  // names inside do not collide
}

TEST_CASE("functions without end, of other opsets or twice are refused", "[graph]") {
  onnx::ModelProto model = model_with_function();
  add_node(*model.mutable_functions(0)->mutable_node(), "Leaky", "own", {"sum"}, "again");
  CHECK_THAT(imported(model), Contains("'Leaky' calls itself"));
  model = model_with_function();
  model.mutable_functions(0)->mutable_opset_import(0)->set_version(19);
  CHECK_THAT(imported(model), Contains("written for version 19"));
  model = model_with_function();
  *model.add_functions() = model.functions(0);
  CHECK_THAT(imported(model), Contains("'Leaky' twice"));
  model = model_with_function();
  model.mutable_graph()->mutable_node(0)->add_input("x");
  CHECK_THAT(imported(model), Contains("too many inputs"));
}

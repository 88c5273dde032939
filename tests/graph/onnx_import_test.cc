#include "src/graph/onnx/import.h"

#include <onnx/onnx-ml.pb.h>

#include <functional>
#include <random>

#include "src/graph/element.h"
#include "src/graph/onnx/export.h"
#include "tests/support/graph_text.h"

using namespace rekindle::graph;
using Catch::Matchers::Contains;
using rekindle::ErrorCode;

namespace {

void set_type(onnx::ValueInfoProto& info, const std::string& name, int dtype,
              const std::vector<std::string>& dims) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(dtype);
  tensor.mutable_shape();
  for (const std::string& dim : dims) tensor.mutable_shape()->add_dim()->set_dim_param(dim);
}

onnx::NodeProto& add_node(onnx::ModelProto& model, const std::string& op,
                          const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  return node;
}

onnx::AttributeProto& add_attribute(onnx::NodeProto& node, const std::string& name,
                                    onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

// y = Relu(x), x: float32[batch].
onnx::ModelProto small_model() {
  onnx::ModelProto model;
  model.set_ir_version(9);
  auto& opset = *model.add_opset_import();
  opset.set_domain("ai.onnx");
  opset.set_version(20);
  model.mutable_graph()->set_name("small");
  set_type(*model.mutable_graph()->add_input(), "x", 1, {"batch"});
  set_type(*model.mutable_graph()->add_output(), "y", 1, {"batch"});
  onnx::NodeProto& relu = add_node(model, "Relu", {"x"}, {"y"});
  relu.set_name("/layer/Relu");
  relu.set_domain("ai.onnx");
  relu.set_doc_string("model.py(3): forward\nmain.py(1): <module>");
  return model;
}

rekindle::Result<std::unique_ptr<Graph>> import(const onnx::ModelProto& model) {
  return import_onnx(model.SerializeAsString());
}

std::string text_of(const onnx::ModelProto& model) {
  const auto graph = import(model);
  if (!graph.ok()) FAIL(graph.error().message);
  return print(**graph);
}

// The error of the small model after `change`.
void check_error(ErrorCode code, const std::string& expected,
                 const std::function<void(onnx::ModelProto&)>& change) {
  onnx::ModelProto model = small_model();
  change(model);
  const auto graph = import(model);
  INFO(expected);
  REQUIRE_FALSE(graph.ok());
  CHECK(graph.error().code == code);
  CHECK_THAT(graph.error().message, Contains(expected));
}

onnx::TensorProto tensor_of(int dtype, std::vector<std::int64_t> dims) {
  onnx::TensorProto tensor;
  tensor.set_name("w");
  tensor.set_data_type(dtype);
  for (std::int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

// The constant that an initializer becomes, as text.
std::string constant_text(const onnx::TensorProto& tensor) {
  onnx::ModelProto model = small_model();
  *model.mutable_graph()->add_initializer() = tensor;
  const auto graph = import(model);
  if (!graph.ok()) return graph.error().message;
  return print(*constant_of((*graph)->find_value("w")));
}

}  // namespace

TEST_CASE("import keeps types, symbols, names and sources", "[graph]") {
  const auto graph = import(small_model());
  REQUIRE(graph.ok());
  CHECK(print(**graph) == R"(graph small(%x: float32[batch]) {
  opset 20
  %y: float32[batch] = Relu(%x)
  return %y
}
)");
  CHECK((*graph)->nodes().front()->source() == "model.py(3): forward\nmain.py(1): <module>");
}

TEST_CASE("the source is the doc string, else the stack trace, else the name", "[graph]") {
  onnx::ModelProto model = small_model();
  onnx::NodeProto& node = *model.mutable_graph()->mutable_node(0);
  node.clear_doc_string();
  CHECK((*import(model))->nodes().front()->source() == "/layer/Relu");
  auto& entry = *node.add_metadata_props();
  entry.set_key("pkg.torch.onnx.stack_trace");
  entry.set_value("trace");
  CHECK((*import(model))->nodes().front()->source() == "trace");
}

TEST_CASE("initializers become Constant nodes, and the inputs they are defaults of go away", "[graph]") {
  onnx::ModelProto model = small_model();
  onnx::TensorProto& w = *model.mutable_graph()->add_initializer();
  w = tensor_of(1, {2});
  w.add_float_data(1);
  w.add_float_data(2.5);
  set_type(*model.mutable_graph()->add_input(), "w", 1, {"2"});
  add_node(model, "Add", {"x", "w"}, {"z"});
  CHECK_THAT(text_of(model),
             Contains("(%x: float32[batch])") && Contains("%w = Constant() {value = float32[2]{1, 2.5}}"));
}

TEST_CASE("tensors of every dtype are read, from raw and from typed fields", "[graph]") {
  const auto with = [](int dtype, const std::function<void(onnx::TensorProto&)>& fill) {
    onnx::TensorProto tensor = tensor_of(dtype, {2});
    fill(tensor);
    return constant_text(tensor);
  };
  const auto ints = [](std::int32_t a, std::int32_t b) {
    return [=](onnx::TensorProto& t) { t.add_int32_data(a), t.add_int32_data(b); };
  };
  CHECK(with(1, [](auto& t) { t.add_float_data(1), t.add_float_data(-2); }) == "float32[2]{1, -2}");
  CHECK(with(2, ints(0, 255)) == "uint8[2]{0, 255}");
  CHECK(with(3, ints(-128, 127)) == "int8[2]{-128, 127}");
  CHECK(with(4, ints(0, 65535)) == "uint16[2]{0, 65535}");
  CHECK(with(5, ints(-32768, 1)) == "int16[2]{-32768, 1}");
  CHECK(with(6, ints(-7, 1)) == "int32[2]{-7, 1}");
  CHECK(with(7, [](auto& t) { t.add_int64_data(-7), t.add_int64_data(8); }) == "int64[2]{-7, 8}");
  CHECK(with(9, ints(1, 0)) == "bool[2]{true, false}");
  CHECK(with(10, ints(0x3c00, 0xc000)) == "float16[2]{1, -2}");
  CHECK(with(11, [](auto& t) { t.add_double_data(0.1), t.add_double_data(2); }) == "float64[2]{0.1, 2}");
  CHECK(with(12, [](auto& t) { t.add_uint64_data(4294967295u), t.add_uint64_data(0); }) ==
        "uint32[2]{4294967295, 0}");
  CHECK(with(13, [](auto& t) { t.add_uint64_data(~0ull), t.add_uint64_data(0); }) ==
        "uint64[2]{18446744073709551615, 0}");
  CHECK(with(16, ints(0x3f80, 0x7f80)) == "bfloat16[2]{1, inf}");
  CHECK(with(14, [](auto& t) {
          for (int i = 0; i < 4; ++i) t.add_float_data(i);
        }) == "complex64[2]{0, 1, 2, 3}");
  CHECK(with(15, [](auto& t) {
          for (int i = 0; i < 4; ++i) t.add_double_data(i);
        }) == "complex128[2]{0, 1, 2, 3}");
  CHECK(with(16, [](auto& t) { t.set_raw_data(std::string("\x80\x3f\0\0", 4)); }) == "bfloat16[2]{1, 0}");
  CHECK(with(9, [](auto& t) { t.set_raw_data(std::string("\x02\0", 2)); }) == "bool[2]{true, false}");
  CHECK_THAT(with(2, ints(0, 256)), Contains("initializer 'w' has an element out of range"));
  CHECK_THAT(with(10, ints(0, -1)), Contains("out of range"));
}

TEST_CASE("tensors that contradict themselves are refused", "[graph]") {
  onnx::TensorProto tensor = tensor_of(1, {2});
  CHECK_THAT(constant_text(tensor), Contains("has 0 bytes of data, its dims need 8"));
  tensor.set_raw_data("1234567");
  CHECK_THAT(constant_text(tensor), Contains("has 7 bytes of data, its dims need 8"));
  tensor.add_float_data(1);
  CHECK_THAT(constant_text(tensor), Contains("more than one field"));
  CHECK_THAT(constant_text(tensor_of(1, {-1})), Contains("bad dtype or dims"));
  CHECK_THAT(constant_text(tensor_of(1, {1ll << 60, 1ll << 60})), Contains("bad dtype or dims"));
  CHECK_THAT(constant_text(tensor_of(1, {1ll << 40})), Contains("its dims need 4398046511104"));
  CHECK_THAT(constant_text(tensor_of(0, {})), Contains("bad dtype or dims"));
  CHECK_THAT(constant_text(tensor_of(8, {})), Contains("element type STRING"));
  CHECK_THAT(constant_text(tensor_of(22, {})), Contains("element type INT4"));
  CHECK_THAT(constant_text(tensor_of(99, {})), Contains("element type 99, which ONNX does not have"));
  onnx::TensorProto wrong = tensor_of(1, {1});
  wrong.add_int64_data(1);
  CHECK_THAT(constant_text(wrong), Contains("the field of another dtype"));
  onnx::TensorProto external = tensor_of(1, {1});
  external.set_data_location(onnx::TensorProto::EXTERNAL);
  CHECK_THAT(constant_text(external), Contains("keeps its data in another file"));
}

TEST_CASE("Constant's other attributes become its value", "[graph]") {
  const auto with = [](const std::function<void(onnx::NodeProto&)>& fill) {
    onnx::ModelProto model = small_model();
    fill(add_node(model, "Constant", {}, {"c"}));
    const auto graph = import(model);
    return graph.ok() ? print(*constant_of((*graph)->find_value("c"))) : graph.error().message;
  };
  using A = onnx::AttributeProto;
  CHECK(with([](auto& n) { add_attribute(n, "value_int", A::INT).set_i(-3); }) == "int64[]{-3}");
  CHECK(with([](auto& n) { add_attribute(n, "value_float", A::FLOAT).set_f(0.5); }) == "float32[]{0.5}");
  CHECK(with([](auto& n) { add_attribute(n, "value_ints", A::INTS).add_ints(9007199254740993); }) ==
        "int64[1]{9007199254740993}");
  CHECK(with([](auto& n) { add_attribute(n, "value_floats", A::FLOATS); }) == "float32[0]{}");
  CHECK_THAT(with([](auto& n) { add_attribute(n, "value_string", A::STRING); }),
             Contains("'value_string' is not supported"));
  CHECK_THAT(with([](auto& n) {}), Contains("exactly one attribute"));
}

TEST_CASE("what Rekindle does not support is refused by name", "[graph]") {
  const auto check = [](const std::string& expected, const std::function<void(onnx::ModelProto&)>& change) {
    check_error(ErrorCode::kUnsupported, expected, change);
  };
  check("opset 29 is not among 1 to 28", [](auto& m) { m.mutable_opset_import(0)->set_version(29); });
  check("opset 6 is too old for this op", [](auto& m) {
    m.mutable_opset_import(0)->set_version(6);
    add_node(m, "Dropout", {"x"}, {"z"});
  });
  check("node 1 'odd' (op com.example::Nope): Rekindle does not know this op", [](auto& m) {
    onnx::NodeProto& node = add_node(m, "Nope", {"x"}, {"z"});
    node.set_name("odd");
    node.set_domain("com.example");
  });
  check("node 1 (op Relu), attribute 'body' is a graph, which this op does not own", [](auto& m) {
    add_attribute(add_node(m, "Relu", {"x"}, {"z"}), "body", onnx::AttributeProto::GRAPH);
  });
  check("(op StringConcat): Rekindle does not know", [](auto& m) {
    add_node(m, "StringConcat", {"x", "x"}, {"z"});
  });
  check("attribute 'mystery' is not known", [](auto& m) {
    add_attribute(add_node(m, "Relu", {"x"}, {"z"}), "mystery", onnx::AttributeProto::INT);
  });
  check("refers to an attribute of a function", [](auto& m) {
    add_attribute(add_node(m, "Elu", {"x"}, {"z"}), "alpha", onnx::AttributeProto::FLOAT)
        .set_ref_attr_name("a");
  });
  check("sparse initializers", [](auto& m) { m.mutable_graph()->add_sparse_initializer(); });
  check("training information", [](auto& m) { m.add_training_info(); });
  check("value 's' is a map or a sparse tensor", [](auto& m) {
    onnx::ValueInfoProto& info = *m.mutable_graph()->add_input();
    info.set_name("s");
    info.mutable_type()->mutable_map_type();
  });
  check("value 's' has element type STRING", [](auto& m) {
    onnx::ValueInfoProto& info = *m.mutable_graph()->add_input();
    info.set_name("s");
    auto& element = *info.mutable_type()->mutable_sequence_type()->mutable_elem_type();
    element.mutable_tensor_type()->set_elem_type(onnx::TensorProto::STRING);
  });
  check("version 2 of domain rekindle is not 1", [](auto& m) {
    auto& opset = *m.add_opset_import();
    opset.set_domain("rekindle");
    opset.set_version(2);
  });
}

TEST_CASE("models that contradict themselves are corrupt", "[graph]") {
  const auto check = [](const std::string& expected, const std::function<void(onnx::ModelProto&)>& change) {
    check_error(ErrorCode::kCorruption, expected, change);
  };
  check("it has no graph", [](auto& m) { m.clear_graph(); });
  check("node 1 (op Relu): input 'q' is not defined above it",
        [](auto& m) { add_node(m, "Relu", {"q"}, {"z"}); });
  check("node 1 (op Relu): input 'z' is not defined above it",
        [](auto& m) { add_node(m, "Relu", {"z"}, {"z"}); });
  check("node 1 (op Relu) defines 'y' a second time", [](auto& m) { add_node(m, "Relu", {"x"}, {"y"}); });
  check("input defines 'x' a second time", [](auto& m) { m.mutable_graph()->add_input()->set_name("x"); });
  check("an input has no name", [](auto& m) { m.mutable_graph()->add_input(); });
  check("output 'q' is not defined", [](auto& m) { m.mutable_graph()->add_output()->set_name("q"); });
  check("Add (%z): 1 inputs are not allowed", [](auto& m) { add_node(m, "Add", {"x"}, {"z"}); });
  check("Relu: 0 outputs are not allowed", [](auto& m) { add_node(m, "Relu", {"x"}, {""}); });
  check("no opset for its domain", [](auto& m) { m.clear_opset_import(); });
  check("attribute 'alpha' is given twice", [](auto& m) {
    onnx::NodeProto& node = add_node(m, "Elu", {"x"}, {"z"});
    add_attribute(node, "alpha", onnx::AttributeProto::FLOAT);
    add_attribute(node, "alpha", onnx::AttributeProto::FLOAT);
  });
  check("attribute 'alpha' is an int, must be a float",
        [](auto& m) { add_attribute(add_node(m, "Elu", {"x"}, {"z"}), "alpha", onnx::AttributeProto::INT); });
  check("metadata rekindle.float64.alpha contradicts", [](auto& m) {
    onnx::NodeProto& node = add_node(m, "Elu", {"x"}, {"z"});
    add_attribute(node, "alpha", onnx::AttributeProto::FLOAT).set_f(1);
    auto& entry = *node.add_metadata_props();
    entry.set_key("rekindle.float64.alpha");
    entry.set_value("4000000000000000");
  });
  CHECK(import_onnx("").error().code == ErrorCode::kCorruption);
  CHECK(import_onnx("not a model").error().code == ErrorCode::kCorruption);
}

TEST_CASE("absent outputs get names that no name of the model collides with", "[graph]") {
  onnx::ModelProto model = small_model();
  add_node(model, "LayerNormalization", {"x", "y"}, {"n", "", "s"});
  const std::string fresh = (*import(model))->find_value("n")->producer()->output(1)->name();
  add_node(model, "Relu", {"n"}, {fresh});
  const auto graph = import(model);
  REQUIRE(graph.ok());
  CHECK((*graph)->find_value(fresh)->producer()->is("Relu"));
}

TEST_CASE("damaged models give an error or a graph, never a crash", "[graph]") {
  onnx::ModelProto model = small_model();
  onnx::TensorProto& w = *model.mutable_graph()->add_initializer();
  w = tensor_of(7, {2, 1});
  w.set_raw_data(std::string(16, '\1'));
  onnx::NodeProto& elu = add_node(model, "Elu", {"x"}, {"z"});
  add_attribute(elu, "alpha", onnx::AttributeProto::FLOAT).set_f(0.5);
  add_attribute(add_node(model, "Transpose", {"w"}, {"t"}), "perm", onnx::AttributeProto::INTS).add_ints(1);
  add_node(model, "Dropout", {"z", "", "t"}, {"d", "m"});
  set_type(*model.mutable_graph()->add_value_info(), "z", 1, {"batch"});
  const std::string bytes = model.SerializeAsString();
  REQUIRE(import_onnx(bytes).ok());

  int accepted = 0;
  const auto feed = [&](std::string_view damaged) {
    const auto graph = import_onnx(damaged);
    if (!graph.ok()) return;
    ++accepted;
    const auto exported = export_onnx(**graph);
    if (!exported.ok()) FAIL(exported.error().message);
    const auto again = import_onnx(*exported);
    if (!again.ok()) FAIL(again.error().message);
    if (print(**again) != print(**graph)) FAIL(print(**graph) << print(**again));
  };
  for (std::size_t size = 0; size < bytes.size(); ++size) feed(std::string_view(bytes).substr(0, size));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    feed(damaged);
  }
  std::mt19937 random(5);
  for (int i = 0; i < 10000; ++i) {
    std::string damaged = bytes;
    for (int changes = 0; changes < 4; ++changes)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    feed(damaged);
  }
  CHECK(accepted > 100);
}

#include "src/graph/onnx/normalize.h"

#include <algorithm>
#include <array>

#include "src/graph/element.h"
#include "src/graph/onnx/import.h"

namespace rekindle::graph {
namespace {

constexpr std::array<std::string_view, 17> kNeverChanged{
    "Not", "Identity", "Constant", "Transpose", "Shape", "Size",    "Abs",  "Neg",   "Sqrt",
    "Exp", "Log",      "Floor",    "Ceil",      "Relu",  "Sigmoid", "Tanh", "MatMul"};

// A node that is being rewritten.
struct Rewrite {
  Graph& graph;
  NodeSpec& spec;
  std::int64_t opset;

  template <typename T>
  std::optional<T> take(std::string_view name) const {
    const auto position = spec.attributes.find(name);
    if (position == spec.attributes.end() || !std::holds_alternative<T>(position->second))
      return std::nullopt;
    T value = std::get<T>(std::move(position->second));
    spec.attributes.erase(position);
    return value;
  }
  void set_attribute(const std::string& name, Attribute value) const {
    spec.attributes.erase(name);
    spec.attributes.emplace(name, std::move(value));
  }
  void set_input(std::size_t i, Value* value) const {
    if (spec.inputs.size() <= i) spec.inputs.resize(i + 1, nullptr);
    spec.inputs[i] = value;
  }
  Value* add(std::string op, std::vector<Value*> inputs,
             decltype(NodeSpec::attributes) attributes = {}) const {
    return graph.create_node({std::move(op), "", std::move(inputs), std::move(attributes), 1})->output();
  }
  Value* ints(const std::vector<std::int64_t>& values) const {
    return graph.create_constant(make_int64_constant(values, {static_cast<std::int64_t>(values.size())}));
  }
  // A float in the type of input 0.
  Value* number(double value) const {
    return add("CastLike",
               {graph.create_constant(make_scalar_constant(DType::kFloat32, value)), spec.inputs.at(0)});
  }
  // Attribute `name` as input `i`.
  void ints_to_input(std::string_view name, std::size_t i) const {
    if (const auto values = take<std::vector<std::int64_t>>(name)) set_input(i, ints(*values));
  }
};

// Until opset 13 these worked on the input flattened to a matrix at `axis`.
void softmax_of_matrix(const Rewrite& node) {
  const std::int64_t axis = node.take<std::int64_t>("axis").value_or(1);
  Value* x = node.spec.inputs.at(0);
  Value* matrix = node.add("Flatten", {x}, {{"axis", axis}});
  Value* y = node.add(node.spec.op_type, {matrix}, {{"axis", 1}});
  node.spec = {.op_type = "Reshape", .inputs = {y, node.add("Shape", {x})}, .outputs = node.spec.outputs};
}

void slice(const Rewrite& node) {
  node.ints_to_input("starts", 1);
  node.ints_to_input("ends", 2);
  node.ints_to_input("axes", 3);
}

void clip(const Rewrite& node) {
  if (const auto low = node.take<double>("min")) node.set_input(1, node.number(*low));
  if (const auto high = node.take<double>("max")) node.set_input(2, node.number(*high));
}

void pad(const Rewrite& node) {
  node.ints_to_input("pads", 1);
  if (const auto value = node.take<double>("value")) node.set_input(2, node.number(*value));
}

void top_k(const Rewrite& node) {
  if (const auto k = node.take<std::int64_t>("k")) node.set_input(1, node.ints({*k}));
}

void dropout(const Rewrite& node) {
  const auto ratio = node.take<double>("ratio");  // inference only: opset 12 brought a training mode
  if (ratio) node.set_input(1, node.number(*ratio));
}

void upsample(const Rewrite& node) {
  node.spec.op_type = "Resize";
  Value* scales = node.spec.inputs.size() > 1 ? node.spec.inputs[1] : nullptr;
  if (const auto values = node.take<std::vector<double>>("scales")) {
    auto constant = std::make_shared<ConstantTensor>();
    constant->dtype = DType::kFloat32;
    constant->sizes = {static_cast<std::int64_t>(values->size())};
    for (const double value : *values) append_double(DType::kFloat32, value, constant->bytes);
    scales = node.graph.create_constant(std::move(constant));
  }
  node.spec.inputs = {node.spec.inputs.at(0), nullptr, scales};
  node.set_attribute("coordinate_transformation_mode", "asymmetric");
  node.set_attribute("nearest_mode", "floor");
}

void grid_sample(const Rewrite& node) {
  const auto mode = node.take<std::string>("mode").value_or("bilinear");
  node.spec.attributes.emplace("mode", mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode);
}

void dft(const Rewrite& node) {
  const std::int64_t axis = node.take<std::int64_t>("axis").value_or(1);
  node.set_input(2, node.graph.create_constant(make_int64_constant({axis}, {})));
}

void axes_to_input(const Rewrite& node) { node.ints_to_input("axes", 1); }

void split(const Rewrite& node) { node.ints_to_input("split", 1); }

void scatter(const Rewrite& node) { node.spec.op_type = "ScatterElements"; }

struct Rule {
  std::string_view op;
  std::int64_t before;  // opset
  void (*rewrite)(const Rewrite&);
};

constexpr std::array<Rule, 15> kRules{{
    {"Clip", 11, clip},
    {"DFT", 20, dft},
    {"Dropout", 12, dropout},
    {"GridSample", 20, grid_sample},
    {"Hardmax", 13, softmax_of_matrix},
    {"LogSoftmax", 13, softmax_of_matrix},
    {"Pad", 11, pad},
    {"Scatter", 100, scatter},
    {"Slice", 10, slice},
    {"Softmax", 13, softmax_of_matrix},
    {"Split", 13, split},
    {"TopK", 10, top_k},
    {"Unsqueeze", 13, axes_to_input},
    {"Upsample", 100, upsample},
    {"Resize", 11, upsample},
}};

}  // namespace

Status normalize_node(Graph& graph, NodeSpec& spec, std::int64_t opset, const std::string& what) {
  if (opset < 7 && std::ranges::find(kNeverChanged, spec.op_type) == kNeverChanged.end())
    return unsupported(what + ": opset " + std::to_string(opset) +
                       " is too old for this op; convert the model to 7");
  const auto rule = std::ranges::find(kRules, spec.op_type, &Rule::op);
  if (rule == kRules.end() || opset >= rule->before) return {};
  if (spec.op_type == "Dropout" && opset < 10 && spec.outputs > 1)
    return unsupported(what +
                       ": before opset 10, the mask has the type of the input; convert the model to 12");
  if (spec.inputs.empty() || spec.inputs[0] == nullptr) return corruption(what + ": it has no input");
  rule->rewrite({graph, spec, opset});
  return {};
}

}  // namespace rekindle::graph

#include "src/graph/op_info.h"

#include <algorithm>
#include <tuple>

#include "src/graph/element.h"

namespace rekindle::graph {
namespace {

constexpr std::size_t kAny = kVariadic;
constexpr std::string_view kOwn = kRekindleDomain;

// Ops of the same arity and flags, by name.
struct Family {
  OpInfo facts;  // without a name
  std::vector<std::string_view> names;
};

std::vector<Family> onnx_families() {
  return {
      {{"", "", 0, 0, 1, 1}, {"Constant"}},
      {{"", "", 1, 1, 1, 1},
       {"Abs", "ArgMax", "ArgMin", "Cast", "Ceil", "Cos", "Elu", "Erf", "Exp", "Flatten", "Floor", "Gelu",
        "GlobalAveragePool", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "LogSoftmax",
        "AveragePool", "Neg", "NonZero", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softmax",
        "Softplus", "Softsign", "Sqrt", "Tanh", "Tan", "Transpose", "ConstantOfShape"}},
      {{"", "", 1, 1, 1, 1, {0}}, {"Shape", "Size", "EyeLike"}},
      {{"", "", 1, 1, 1, 1, {0}, false, true}, {"RandomNormalLike", "RandomUniformLike"}},
      {{"", "", 1, 1, 1, 2}, {"MaxPool"}},
      {{"", "", 1, 2, 1, 1},
       {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare",
        "ReduceLogSumExp", "Squeeze", "Trilu"}},
      {{"", "", 1, 2, 1, kAny}, {"Split"}},
      {{"", "", 1, 3, 1, 1}, {"Clip"}},
      {{"", "", 1, 3, 1, 2, {}, false, true}, {"Dropout"}},
      {{"", "", 1, kAny, 1, 1}, {"Concat", "Einsum", "Max", "Mean", "Min", "Sum"}},
      {{"", "", 2, 2, 1, 1},
       {"Add", "And", "CumSum", "Div", "Equal", "Expand", "Gather", "GatherElements", "GatherND", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "MatMul", "Mod", "Mul", "Or", "PRelu", "Pow", "Reshape", "Sub", "Tile",
        "Unsqueeze", "Xor"}},
      {{"", "", 2, 2, 1, 1, {1}}, {"CastLike"}},
      {{"", "", 2, 2, 2, 2}, {"TopK"}},
      {{"", "", 2, 3, 1, 1}, {"Conv", "Gemm"}},
      {{"", "", 2, 3, 1, 3}, {"LayerNormalization"}},
      {{"", "", 2, 4, 1, 1}, {"Pad"}},
      {{"", "", 3, 3, 1, 1},
       {"InstanceNormalization", "OneHot", "Range", "ScatterElements", "ScatterND", "Where"}},
      {{"", "", 3, 5, 1, 1}, {"Slice"}},
      {{"", "", 5, 5, 1, 3}, {"BatchNormalization"}},
  };
}

std::vector<Family> own_families() {
  return {
      {{kOwn, "", 1, 1, 1, 1}, {"StopGradient"}},
      {{kOwn, "", 1, 1, 1, 1, {0}}, {"ZerosLike"}},
      {{kOwn, "", 1, 2, 1, 1}, {"TriluGradient"}},
      {{kOwn, "", 2, 2, 1, 1},
       {"LinearWeightGradient", "Embedding", "GeluGradient", "ReluGradient", "TanhGradient", "SigmoidGradient",
        "SoftmaxGradient", "LogSoftmaxGradient", "CumSumGradient"}},
      {{kOwn, "", 2, 2, 1, 1, {1}}, {"SumToSizeOf", "ReshapeLike", "ExpandLike", "MeanGradient", "SumGradient"}},
      {{kOwn, "", 2, 3, 1, 1}, {"Linear"}},
      {{kOwn, "", 2, 3, 1, 2}, {"CrossEntropyLoss"}},
      {{kOwn, "", 2, kAny, 1, kAny, {1}, true}, {"ConcatGradient"}},
      {{kOwn, "", 3, 3, 1, 1}, {"DropoutGradient"}},
      {{kOwn, "", 3, 3, 1, 1, {2}}, {"EmbeddingGradient", "GatherGradient"}},
      {{kOwn, "", 3, 4, 1, 2}, {"ScaledDotProductAttention"}},
      {{kOwn, "", 4, 5, 1, 1}, {"CrossEntropyLossGradient"}},
      {{kOwn, "", 4, 6, 1, 1, {1}}, {"SliceGradient"}},
      {{kOwn, "", 5, 6, 1, 3, {5}}, {"LayerNormalizationGradient"}},
      {{kOwn, "", 6, 7, 1, 3}, {"ScaledDotProductAttentionGradient"}},
  };
}

auto key_of(const OpInfo& info) { return std::tuple(info.domain, info.name); }

std::vector<OpInfo> make_table() {
  std::vector<OpInfo> table;
  for (const auto& families : {onnx_families(), own_families()}) {
    for (const Family& family : families) {
      for (std::string_view name : family.names) {
        table.push_back(family.facts);
        table.back().name = name;
      }
    }
  }
  std::ranges::sort(table, {}, key_of);
  return table;
}

}  // namespace

const std::vector<OpInfo>& all_ops() {
  static const std::vector<OpInfo> table = make_table();
  return table;
}

const OpInfo* find_op(std::string_view domain, std::string_view name) {
  const std::tuple key(domain, name);
  const auto position = std::ranges::lower_bound(all_ops(), key, {}, key_of);
  return position != all_ops().end() && key_of(*position) == key ? &*position : nullptr;
}

bool is_shape_only(const Node& node, std::size_t index) {
  const OpInfo* info = find_op(node.domain(), node.op_type());
  if (info == nullptr || info->shape_only.empty()) return false;
  if (std::ranges::find(info->shape_only, index) != info->shape_only.end()) return true;
  return info->shape_only_tail && index > std::ranges::max(info->shape_only);
}

bool is_random(const Node& node) {
  const OpInfo* info = find_op(node.domain(), node.op_type());
  if (info == nullptr || !info->random) return false;
  if (!node.is("Dropout")) return true;
  const Value* training_mode = node.input(2);
  if (training_mode == nullptr) return false;  // the default is false
  const ConstantPtr constant = constant_of(training_mode);
  return constant == nullptr || constant->numel() < 1 || read_int64(*constant, 0) != 0;
}

}  // namespace rekindle::graph

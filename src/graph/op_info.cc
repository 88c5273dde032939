#include "src/graph/op_info.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "src/graph/element.h"
#include "src/graph/torch_node.h"

namespace rekindle::graph {
namespace {

constexpr std::size_t kAny = kVariadic;
constexpr std::string_view kOwn = kRekindleDomain;

auto key_of(const OpInfo& info) { return std::tuple(info.domain, info.name); }

// Collects ops of the same arity and flags, which are given without a name.
class Table {
 public:
  void add(OpInfo facts, std::initializer_list<std::string_view> names) {
    for (std::string_view name : names) {
      facts.name = name;
      ops_.push_back(facts);
    }
  }
  std::vector<OpInfo> take() {
    std::ranges::sort(ops_, {}, key_of);
    return std::move(ops_);
  }

 private:
  std::vector<OpInfo> ops_;
};

// One name a line would hide the table.
// clang-format off
// Domain, name, inputs from and to, outputs from and to, shape-only inputs, facts.
void add_onnx_ops(Table& table) {
  table.add({"", "", 0, 0, 1, 1}, {"Constant"});
  table.add({"", "", 1, 1, 1, 1},
            {"ArgMax", "ArgMin", "AveragePool", "ConstantOfShape", "GlobalAveragePool", "IsInf", "IsNaN", "LogSoftmax",
             "NonZero", "Round", "Softmax", "Softsign", "Tan"});
  table.add({"", "", 1, 1, 1, 1, {}, kCheap},
            {"Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log",
             "Neg", "Not", "Reciprocal", "Relu", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh"});
  table.add({"", "", 1, 1, 1, 1, {}, kView}, {"Flatten", "Identity", "Transpose"});
  table.add({"", "", 1, 1, 1, 1, {}, kCheap | kView}, {"Cast"});
  table.add({"", "", 1, 1, 1, 1, {0}}, {"Shape", "Size", "EyeLike"});
  table.add({"", "", 1, 1, 1, 1, {0}, kRandom}, {"RandomNormalLike", "RandomUniformLike"});
  table.add({"", "", 1, 1, 1, 2}, {"MaxPool"});
  table.add({"", "", 1, 2, 1, 1},
            {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceL1", "ReduceL2",
             "ReduceSumSquare", "ReduceLogSumExp", "Trilu"});
  table.add({"", "", 1, 2, 1, 1, {}, kView}, {"Squeeze"});
  table.add({"", "", 1, 2, 1, kAny, {}, kView}, {"Split"});
  table.add({"", "", 1, 3, 1, 1, {}, kCheap}, {"Clip"});
  table.add({"", "", 1, 3, 1, 2, {}, kRandom}, {"Dropout"});
  table.add({"", "", 1, kAny, 1, 1}, {"Concat", "Einsum", "Mean", "Sum"});
  table.add({"", "", 1, kAny, 1, 1, {}, kCheap}, {"Max", "Min"});
  table.add({"", "", 2, 2, 1, 1}, {"CumSum", "GatherElements", "GatherND", "MatMul", "Mod", "PRelu", "Tile", "Xor"});
  table.add({"", "", 2, 2, 1, 1, {}, kCheap},
            {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Or", "Pow", "Sub"});
  table.add({"", "", 2, 2, 1, 1, {}, kView}, {"Expand", "Gather", "Reshape", "Unsqueeze"});
  table.add({"", "", 2, 2, 1, 1, {1}, kView}, {"CastLike"});
  table.add({"", "", 2, 2, 2, 2}, {"TopK"});
  table.add({"", "", 2, 3, 1, 1}, {"Conv", "Gemm"});
  table.add({"", "", 2, 3, 1, 3}, {"LayerNormalization"});
  table.add({"", "", 2, 4, 1, 1}, {"Pad"});
  table.add({"", "", 3, 3, 1, 1},
            {"InstanceNormalization", "OneHot", "Range", "ScatterElements", "ScatterND"});
  table.add({"", "", 3, 3, 1, 1, {}, kCheap}, {"Where"});
  table.add({"", "", 3, 5, 1, 1, {}, kView}, {"Slice"});
  table.add({"", "", 5, 5, 1, 3}, {"BatchNormalization"});
}

// Those that no export of a training step has: they come with models from elsewhere.
void add_more_onnx_ops(Table& table) {
  table.add({"", "", 0, 0, 1, 1}, {"SequenceEmpty"});
  table.add({"", "", 0, 0, 1, 1, {}, kRandom}, {"RandomNormal", "RandomUniform"});
  table.add({"", "", 0, 1, 1, 1}, {"Optional", "OptionalHasElement"});
  table.add({"", "", 1, 1, 1, 1},
            {"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitCast", "BitwiseNot", "BlackmanWindow", "Celu",
             "ConcatFromSequence", "Cosh", "DepthToSpace", "Det", "GlobalLpPool", "GlobalMaxPool", "HammingWindow",
             "HannWindow", "Hardmax", "LRN", "LpNormalization", "LpPool", "MeanVarianceNormalization", "Mish",
             "OptionalGetElement", "Selu", "SequenceLength", "Shrink", "Sinh", "SpaceToDepth", "Swish", "TfIdfVectorizer",
             "ThresholdedRelu"});
  table.add({"", "", 1, 1, 1, 1, {}, kRandom}, {"Bernoulli", "Multinomial"});
  table.add({"", "", 1, 1, 1, 4}, {"Unique"});
  table.add({"", "", 1, 1, 3, 3}, {"DynamicQuantizeLinear"});
  table.add({"", "", 1, 2, 1, 1}, {"ReduceLogSum", "SequenceErase", "SplitToSequence"});
  table.add({"", "", 1, 3, 1, 1}, {"DFT"});
  table.add({"", "", 1, 4, 1, 1}, {"Resize"});
  table.add({"", "", 1, kAny, 1, 1}, {"SequenceConstruct"});
  table.add({"", "", 2, 2, 1, 1},
            {"AffineGrid", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "CenterCropPad", "Compress", "CumProd",
             "GridSample", "MaxRoiPool", "RMSNormalization", "ReverseSequence", "SequenceAt", "SwiGLU"});
  table.add({"", "", 2, 3, 1, 1},
            {"ConvTranspose", "DequantizeLinear", "MaxUnpool", "NegativeLogLikelihoodLoss", "QuantizeLinear",
             "SequenceInsert"});
  table.add({"", "", 2, 3, 1, 2}, {"SoftmaxCrossEntropyLoss"});
  table.add({"", "", 2, 4, 1, 1}, {"ConvInteger", "MatMulInteger", "STFT"});
  table.add({"", "", 2, 4, 1, 2}, {"CausalConvWithState"});
  table.add({"", "", 2, 5, 1, 1}, {"NonMaxSuppression"});
  table.add({"", "", 2, 3, 1, 1}, {"TensorScatter"});
  table.add({"", "", 3, 3, 1, 1}, {"Col2Im", "GroupNormalization", "RoiAlign"});
  table.add({"", "", 3, 4, 1, 1}, {"RotaryEmbedding"});
  table.add({"", "", 3, 5, 1, 1}, {"DeformConv"});
  table.add({"", "", 3, 6, 1, 2}, {"GRU", "LinearAttention", "RNN"});
  table.add({"", "", 3, 7, 1, 4}, {"Attention"});
  table.add({"", "", 3, 8, 1, 3}, {"LSTM"});
  table.add({"", "", 5, 5, 1, 1}, {"MelWeightMatrix"});
  table.add({"", "", 8, 8, 1, 1}, {"QLinearMatMul"});
  table.add({"", "", 8, 9, 1, 1}, {"QLinearConv"});
}

void add_own_ops(Table& table) {
  table.add({kOwn, "", 1, 1, 1, 1, {}, kView}, {"StopGradient"});
  table.add({kOwn, "", 2, 2, 1, 1, {}, kView}, {"StraightThrough"});
  table.add({kOwn, "", 1, 1, 1, 1, {}, kCheap}, {"Silu"});
  table.add({kOwn, "", 1, 1, 1, 1}, {"Copy"});
  table.add({kOwn, "", 1, 1, 1, 1, {0}}, {"ZerosLike"});
  table.add({kOwn, "", 1, 2, 1, 1}, {"TriluGradient"});
  table.add({kOwn, "", 0, kAny, 1, kAny, {}, kAbsentInputs}, {"If", "Loop", "Scan", "SequenceMap"});
  table.add({kOwn, "", 2, 2, 1, 1},
            {"Embedding", "GeluGradient", "ReluGradient", "TanhGradient", "SigmoidGradient", "SiluGradient",
             "SoftmaxGradient", "LogSoftmaxGradient", "CumSumGradient"});
  table.add({kOwn, "", 2, 2, 1, 1, {1}}, {"MeanGradient"});
  table.add({kOwn, "", 2, 2, 1, 1, {1}, kView}, {"SumToSizeOf", "ReshapeLike", "ExpandLike", "SumGradient"});
  table.add({kOwn, "", 2, 3, 1, 1}, {"Linear"});
  table.add({kOwn, "", 2, 3, 1, 1, {}, kAddsToLast}, {"LinearWeightGradient"});
  table.add({kOwn, "", 2, 3, 1, 2}, {"CrossEntropyLoss"});
  table.add({kOwn, "", 2, kAny, 1, kAny, {1}, kShapeOnlyTail | kView}, {"ConcatGradient"});
  table.add({kOwn, "", 3, 3, 1, 1}, {"DropoutGradient"});
  table.add({kOwn, "", 3, 4, 1, 1, {2}}, {"PackRows", "UnpackRows"});
  table.add({kOwn, "", 4, 4, 1, 2, {3}, kRandom}, {"DropoutRows"});
  table.add({kOwn, "", 3, 4, 1, 1, {2}, kAddsToLast}, {"EmbeddingGradient", "GatherGradient"});
  table.add({kOwn, "", 3, 4, 1, 2}, {"ScaledDotProductAttention"});
  table.add({kOwn, "", 4, 5, 1, 1}, {"CrossEntropyLossGradient"});
  table.add({kOwn, "", 6, 7, 2, 3}, {"LinearCrossEntropyGradient"});
  table.add({kOwn, "", 4, 7, 1, 1, {1}, kAddsToLast}, {"SliceGradient"});
  table.add({kOwn, "", 5, 6, 1, 3, {5}}, {"LayerNormalizationGradient"});
  table.add({kOwn, "", 3, 3, 1, 3}, {"ConvolutionGradient"});
  table.add({kOwn, "", 3, 5, 6, 6}, {"BatchStatistics"});
  table.add({kOwn, "", 4, 4, 1, 1, {}, kCheap}, {"BatchNormalize"});
  table.add({kOwn, "", 4, 5, 1, 3}, {"BatchNormGradient"});
  table.add({kOwn, "", 6, 7, 1, 3}, {"ScaledDotProductAttentionGradient"});
  table.add({kOwn, "", 3, kAny, 1, kAny, {}, kAbsentInputs}, {"TorchGradient"});
  table.add({kOwn, "", 3, 3, 1, 1}, {"MatMulBnb4Gradient"});
}
// clang-format on

// As onnxruntime's ContribOperators.md has them.
void add_microsoft_ops(Table& table) {
  constexpr std::string_view kDomain = kMicrosoftDomain;
  table.add({kDomain, "", 1, 1, 1, 1}, {"Gelu", "QuickGelu"});
  table.add({kDomain, "", 1, 2, 1, 1}, {"FastGelu"});
  table.add({kDomain, "", 1, 8, 1, 3}, {"MultiHeadAttention"});
  table.add({kDomain, "", 2, 2, 1, 1}, {"BiasGelu", "FusedMatMul"});
  table.add({kDomain, "", 3, 3, 1, 1}, {"MatMulBnb4"});
  table.add({kDomain, "", 3, 4, 1, 4}, {"SkipSimplifiedLayerNormalization"});
  table.add({kDomain, "", 3, 5, 1, 4}, {"SkipLayerNormalization"});
  table.add({kDomain, "", 4, 4, 1, 1}, {"RotaryEmbedding"});
}

std::vector<OpInfo> make_table() {
  Table table;
  add_onnx_ops(table);
  add_more_onnx_ops(table);
  add_own_ops(table);
  add_microsoft_ops(table);
  return table.take();
}

}  // namespace

const std::vector<OpInfo>& all_ops() {
  static const std::vector<OpInfo> table = make_table();
  return table;
}

const OpInfo* find_op(std::string_view domain, std::string_view name) {
  static const OpInfo torch{kTorchDomain, "", 0, kAny, 1, kAny, {}, kAbsentInputs};
  if (domain == kTorchDomain) return &torch;
  const std::tuple key(domain, name);
  const auto position = std::ranges::lower_bound(all_ops(), key, {}, key_of);
  return position != all_ops().end() && key_of(*position) == key ? &*position : nullptr;
}

bool is_shape_only(const Node& node, std::size_t index) {
  if (is_torch_gradient(node)) return index > gradient_cotangents(node);
  const OpInfo* info = find_op(node.domain(), node.op_type());
  if (info == nullptr || info->shape_only.empty()) return false;
  if (std::ranges::find(info->shape_only, index) != info->shape_only.end()) return true;
  return info->is(kShapeOnlyTail) && index > std::ranges::max(info->shape_only);
}

bool is_view(const Node& node) {
  const OpInfo* info = find_op(node.domain(), node.op_type());
  if (info == nullptr || !info->is(kView)) return false;
  if (!node.is("Cast") && !node.is("CastLike")) return true;
  const DType from = node.input(0)->type().dtype, to = node.output()->type().dtype;
  return from == to || from == DType::kUndefined || to == DType::kUndefined;
}

const Value* base_of(const Value* value) {
  const Node* node = value->producer();
  while (node != nullptr && is_view(*node)) {
    value = node->input(0);
    node = value->producer();
  }
  return value;
}

std::optional<std::size_t> sum_input(const Node& node) {
  if (node.is("Add") && node.int_attribute("accumulate", 0) != 0) return 1;
  const OpInfo* info = find_op(node.domain(), node.op_type());
  if (info == nullptr || !info->is(kAddsToLast)) return std::nullopt;
  return info->max_inputs - 1;
}

bool is_random(const Node& node) {
  if (is_torch(node)) return node.int_attribute("_random", 0) != 0;
  for (const auto& [name, attribute] : node.attributes()) {
    const auto* body = std::get_if<GraphPtr>(&attribute);
    if (body != nullptr &&
        std::ranges::any_of((*body)->nodes(), [](const auto& inner) { return is_random(*inner); }))
      return true;
  }
  const OpInfo* info = find_op(node.domain(), node.op_type());
  if (info == nullptr || !info->is(kRandom)) return false;
  if (!node.is("Dropout")) return true;
  const Value* training_mode = node.input(2);
  if (training_mode == nullptr) return false;  // the default is false
  const ConstantPtr constant = constant_of(training_mode);
  if (constant == nullptr || constant->numel() < 1 || !is_integral(constant->dtype)) return true;
  return read_int64(*constant, 0) != 0;
}

std::string qualified_name(std::string_view domain, std::string_view op_type) {
  return domain.empty() ? std::string(op_type) : std::string(domain) + "::" + std::string(op_type);
}

}  // namespace rekindle::graph

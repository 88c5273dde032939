// Rules of ops that compute each row of their outputs from the same row of their inputs.
#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "src/padding/row_rules.h"

namespace rekindle::padding {
namespace {

using graph::Node;
using graph::Value;

bool is_one_of(const Node& node, const std::set<std::string, std::less<>>& names) {
  return (node.domain().empty() || node.domain() == graph::kRekindleDomain) && names.contains(node.op_type());
}

// Weights are lost, but where a rule keeps them.
Rule row_wise(std::vector<State> outputs, int weight = -1) {
  for (State& state : outputs) state.weight = weight;
  return {{Use::kRowWise, -1}, std::move(outputs)};
}

// Moves every dimension of a state.
template <typename Move>
State moved(State state, Move move) {
  for (int* axis : {&state.batch, &state.length, &state.flat, &state.key}) {
    if (*axis >= 0) *axis = move(*axis);
  }
  return state;
}

// What says by 0 or 1, or by false or true, which rows count, where an input does, whose rows lie as those of
// the output; null for one that may hold anything else.
Value* flags_of(const RuleContext& context, const Node& node, std::size_t input) {
  Value* flags = node.input(input);
  if (context.found.of(flags).kind != Kind::kRows) return nullptr;
  while (graph::is_differentiable(flags->type().dtype) || !context.found.of(flags).leads()) {
    const Node* producer = flags->producer();
    if (producer == nullptr || !is_one_of(*producer, {"Cast", "Expand", "StopGradient", "Unsqueeze"}))
      return nullptr;
    flags = producer->input(0);
  }
  return flags;
}

int add_weight(RowStates& found, Value* value, bool negated) {
  found.weights.push_back({value, negated});
  return static_cast<int>(found.weights.size()) - 1;
}

// Of an elementwise node: what makes rows of its output zero.
int weight_of(const RuleContext& context, const Node& node) {
  if (node.is("Where")) {
    Value* flags = flags_of(context, node, 0);
    const bool keeps = RuleContext::number(node.input(2)) == 0,
               hides = RuleContext::number(node.input(1)) == 0;
    return flags != nullptr && keeps != hides ? add_weight(context.found, flags, hides) : -1;
  }
  if (node.is("Mul")) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (Value* flags = flags_of(context, node, i))
        return add_weight(context.found, flags, /*negated=*/false);
    }
  }
  const bool keeps_zeros = node.is("Mul") || node.is("Div") || node.is("Cast") || node.is("Neg");
  return keeps_zeros ? context.state(node, 0).weight : -1;
}

// Inputs that are rows agree on where these are in the output; all others are the same for each of them.
std::optional<Rule> elementwise(const RuleContext& context, const Node& node) {
  State all;
  const int rank = context.rank(node.output());
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    const State& state = context.state(node, i);
    if (!state.is_tracked()) continue;
    if (state.kind != Kind::kRows) return std::nullopt;
    const int shift = rank - context.rank(node.input(i));
    const State aligned = moved(state, [&](int axis) { return axis + shift; });
    if (all.is_tracked() && !all.same_rows(aligned)) return std::nullopt;
    all = aligned;
  }
  if (!all.is_tracked()) return std::nullopt;
  return row_wise(std::vector<State>(node.outputs().size(), all), weight_of(context, node));
}

// Ops along dimensions that are none of the rows'. Those that drop dimensions move the others.
std::optional<Rule> along_axes(const RuleContext& context, const Node& node) {
  const std::optional<std::vector<int>> axes = axes_of(context, node);
  const State& state = context.state(node, 0);
  if (!axes || state.kind != Kind::kRows || !context.only_tracked(node, {0})) return std::nullopt;
  const bool adds = node.is("Unsqueeze");
  if (!adds && std::ranges::any_of(*axes, [&](int axis) { return state.has(axis); })) return std::nullopt;
  const int before = context.rank(node.input(0)), after = context.rank(node.output());
  const State out = moved(state, [&](int axis) {
    if (before == after) return axis;
    if (!adds) return axis - static_cast<int>(std::ranges::count_if(*axes, [&](int a) { return a < axis; }));
    for (int added : *axes) axis += added <= axis ? 1 : 0;
    return axis;
  });
  const bool only_moves = adds || node.is("Squeeze");
  return row_wise(std::vector<State>(node.outputs().size(), out), only_moves ? state.weight : -1);
}

std::optional<Rule> concat(const RuleContext& context, const Node& node) {
  const std::optional<std::vector<int>> axes = axes_of(context, node);
  const State& first = context.state(node, 0);
  if (!axes || first.kind != Kind::kRows || first.has(axes->at(0))) return std::nullopt;
  for (std::size_t i = 1; i < node.inputs().size(); ++i) {
    const State& other = context.state(node, i);
    if (other.kind != Kind::kRows || !other.same_rows(first)) return std::nullopt;
  }
  return row_wise({first});
}

std::optional<Rule> transpose(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 0);
  const std::vector<std::int64_t> order = node.ints_attribute("perm", {});
  if (!state.is_tracked() || order.empty()) return std::nullopt;
  const State out = moved(
      state, [&](int axis) { return static_cast<int>(std::ranges::find(order, axis) - order.begin()); });
  const bool rows = state.kind == Kind::kRows;
  return rows ? std::optional(row_wise({out})) : std::nullopt;
}

std::optional<Rule> reshape(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 0);
  if (state.kind != Kind::kRows || !context.only_tracked(node, {0})) return std::nullopt;
  State out{Kind::kRows};
  if (state.leads()) {
    const Leading leading = context.sizes.leading(node.output());
    if (leading == Leading::kNo) return std::nullopt;
    (leading == Leading::kFlat ? out.flat : out.batch) = 0;
    if (leading == Leading::kBatchAndLength) out.length = 1;
    return row_wise({out}, state.weight);
  }
  if (state.flat >= 0) return std::nullopt;
  out.batch = context.sizes.reshaped_axis(node.input(0), state.batch, node.output());
  out.length = context.sizes.reshaped_axis(node.input(0), state.length, node.output());
  return out.batch < 0 || out.length < 0 ? std::nullopt : std::optional(row_wise({out}));
}

// Broadcasts dimensions that are none of the rows'.
std::optional<Rule> expand(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 0);
  if (state.kind != Kind::kRows || !context.only_tracked(node, {0})) return std::nullopt;
  const int shift = context.rank(node.output()) - context.rank(node.input(0));
  return row_wise({moved(state, [&](int axis) { return axis + shift; })});
}

// x · weight, or queries · keys that have no rows: rows of all dimensions but the last.
std::optional<Rule> product(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 0);
  const bool same_rank = context.rank(node.input(0)) == context.rank(node.output());
  if (state.kind != Kind::kRows || !context.only_tracked(node, {0}) || !same_rank) return std::nullopt;
  if (state.has(context.rank(node.input(0)) - 1)) return std::nullopt;
  if (node.is("Gemm") && node.int_attribute("transA", 0) != 0) return std::nullopt;
  return row_wise({state});
}

std::optional<Rule> embedding(const RuleContext& context, const Node& node) {
  const State& state = context.state(node, 1);
  if (state.kind != Kind::kRows || !context.only_tracked(node, {1})) return std::nullopt;
  return row_wise({state});
}

// What a cache of keys and values does in training: torch.cat((an empty tensor, x)).
std::optional<Rule> cat_with_nothing(const RuleContext& context, const Node& node) {
  std::optional<State> only;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    const graph::ConstantPtr constant = graph::constant_of(node.input(i));
    if (constant != nullptr && constant->numel() == 0) continue;
    if (only || context.state(node, i).kind != Kind::kRows) return std::nullopt;
    only = context.state(node, i);
  }
  if (!only) return std::nullopt;
  return row_wise({*only});
}

}  // namespace

bool is_elementwise(const Node& node) {
  // clang-format off
  static const std::set<std::string, std::less<>> names{
      "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp",
      "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf",
      "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow",
      "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Silu", "Sin", "Softplus", "Softsign", "Sqrt",
      "StopGradient", "Sub", "Tanh", "Where", "Xor"};
  // clang-format on
  return is_one_of(node, names);
}

std::optional<std::vector<int>> axes_of(const RuleContext& context, const Node& node) {
  const bool adds = node.is("Unsqueeze");
  const int rank = context.rank(adds ? node.output() : node.input(0));
  std::optional<std::vector<std::int64_t>> axes;
  if (node.is("Slice")) {
    axes = RuleContext::ints(node, 3);
  } else if (adds || node.is("Squeeze") || node.op_type().starts_with("Reduce")) {
    axes = RuleContext::ints(node, 1);
  } else {
    const bool splits = node.is("Split") || node.is("Concat") || node.is("Gather");
    axes = std::vector{node.int_attribute("axis", splits ? 0 : -1)};
  }
  if (!axes || axes->empty()) return std::nullopt;
  std::vector<int> positive;
  for (const std::int64_t axis : *axes) positive.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  if (!node.is("LayerNormalization")) return positive;
  std::vector<int> behind(static_cast<std::size_t>(rank - positive[0]));  // it and all behind it
  std::iota(behind.begin(), behind.end(), positive[0]);
  return behind;
}

std::optional<Rule> row_wise_rule(const RuleContext& context, Node& node) {
  static const std::set<std::string, std::less<>> along{
      "LayerNormalization", "LogSoftmax", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum",
      "ReduceSumSquare",    "Slice",      "Softmax",  "Split",     "Squeeze",    "Unsqueeze"};
  if (is_elementwise(node)) return elementwise(context, node);
  if (is_one_of(node, along)) return along_axes(context, node);
  if (node.is("Gather") && context.rank(node.input(1)) == 0) return along_axes(context, node);
  if (node.is("aten.cat.default", graph::kTorchDomain)) return cat_with_nothing(context, node);
  if (node.is("Concat")) return concat(context, node);
  if (node.is("Transpose")) return transpose(context, node);
  if (node.is("Reshape")) return reshape(context, node);
  if (node.is("Expand")) return expand(context, node);
  if (node.is("MatMul") || node.is("Gemm") || node.is("Linear", graph::kRekindleDomain))
    return product(context, node);
  if (node.is("Embedding", graph::kRekindleDomain)) return embedding(context, node);
  return std::nullopt;
}

}  // namespace rekindle::padding

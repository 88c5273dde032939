// Rules of attention: scores of queries and keys, masks on them, probabilities, and the values they weigh.
//
// As models write it out, where q, k and v are [B, H, L or S, E]:
//
//   scores        = MatMul(q, Transpose(k))            kScores
//   scores        = Mul(scores, scale)                 kScores
//   scores        = Add(scores, mask)                  kMasked; or Where(mask, scores, -inf)
//   probabilities = Softmax(scores)                    kProbabilities
//   y             = MatMul(Dropout(probabilities), v)  kRows again, those of the queries
//
// PyTorch's own, with dropout, sets what is -inf in all of a row to 0, before and after the Softmax.
#include <algorithm>

#include "src/padding/row_rules.h"

namespace rekindle::padding {
namespace {

using graph::Node;
using graph::Value;

Rule scoring(State out, int mask_input = -1) { return {{Use::kScoring, mask_input}, {std::move(out)}}; }

bool is_of_scores(const State& state) { return state.is_tracked() && state.kind != Kind::kRows; }

// [.., L, E] x [.., E, S]
std::optional<Rule> scores(const RuleContext& context, const Node& node) {
  const State &query = context.state(node, 0), &key = context.state(node, 1);
  const int rank = context.rank(node.output());
  const bool keys = key.kind == Kind::kRows && key.flat < 0 && key.length == rank - 1 && key.batch == 0;
  if (!keys || context.rank(node.input(0)) != rank || context.rank(node.input(1)) != rank)
    return std::nullopt;
  State out{Kind::kScores, key.batch};
  out.key = rank - 1;
  if (query.is_tracked()) {
    if (query.kind != Kind::kRows || query.length != rank - 2 || query.batch != key.batch)
      return std::nullopt;
    out.length = query.length;
  }
  return scoring(std::move(out));
}

// [.., L, S] x [.., S, E]
std::optional<Rule> weighted_values(const RuleContext& context, const Node& node) {
  const State &weight = context.state(node, 0), &value = context.state(node, 1);
  const int rank = context.rank(node.output());
  if (weight.kind != Kind::kProbabilities || value.kind != Kind::kRows || value.length != rank - 2 ||
      value.batch != weight.batch || context.rank(node.input(1)) != rank)
    return std::nullopt;
  const bool queries_are_rows = weight.length >= 0;
  context.found.attentions.push_back({&node, weight.masks, /*causal=*/false, queries_are_rows, rank});
  State out;
  if (queries_are_rows) out = {Kind::kRows, weight.batch, weight.length};
  return Rule{{Use::kAttention, -1}, {out}};
}

std::size_t add_mask(RowStates& found, Value* value, Mask::How how) {
  const auto same = [&](const Mask& mask) { return mask.value == value && mask.how == how; };
  const auto known = std::ranges::find_if(found.masks, same);
  if (known != found.masks.end()) return static_cast<std::size_t>(known - found.masks.begin());
  found.masks.push_back({value, how});
  return found.masks.size() - 1;
}

State with_mask(const RuleContext& context, State scores, Value* value, Mask::How how) {
  scores.kind = Kind::kMasked;
  const std::size_t mask = add_mask(context.found, value, how);
  if (std::ranges::find(scores.masks, mask) == scores.masks.end()) scores.masks.push_back(mask);
  return scores;
}

// An op on scores and one other value; `at` is the position of the scores.
struct WithScores {
  const RuleContext& context;
  const Node& node;
  std::size_t at;

  const State& scores() const { return context.state(node, at); }
  // Whether the input is not the same for all keys.
  bool varies(std::size_t input) const {
    const Value* value = node.input(input);
    const int axis = scores().key - (context.rank(node.output()) - context.rank(value));
    return axis >= 0 && !context.sizes.is_one(value, axis);
  }
  // Whether the input may be used as it is: it has no rows, or those of the queries.
  bool is_plain(std::size_t input) const {
    const State& state = context.state(node, input);
    if (!state.is_tracked()) return true;
    const int shift = context.rank(node.output()) - context.rank(node.input(input));
    return state.kind == Kind::kRows && state.flat < 0 && state.batch + shift == scores().batch &&
           state.length + shift == scores().length;
  }
};

std::optional<Rule> sum(const WithScores& op) {
  const std::size_t other = 1 - op.at;
  const State& scores = op.scores();
  if (scores.kind != Kind::kScores && scores.kind != Kind::kMasked) return std::nullopt;
  if (is_of_scores(op.context.state(op.node, other))) return std::nullopt;
  if (op.varies(other))
    return scoring(with_mask(op.context, scores, op.node.input(other), Mask::How::kAdded),
                   static_cast<int>(other));
  return op.is_plain(other) ? std::optional(scoring(scores)) : std::nullopt;
}

// Scales. What a mask has made low might not stay low.
std::optional<Rule> scale(const WithScores& op) {
  const std::size_t other = 1 - op.at;
  const State& scores = op.scores();
  if (op.node.is("Div") && op.at != 0) return std::nullopt;
  if (scores.kind != Kind::kScores && scores.kind != Kind::kProbabilities) return std::nullopt;
  return op.is_plain(other) && !op.varies(other) ? std::optional(scoring(scores)) : std::nullopt;
}

// Where(condition, scores, number) or Where(condition, number, scores).
std::optional<Rule> choice(const WithScores& op) {
  const State &scores = op.scores(), &condition = op.context.state(op.node, 0);
  const std::optional<double> number = RuleContext::number(op.node.input(op.at == 1 ? 2 : 1));
  if (op.at == 0 || !number) return std::nullopt;
  if (condition.kind == Kind::kAllMasked) {
    const bool same = condition.masks == scores.masks && scores.kind != Kind::kScores;
    return same ? std::optional(scoring(scores)) : std::nullopt;
  }
  if (is_of_scores(condition)) return std::nullopt;
  if (scores.kind == Kind::kProbabilities && *number == 0)
    return op.is_plain(0) || op.varies(0) ? std::optional(scoring(scores, op.varies(0) ? 0 : -1))
                                          : std::nullopt;
  const bool can_mask = scores.kind == Kind::kScores || scores.kind == Kind::kMasked;
  if (!can_mask || !(*number <= kHidden) || !op.varies(0)) return std::nullopt;
  const Mask::How how = op.at == 1 ? Mask::How::kKeeps : Mask::How::kHides;
  return scoring(with_mask(op.context, scores, op.node.input(0), how), 0);
}

std::optional<Rule> row_maximum(const RuleContext& context, const Node& node) {
  State state = context.state(node, 0);
  const std::optional<std::vector<int>> axes = axes_of(context, node);
  if (state.kind != Kind::kMasked || axes != std::vector{state.key} || node.int_attribute("keepdims", 1) == 0)
    return std::nullopt;
  state.kind = Kind::kRowMaximum;
  return scoring(std::move(state));
}

std::optional<Rule> all_masked(const RuleContext& context, const Node& node) {
  State state = context.state(node, 0);
  const std::optional<double> number = RuleContext::number(node.input(1));
  if (state.kind != Kind::kRowMaximum || !number || !(*number <= kHidden)) return std::nullopt;
  state.kind = Kind::kAllMasked;
  return scoring(std::move(state));
}

std::optional<Rule> probabilities(const RuleContext& context, const Node& node) {
  State state = context.state(node, 0);
  if (state.kind != Kind::kScores && state.kind != Kind::kMasked) return std::nullopt;
  if (axes_of(context, node) != std::vector{state.key}) return std::nullopt;
  state.kind = Kind::kProbabilities;
  return scoring(std::move(state));
}

std::optional<Rule> on_scores(const RuleContext& context, const Node& node, std::size_t at) {
  const WithScores op{context, node, at};
  if (context.rank(node.input(at)) != context.rank(node.output())) return std::nullopt;
  if (node.is("Add")) return sum(op);
  if (node.is("Mul") || node.is("Div")) return scale(op);
  if (node.is("Where")) return choice(op);
  if (at != 0) return std::nullopt;
  if (node.is("ReduceMax")) return row_maximum(context, node);
  if (node.is("Equal")) return all_masked(context, node);
  if (node.is("Softmax")) return probabilities(context, node);
  const State& state = op.scores();
  const bool floats =
      state.kind == Kind::kScores || state.kind == Kind::kMasked || state.kind == Kind::kProbabilities;
  if (floats && node.is("Cast") &&
      graph::is_differentiable(static_cast<graph::DType>(node.int_attribute("to", 0))))
    return scoring(state);
  if (state.kind == Kind::kProbabilities && node.is("Dropout"))
    return Rule{{Use::kScoring, -1}, {state, State()}};
  return std::nullopt;
}

// PyTorch's attention as one op: q, k, v and mask, [B, H, L or S, E].
std::optional<Rule> fused(const RuleContext& context, const Node& node) {
  const State &query = context.state(node, 0), &key = context.state(node, 1), &value = context.state(node, 2);
  const bool keys = key.kind == Kind::kRows && key.batch == 0 && key.length == 2 &&
                    value.kind == Kind::kRows && value.same_rows(key);
  if (!keys || (query.is_tracked() && (query.kind != Kind::kRows || !query.same_rows(key))))
    return std::nullopt;
  Attention attention{&node, {}, node.int_attribute("is_causal", 0) != 0, query.is_tracked()};
  if (attention.causal && !attention.queries_are_rows) return std::nullopt;
  if (Value* mask = node.input(3)) {
    const bool keeps = mask->type().dtype == graph::DType::kBool;
    attention.masks = {add_mask(context.found, mask, keeps ? Mask::How::kKeeps : Mask::How::kAdded)};
  }
  State out;
  if (attention.queries_are_rows) out = {Kind::kRows, 0, 2};
  context.found.attentions.push_back(std::move(attention));
  return Rule{{Use::kAttention, 3}, {out}};
}

}  // namespace

std::optional<Rule> attention_rule(const RuleContext& context, Node& node) {
  if (node.is("ScaledDotProductAttention", graph::kRekindleDomain)) return fused(context, node);
  if (!node.domain().empty()) return std::nullopt;
  if (node.is("MatMul")) {
    if (auto rule = weighted_values(context, node)) return rule;
    return scores(context, node);
  }
  for (std::size_t i = 0; i < node.inputs().size(); ++i) {
    if (is_of_scores(context.state(node, i))) {
      // Of two, as in Where(all masked, 0, scores), the rule is that of the scores.
      const bool condition = context.state(node, i).kind == Kind::kAllMasked && node.is("Where");
      if (!condition) return on_scores(context, node, i);
    }
  }
  return std::nullopt;
}

}  // namespace rekindle::padding

#include "src/padding/packed_nodes.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "src/graph/op_info.h"
#include "src/padding/row_rules.h"

namespace rekindle::padding {
namespace {

using graph::Attribute;
using graph::Node;
using graph::Value;

constexpr std::string_view kOwn = graph::kRekindleDomain;

// Which rows a value has: of each token, those that are needed, or those that losses and selections need.
enum class RowSet : std::uint8_t { kWhole, kNeeded, kCounted };

bool is_one_of(const Node& node, std::initializer_list<std::string_view> names) {
  return node.domain().empty() && std::ranges::find(names, node.op_type()) != names.end();
}

class Packing {
 public:
  Packing(const graph::Graph& forward, const TokenSizes& sizes, const RowStates& states,
          const RowNeeds& needs, std::size_t tokens)
      : sizes_(sizes), states_(states), needs_(needs), graph_(forward.clone(&clone_of_)) {
    for (const auto& [original, clone] : clone_of_) original_of_[clone] = original;
    tokens_ = graph_->inputs()[tokens];
    rows_[RowSet::kNeeded] = add_rows("rows");
    rows_[RowSet::kCounted] = add_rows("counted_rows");
    counted_among_needed_ = graph_->add_input("counted_rows_among_rows", rows_[RowSet::kCounted]->type());
    for (const RowSet set : {RowSet::kNeeded, RowSet::kCounted})
      counts_[set] = graph_->add_input("counts", {graph::DType::kBool, rows_[set]->type().dims});
  }

  Status run(const graph::Graph& forward, PackedGraph& packed) {
    for (const auto& original : forward.nodes()) {
      Node& node = *clone_of_.at(original->output())->producer();
      can_pack(*original) ? pack(*original, node) : unpack_inputs(node);
    }
    for (std::size_t i = 0; i < graph_->outputs().size(); ++i) {
      const Value* original = forward.outputs()[i];
      const bool leaves_out = state(original).is_tracked() && needs_.may_leave_out.contains(original);
      if (!leaves_out || original->producer() == nullptr) continue;
      ++packed.row_results;
      graph_->set_output(i, result_of(*original, graph_->outputs()[i]));
    }
    packed.needs_all = last_that_needs_all(forward, states_);
    if (products_ == 0)
      return unsupported("all rows are needed" + (packed.needs_all.empty() ? "" : " by " + packed.needs_all));
    packed.products = products_;
    packed.symbols = {rows_[RowSet::kNeeded]->name(), rows_[RowSet::kCounted]->name()};
    packed.graph = std::move(graph_);
    return {};
  }

 private:
  // An input of as many elements as its name, a symbol, says.
  Value* add_rows(const char* name) {
    Value* rows = graph_->add_input(name, {});
    rows->set_type({graph::DType::kInt64, std::vector<graph::Dim>{graph::Dim::named(rows->name())}});
    return rows;
  }

  RowSet set_of(const Value* value) const {
    const auto found = sets_.find(value);
    return found == sets_.end() ? RowSet::kWhole : found->second;
  }
  const State& state(const Value* original) const { return states_.of(original); }

  // Whether the node can work on rows alone, and nobody needs more of its outputs.
  bool can_pack(const Node& node) const {
    const Use use = states_.of(&node).use;
    if (use == Use::kLoss) return true;
    const auto fits = [&](const Value* output) {
      return state(output).leads() && needs_.may_leave_out.contains(output);
    };
    const bool works = use == Use::kRowWise && node.domain() != graph::kTorchDomain &&
                       !is_one_of(node, {"Transpose", "Expand"}) &&
                       std::ranges::all_of(node.outputs(), fits) &&
                       std::ranges::all_of(node.inputs(), [&](const Value* input) {
                         return !state(input).is_tracked() || state(input).leads();
                       });
    if (node.is("MatMul") && sizes_.rank(node.input(1)) != 2) return false;  // another one for each sequence
    return works && (!node.is("Reshape") || row_shape(node)) && (!node.is("Dropout") || is_plain(node));
  }

  // Whether a Dropout draws, by constants.
  static bool is_plain(const Node& node) {
    return graph::is_random(node) && node.input(2) != nullptr && graph::constant_of(node.input(2)) != nullptr;
  }

  // The sizes of a reshaped row, which have to be numbers.
  std::optional<std::vector<std::int64_t>> row_shape(const Node& node) const {
    std::vector<std::int64_t> shape{-1};
    for (int axis = state(node.output()).flat == 0 ? 1 : 2; axis < sizes_.rank(node.output()); ++axis) {
      const std::optional<std::int64_t> size = sizes_.constant(node.output(), axis);
      if (!size) return std::nullopt;
      shape.push_back(*size);
    }
    return shape;
  }

  void pack(const Node& original, Node& node) {
    const RowSet set = needs_.before_attention.contains(&original) ? RowSet::kNeeded : RowSet::kCounted;
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      if (Value* input = node.input(i)) node.set_input(i, row_operand(original, i, input, set, &node));
    }
    if (original.is("Reshape")) node.set_input(1, constant(*row_shape(original), &node));
    if (states_.of(&original).use == Use::kLoss) return;
    shift_axes(original, node);
    if (is_product(node)) ++products_;
    Node* made = original.is("Dropout") ? draw_for_rows(original, node, set) : &node;
    for (Value* output : made->outputs()) {
      output->set_type({output->type().dtype, std::nullopt});
      sets_[output] = set;
    }
  }

  static std::size_t main_input(const Node& node) { return node.is("Embedding", kOwn) ? 1 : 0; }

  // An input of a node that works on rows.
  Value* row_operand(const Node& node, std::size_t i, Value* input, RowSet set, Node* before) {
    const Value* original = node.input(i);
    if (graph::is_shape_only(node, i)) return input;
    if (state(original).is_tracked()) return packed(input, state(original).flat == 0, set, before);
    if (!is_elementwise(node) || state(node.output()).flat == 0) return input;
    // Broadcast: what has no dimension of rows stays, what has is packed, or loses dimensions of size 1.
    const int rank = sizes_.rank(original), batch = rank - sizes_.rank(node.output());
    if (batch + 1 < 0) return input;
    const bool varies =
        !sizes_.is_one(original, batch + 1) || (batch >= 0 && !sizes_.is_one(original, batch));
    if (varies) return packed(batch < 0 ? unsqueezed(input, before) : input, /*flat=*/false, set, before);
    return own(
        "", "Squeeze",
        {input, constant(batch < 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 1}, before)},
        {}, before, original->type().dtype);
  }

  // The rows of a set, of a value that has more.
  Value* packed(Value* value, bool flat, RowSet set, Node* before) {
    const RowSet have = set_of(value);
    if (have == set) return value;
    Value*& known = packed_[{value, set}];
    if (known != nullptr) return known;
    if (have == RowSet::kWhole) {
      known = own(kOwn, "PackRows", {value, rows_.at(set), tokens_}, {{"flat", std::int64_t{flat}}}, before,
                  value->type().dtype);
    } else {
      known = own("", "Gather", {value, counted_among_needed_}, {{"axis", std::int64_t{0}}}, before,
                  value->type().dtype);
    }
    sets_[known] = set;
    return known;
  }

  void unpack_inputs(Node& node) {
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      Value* input = node.input(i);
      if (input != nullptr && set_of(input) != RowSet::kWhole)
        node.set_input(i, unpacked(input, &node, /*is_result=*/false));
    }
  }

  Value* unpacked(Value* value, Node* before, bool is_result) {
    Value*& known = unpacked_[{value, is_result}];
    if (known != nullptr) return known;
    const Value* original = original_of_.at(value);
    known = unpack(value, set_of(value), state(original).flat == 0, is_result, before);
    return known;
  }

  // Of a result only rows that count: those that fill a set up have not seen all that they would see.
  Value* unpack(Value* value, RowSet set, bool flat, bool is_result, Node* before) {
    std::vector<Value*> inputs{value, rows_.at(set), tokens_};
    if (is_result) inputs.push_back(counts_.at(set));
    return own(kOwn, "UnpackRows", std::move(inputs), {{"flat", std::int64_t{flat}}}, before,
               value->type().dtype);
  }

  // A result, zero in the rows that it has not. Its gradient is not to say anything of these.
  Value* result_of(const Value& original, Value* value) {
    if (set_of(value) != RowSet::kWhole) return unpacked(value, nullptr, /*is_result=*/true);
    const State& rows = state(&original);
    const RowSet set =
        needs_.before_attention.contains(original.producer()) ? RowSet::kNeeded : RowSet::kCounted;
    const graph::DType dtype = original.type().dtype;
    std::vector<std::int64_t> there{rows.batch, rows.length},
        back(static_cast<std::size_t>(sizes_.rank(&original)));
    for (std::int64_t axis = 0; axis < sizes_.rank(&original); ++axis) {
      if (axis != rows.batch && axis != rows.length) there.push_back(axis);
    }
    if (rows.flat >= 0) there = {0};
    for (std::size_t i = 0; i < there.size(); ++i)
      back[static_cast<std::size_t>(there[i])] = static_cast<std::int64_t>(i);
    if (!rows.leads()) value = own("", "Transpose", {value}, {{"perm", there}}, nullptr, dtype);
    Value* taken = packed(value, rows.flat >= 0, set, nullptr);
    Value* result = unpack(taken, set, rows.flat >= 0, /*is_result=*/true, nullptr);
    return rows.leads() ? result : own("", "Transpose", {result}, {{"perm", back}}, nullptr, dtype);
  }

  // Dropout draws for all rows, as eager does, and keeps what it has drawn for these.
  Node* draw_for_rows(const Node& original, Node& node, RowSet set) {
    Node* made = graph_->create_node({"DropoutRows",
                                      std::string(kOwn),
                                      {node.input(0), node.input(1), rows_.at(set), tokens_},
                                      {},
                                      node.outputs().size()},
                                     &node);
    made->set_origin(node);
    for (std::size_t i = 0; i < node.outputs().size(); ++i) {
      Value *before = node.output(i), *after = made->output(i);
      after->set_type(before->type());
      original_of_[after] = original.output(i);
      graph_->replace_all_uses(before, after);
    }
    graph_->erase_node(&node);
    return made;
  }

  // Two dimensions of rows are one now.
  void shift_axes(const Node& original, Node& node) {
    if (state(original.input(main_input(original))).flat == 0) return;
    const auto shifted = [](std::int64_t axis) { return axis > 0 ? axis - 1 : axis; };
    if (node.attribute("axis") != nullptr) node.set_attribute("axis", shifted(node.int_attribute("axis", 0)));
    const std::size_t at = node.is("Slice") ? 3 : 1;
    const bool has_axes =
        is_one_of(node, {"Slice", "Squeeze", "Unsqueeze"}) || node.op_type().starts_with("Reduce");
    if (!has_axes) return;
    std::vector<std::int64_t> axes = *RuleContext::ints(original, at);
    std::ranges::transform(axes, axes.begin(), shifted);
    node.set_input(at, constant(axes, &node));
  }

  Value* constant(const std::vector<std::int64_t>& values, Node* before) {
    return graph_->create_constant(
        graph::make_int64_constant(values, {static_cast<std::int64_t>(values.size())}), before);
  }

  Value* unsqueezed(Value* value, Node* before) {
    Value*& known = unsqueezed_[value];
    if (known == nullptr)
      known = own("", "Unsqueeze", {value, constant({0}, before)}, {}, before, value->type().dtype);
    return known;
  }

  Value* own(std::string_view domain, std::string op, std::vector<Value*> inputs,
             std::map<std::string, Attribute, std::less<>> attributes, Node* before, graph::DType dtype) {
    Node* node = graph_->create_node(
        {std::move(op), std::string(domain), std::move(inputs), std::move(attributes), 1}, before);
    node->output()->set_type({dtype, std::nullopt});
    return node->output();
  }

  const TokenSizes& sizes_;
  const RowStates& states_;
  const RowNeeds& needs_;
  std::unordered_map<const Value*, Value*> clone_of_;
  std::unordered_map<const Value*, const Value*> original_of_;
  std::unique_ptr<graph::Graph> graph_;
  Value *tokens_ = nullptr, *counted_among_needed_ = nullptr;
  std::map<RowSet, Value*> rows_, counts_;  // counts: which of the rows do not only fill the set up
  std::unordered_map<const Value*, RowSet> sets_;
  std::map<std::pair<const Value*, RowSet>, Value*> packed_;
  std::map<std::pair<const Value*, bool>, Value*> unpacked_;
  std::unordered_map<const Value*, Value*> unsqueezed_;
  std::size_t products_ = 0;
};

}  // namespace

bool is_product(const Node& node) {
  return is_one_of(node, {"MatMul", "Gemm", "Conv"}) || node.is("Linear", kOwn) ||
         node.is("ScaledDotProductAttention", kOwn);
}

Status pack_nodes(const graph::Graph& forward, const TokenSizes& sizes, const RowStates& states,
                  const RowNeeds& needs, PackedGraph& packed) {
  return Packing(forward, sizes, states, needs, packed.tokens).run(forward, packed);
}

}  // namespace rekindle::padding

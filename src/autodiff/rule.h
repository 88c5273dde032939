// Gradient rules: one small function per op, from the cotangents of a node's outputs to those of its inputs.
//
// A rule only emits nodes: ONNX ops or the rekindle ops of docs/ir.md. The walk (gradient.cc) does what all
// rules have in common: it decides what runs, accumulates, sums over broadcast dimensions, checks dtypes and
// prunes. Prefer rules that read a node's outputs (or nothing) to rules that read its inputs: what a rule
// reads is saved for the backward pass.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/concat.h"
#include "src/base/registry.h"
#include "src/base/result.h"
#include "src/graph/graph.h"
#include "src/graph/op_info.h"

namespace rekindle::autodiff {

using graph::Attribute;
using graph::Node;
using graph::TensorType;
using graph::Value;
using Attributes = std::map<std::string, Attribute, std::less<>>;

// What a rule sees of one node, and how it emits nodes and hands back its results.
class RuleContext {
 public:
  // `dy[i]` is null where nobody gave a cotangent; at least one is given
  // and at least one input needs its gradient.
  RuleContext(graph::Graph& graph, Node& node, std::vector<Value*> dy, std::vector<bool> needs);

  const Node& node() const { return node_; }
  // Input i; null when it is absent.
  Value* x(std::size_t i = 0) const { return node_.input(i); }
  // Output i; an optional output that the node does not have yet is added to it.
  Value* y(std::size_t i = 0);
  // The cotangent of output i; null when nobody gave it (never for a node with one output).
  Value* dy(std::size_t i = 0) const { return i < dy_.size() ? dy_[i] : nullptr; }
  // The cotangent of output i, or zeros.
  Value* dy_or_zeros(std::size_t i);
  // Whether the gradient of input i is wanted. False for absent inputs and for dtypes without gradients.
  bool needs(std::size_t i) const { return i < needs_.size() && needs_[i]; }

  // Emits a node of one output and returns the output. A null input is an absent optional one.
  Value* op(std::string_view op_type, std::vector<Value*> inputs, Attributes attributes = {});
  Value* rekindle_op(std::string_view op_type, std::vector<Value*> inputs, Attributes attributes = {});
  // Emits a node of several outputs and returns them.
  std::vector<Value*> rekindle_op(std::string_view op_type, std::vector<Value*> inputs, Attributes attributes,
                                  std::size_t outputs);
  // A scalar of the dtype of `like`, which is used for nothing else.
  Value* scalar(double value, Value* like);
  // A one-dimensional int64 constant.
  Value* int64s(const std::vector<std::int64_t>& values);

  // Tells the session a fact about the node itself.
  void set_attribute(std::string name, Attribute value) {
    node_.set_attribute(std::move(name), std::move(value));
  }

  // The gradient of input i, in its shape.
  void set_dx(std::size_t i, Value* dx);
  // The same, still of the broadcast shape `type` (of output 0): the walk sums it to the shape of input i.
  void set_unreduced_dx(std::size_t i, Value* dx);
  void set_unreduced_dx(std::size_t i, Value* dx, TensorType type);

  // "the gradient of Pad ... is not supported: <reason>".
  Error unsupported(std::string_view reason) const;

  struct InputGradient {
    Value* value = nullptr;
    std::optional<TensorType> unreduced;  // the type before summing; nullopt: already in the input's shape
  };
  // What the rule set, one entry per input.
  const std::vector<InputGradient>& dx() const { return dx_; }

 private:
  Node* emit(std::string_view domain, std::string_view op_type, std::vector<Value*> inputs,
             Attributes attributes, std::size_t outputs);

  graph::Graph& graph_;
  Node& node_;
  std::vector<Value*> dy_;
  std::vector<bool> needs_;
  std::vector<InputGradient> dx_;
};

// Null for an op whose outputs do not depend differentiably on its inputs (REKINDLE_NO_GRADIENT).
using Rule = Status (*)(RuleContext& context);

// Keyed by graph::qualified_name(). An op that is not there has no rule, which
// is an error when its gradient is needed.
Registry<Rule>& rules();
// The rule for a node's op; null when there is none. Those of the torch domain that have none share one.
const Rule* find_rule(const Node& node);

// The rank of a value, when it is known.
std::optional<std::size_t> rank_of(const Value* value);

struct RuleRegistrar {
  RuleRegistrar(std::string_view domain, std::string_view op_type, Rule rule) {
    rules().add(graph::qualified_name(domain, op_type), rule);
  }
};

// REKINDLE_GRADIENT("", "Add", add_gradient) at namespace scope, beside the rule.
#define REKINDLE_GRADIENT(domain, op_type, rule)                                                          \
  const ::rekindle::autodiff::RuleRegistrar REKINDLE_CONCAT(rekindle_rule_, __COUNTER__)(domain, op_type, \
                                                                                         rule)
#define REKINDLE_NO_GRADIENT(domain, op_type) REKINDLE_GRADIENT(domain, op_type, nullptr)

}  // namespace rekindle::autodiff

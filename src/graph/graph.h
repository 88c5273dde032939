// The IR. A Graph owns its Nodes and Values; a Node is one op application, a Value one SSA tensor.
//
// Lifetime: Nodes and Values live as long as their Graph, or until erase_node. Raw pointers never own. A
// Graph is neither copied nor moved (nodes point into it); clone() makes an independent one. Not thread-safe
// while mutated; a const Graph may be read from any thread. Nodes are kept in a topological order: a value is
// defined before it is used.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/graph/attribute.h"
#include "src/graph/type.h"

namespace rekindle::graph {

class Graph;
class Node;

// Domain of Rekindle's own ops. ONNX's own domain is "" (never "ai.onnx").
inline constexpr std::string_view kRekindleDomain = "rekindle";
// Version of the rekindle domain's op definitions; stored with each graph.
inline constexpr std::int64_t kRekindleOpset = 1;
// Domain of the operators of PyTorch's dispatcher (src/graph/torch_node.h), and the version of their form.
inline constexpr std::string_view kTorchDomain = "torch";
inline constexpr std::int64_t kTorchOpset = 1;

// One use of a value: `node->inputs()[index]`.
struct Use {
  Node* node;
  std::size_t index;
  bool operator==(const Use&) const = default;
};

class Value {
 public:
  const std::string& name() const { return name_; }
  const TensorType& type() const { return type_; }
  void set_type(TensorType type) { type_ = std::move(type); }
  // The defining node; null for a graph input.
  Node* producer() const { return producer_; }
  // Position among the producer's outputs, or among the graph's inputs.
  std::size_t index() const { return index_; }
  // Uses by nodes, each input position listed once; being a graph output is not a use.
  const std::vector<Use>& uses() const { return uses_; }
  // Dense number, unique in the graph over its lifetime.
  std::uint32_t id() const { return id_; }

 private:
  friend class Graph;
  friend class Node;
  std::string name_;
  TensorType type_;
  Node* producer_ = nullptr;
  std::size_t index_ = 0;
  std::uint32_t id_ = 0;
  std::vector<Use> uses_;
};

class Node {
 public:
  const std::string& op_type() const { return op_type_; }
  const std::string& domain() const { return domain_; }
  bool is(std::string_view op_type, std::string_view domain = "") const {
    return op_type_ == op_type && domain_ == domain;
  }
  // A null input is an absent optional one. Trailing absent inputs are dropped.
  const std::vector<Value*>& inputs() const { return inputs_; }
  // Null when absent or past the end.
  Value* input(std::size_t i) const { return i < inputs_.size() ? inputs_[i] : nullptr; }
  void set_input(std::size_t i, Value* value);
  const std::vector<Value*>& outputs() const { return outputs_; }
  Value* output(std::size_t i = 0) const { return outputs_[i]; }

  const std::map<std::string, Attribute, std::less<>>& attributes() const { return attributes_; }
  void set_attribute(std::string name, Attribute value) { attributes_[std::move(name)] = std::move(value); }
  // Null when there is none of that name.
  const Attribute* attribute(std::string_view name) const;
  // The attribute, or `fallback` when it is absent. Precondition: present attributes have that type.
  std::int64_t int_attribute(std::string_view name, std::int64_t fallback) const;
  double float_attribute(std::string_view name, double fallback) const;
  std::string string_attribute(std::string_view name, std::string_view fallback) const;
  std::vector<std::int64_t> ints_attribute(std::string_view name, std::vector<std::int64_t> fallback) const;

  // Where the node came from ("model.py:12 Block.forward"), for error
  // messages; may be empty. Not part of equality.
  const std::string& source() const { return source_; }
  void set_source(std::string source) { source_ = std::move(source); }
  // Which of the user's activation checkpoints the node is in (the outermost one), from 1; 0: in none. A wish
  // to compute the node again rather than hold what it makes; not part of equality.
  std::uint32_t checkpoint() const { return checkpoint_; }
  void set_checkpoint(std::uint32_t number) { checkpoint_ = number; }
  // Takes over the source and the checkpoint of the node that this one stands for.
  void set_origin(const Node& node) {
    source_ = node.source_;
    checkpoint_ = node.checkpoint_;
  }

 private:
  friend class Graph;
  std::string op_type_, domain_, source_;
  std::uint32_t checkpoint_ = 0;
  std::map<std::string, Attribute, std::less<>> attributes_;
  std::vector<Value*> inputs_, outputs_;
  std::list<std::unique_ptr<Node>>::iterator position_;
};

// What create_node needs besides the op.
struct NodeSpec {
  std::string op_type = {};
  std::string domain = {};  // "" is ONNX's own
  std::vector<Value*> inputs = {};
  std::map<std::string, Attribute, std::less<>> attributes = {};
  std::size_t outputs = 1;
};

class Graph {
 public:
  explicit Graph(std::string name = "graph") : name_(std::move(name)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }
  // Opset version per domain; "" is ONNX's own.
  const std::map<std::string, std::int64_t, std::less<>>& opsets() const { return opsets_; }
  void set_opset(std::string domain, std::int64_t version) { opsets_[std::move(domain)] = version; }

  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  // Nodes in topological order.
  const std::list<std::unique_ptr<Node>>& nodes() const { return nodes_; }

  // A fresh name is made when `name` is empty or taken.
  Value* add_input(std::string name, TensorType type);
  // Precondition: the input has no uses.
  void erase_input(std::size_t index);
  void add_output(Value* value) { outputs_.push_back(value); }
  void set_output(std::size_t index, Value* value) { outputs_[index] = value; }
  void erase_output(std::size_t index) {
    outputs_.erase(outputs_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // Appends a node, or inserts it before `before`. Outputs get fresh names and unknown types.
  Node* create_node(NodeSpec spec, Node* before = nullptr);
  // Appends one more output to a node (an optional output that turned out to be needed); the output.
  Value* add_node_output(Node* node);
  // A Constant node (op_type "Constant", attribute "value"), before `before` or at the end; its output.
  Value* create_constant(ConstantPtr constant, Node* before = nullptr);
  // Renames; a fresh name is made when it is taken.
  void rename(Value* value, std::string name);
  // Renames; another value that has the name gets a fresh one.
  void claim_name(Value* value, std::string name);
  // Every node input and graph output that is `from` becomes `to`.
  void replace_all_uses(Value* from, Value* to);
  // Precondition: no output has uses or is a graph output.
  void erase_node(Node* node);
  // True when `value` is listed in outputs().
  bool is_output(const Value* value) const;
  // Null when no value has that name.
  Value* find_value(std::string_view name) const;

  // An independent copy; `map`, when given, receives old value -> new value.
  std::unique_ptr<Graph> clone(std::unordered_map<const Value*, Value*>* map = nullptr) const;

 private:
  Value* new_value(std::string name, TensorType type);
  void delete_value(Value* value);
  std::string fresh_name(std::string wanted) const;

  std::string name_;
  std::map<std::string, std::int64_t, std::less<>> opsets_;
  std::vector<Value*> inputs_, outputs_;
  std::list<std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Value>> values_;
  std::unordered_map<std::string, Value*> by_name_;
  std::uint32_t next_id_ = 0;
};

// The constant a value is known to be: it is produced by a Constant node. Null otherwise.
ConstantPtr constant_of(const Value* value);

}  // namespace rekindle::graph

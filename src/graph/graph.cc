#include "src/graph/graph.h"

#include <algorithm>
#include <cassert>

namespace rekindle::graph {

void Node::set_input(std::size_t i, Value* value) {
  if (i >= inputs_.size()) inputs_.resize(i + 1, nullptr);
  if (Value* old = inputs_[i]; old != nullptr) std::erase(old->uses_, Use{this, i});
  inputs_[i] = value;
  if (value != nullptr) value->uses_.push_back({this, i});
  while (!inputs_.empty() && inputs_.back() == nullptr) inputs_.pop_back();
}

const Attribute* Node::attribute(std::string_view name) const {
  const auto position = attributes_.find(name);
  return position == attributes_.end() ? nullptr : &position->second;
}

std::int64_t Node::int_attribute(std::string_view name, std::int64_t fallback) const {
  const Attribute* found = attribute(name);
  return found == nullptr ? fallback : std::get<std::int64_t>(*found);
}

double Node::float_attribute(std::string_view name, double fallback) const {
  const Attribute* found = attribute(name);
  return found == nullptr ? fallback : std::get<double>(*found);
}

std::string Node::string_attribute(std::string_view name, std::string_view fallback) const {
  const Attribute* found = attribute(name);
  return found == nullptr ? std::string(fallback) : std::get<std::string>(*found);
}

std::vector<std::int64_t> Node::ints_attribute(std::string_view name,
                                               std::vector<std::int64_t> fallback) const {
  const Attribute* found = attribute(name);
  return found == nullptr ? std::move(fallback) : std::get<std::vector<std::int64_t>>(*found);
}

std::string Graph::fresh_name(std::string wanted) const {
  if (!wanted.empty() && !by_name_.contains(wanted)) return wanted;
  const std::string stem = wanted.empty() ? "v" : wanted + "_";
  // Ids grow with every value, so that the first attempt almost always succeeds.
  for (std::uint32_t number = next_id_;; ++number) {
    std::string name = stem + std::to_string(number);
    if (!by_name_.contains(name)) return name;
  }
}

Value* Graph::new_value(std::string name, TensorType type) {
  auto value = std::make_unique<Value>();
  value->name_ = fresh_name(std::move(name));
  value->type_ = std::move(type);
  value->id_ = next_id_++;
  Value* raw = value.get();
  by_name_.emplace(raw->name_, raw);
  values_.emplace(raw->id_, std::move(value));
  return raw;
}

void Graph::delete_value(Value* value) {
  assert(value->uses_.empty() && !is_output(value));
  by_name_.erase(value->name_);
  values_.erase(value->id_);
}

Value* Graph::add_input(std::string name, TensorType type) {
  Value* value = new_value(std::move(name), std::move(type));
  value->index_ = inputs_.size();
  inputs_.push_back(value);
  return value;
}

void Graph::erase_input(std::size_t index) {
  delete_value(inputs_[index]);
  inputs_.erase(inputs_.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t i = index; i < inputs_.size(); ++i) inputs_[i]->index_ = i;
}

Node* Graph::create_node(NodeSpec spec, Node* before) {
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->op_type_ = std::move(spec.op_type);
  node->domain_ = std::move(spec.domain);
  node->attributes_ = std::move(spec.attributes);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i] != nullptr) node->set_input(i, spec.inputs[i]);
  }
  for (std::size_t i = 0; i < spec.outputs; ++i) add_node_output(node);
  node->position_ = nodes_.insert(before == nullptr ? nodes_.end() : before->position_, std::move(owned));
  return node;
}

Value* Graph::add_node_output(Node* node) {
  Value* value = new_value("", {});
  value->producer_ = node;
  value->index_ = node->outputs_.size();
  node->outputs_.push_back(value);
  return value;
}

Value* Graph::create_constant(ConstantPtr constant, Node* before) {
  TensorType type = type_of(*constant);
  Node* node = create_node(
      {.op_type = "Constant", .domain = "", .inputs = {}, .attributes = {{"value", std::move(constant)}}},
      before);
  node->output()->set_type(std::move(type));
  return node->output();
}

void Graph::rename(Value* value, std::string name) {
  if (name == value->name_) return;
  by_name_.erase(value->name_);
  value->name_ = fresh_name(std::move(name));
  by_name_.emplace(value->name_, value);
}

void Graph::claim_name(Value* value, std::string name) {
  if (Value* other = find_value(name); other != nullptr && other != value) {
    const std::string fresh = fresh_name("");  // found while the old name is still taken
    rename(other, fresh);
  }
  rename(value, std::move(name));
}

void Graph::replace_all_uses(Value* from, Value* to) {
  if (from == to) return;
  const std::vector<Use> uses = from->uses_;  // set_input changes the original
  for (const Use& use : uses) use.node->set_input(use.index, to);
  std::ranges::replace(outputs_, from, to);
}

void Graph::erase_node(Node* node) {
  for (Value* output : node->outputs_) delete_value(output);
  for (std::size_t i = 0; i < node->inputs_.size(); ++i) {
    if (Value* input = node->inputs_[i]; input != nullptr) std::erase(input->uses_, Use{node, i});
  }
  nodes_.erase(node->position_);
}

bool Graph::is_output(const Value* value) const {
  return std::ranges::find(outputs_, value) != outputs_.end();
}

Value* Graph::find_value(std::string_view name) const {
  const auto position = by_name_.find(std::string(name));
  return position == by_name_.end() ? nullptr : position->second;
}

std::unique_ptr<Graph> Graph::clone(std::unordered_map<const Value*, Value*>* map) const {
  auto copy = std::make_unique<Graph>(name_);
  copy->opsets_ = opsets_;
  std::unordered_map<const Value*, Value*> local;
  std::unordered_map<const Value*, Value*>& copies = map == nullptr ? local : *map;
  for (const Value* input : inputs_) copies[input] = copy->add_input(input->name(), input->type());
  for (const auto& node : nodes_) {
    NodeSpec spec{node->op_type(), node->domain(), {}, node->attributes(), 0};
    for (const Value* input : node->inputs())
      spec.inputs.push_back(input == nullptr ? nullptr : copies.at(input));
    Node* node_copy = copy->create_node(std::move(spec));
    node_copy->set_origin(*node);
    for (const Value* output : node->outputs()) {
      // Made with its name, so that a fresh name can never take one that comes later.
      Value* output_copy = copy->new_value(output->name(), output->type());
      output_copy->producer_ = node_copy;
      output_copy->index_ = node_copy->outputs_.size();
      node_copy->outputs_.push_back(output_copy);
      copies[output] = output_copy;
    }
  }
  for (const Value* output : outputs_) copy->add_output(copies.at(output));
  return copy;
}

ConstantPtr constant_of(const Value* value) {
  if (value == nullptr || value->producer() == nullptr || !value->producer()->is("Constant")) return nullptr;
  const Attribute* attribute = value->producer()->attribute("value");
  if (attribute == nullptr || !std::holds_alternative<ConstantPtr>(*attribute)) return nullptr;
  return std::get<ConstantPtr>(*attribute);
}

}  // namespace rekindle::graph

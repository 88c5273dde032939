// GraphLowering: the stage lower_graph() of a plan. Internal to session/plan.
#pragma once

#include <unordered_map>
#include <vector>

#include "session/plan/stages.h"

namespace rekindle::session {

class GraphLowering {
 public:
  explicit GraphLowering(const PlanRequest& request) : request_(request) {}
  Lowered run();

 private:
  SlotId slot_of(const graph::Value* value) const {
    return value == nullptr ? kAbsentSlot : slots_of_values_.at(value);
  }
  const Slot& slot_at(const graph::Value* value) const { return programs_.slots[slot_of(value)]; }
  void define(const graph::Value* value, SlotId slot);
  void define_constant(const graph::Value* value, at::Tensor tensor);

  void add_inputs();
  void add_cotangents();
  void lower_nodes(const std::vector<const graph::Node*>& nodes, Program& program);
  void lower_node(const graph::Node& node, Program& program);
  bool is_exclusive(const graph::Value* value) const;
  // Each returns whether the node needs no more than that.
  bool keep_instead(const graph::Node& node);
  bool fold(const graph::Node& node, const Lowering& lowering, const std::vector<SlotId>& inputs);
  bool add_views(const graph::Node& node, Lowering& lowering, SlotId base);

  void add_instruction(const graph::Node& node, Lowering lowering, std::vector<SlotId> inputs,
                       Program& program);
  SlotId add_output(const Lowering& lowering, std::size_t i, const graph::Value* value);
  void own_memory(const std::vector<SlotId>& slots);

  // In deferral.cc: nodes that are lowered when they run.
  bool reads_open(const graph::Node& node) const;
  void defer(const graph::Node& node, Lower lower, Program& program);
  SlotId input_of_deferred(const graph::Node& node, std::size_t i, at::Tensor& meta) const;

  const PlanRequest& request_;
  Programs programs_;
  std::unordered_map<const graph::Value*, SlotId> slots_of_values_;
  std::unordered_map<const graph::Value*, SlotId> layouts_of_values_;  // of open ones
};

}  // namespace rekindle::session

// PlanBuilder: the steps by which make_plan() turns a joint graph and input layouts into a Plan.
//
//   lower      each node, in order: outputs known now become constants, views become slots, the rest become
//              instructions; what reads values of open sizes is deferred (session/run/deferred.h)
//   results    outputs and gradients get fresh memory of their own; what cannot is copied
//   prune      instructions whose results nobody reads
//   place      last uses, in-place takeovers, arena offsets
//   deliver    after which instruction of the backward each gradient can leave
#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "session/plan/memory_planner.h"
#include "session/plan/plan.h"
#include "src/autodiff/partition.h"

namespace rekindle::session {

class PlanBuilder {
 public:
  explicit PlanBuilder(const PlanRequest& request);
  // Throws c10::Error naming the node.
  std::shared_ptr<const Plan> build();

 private:
  SlotId add_slot(Storage storage, at::Tensor meta, const graph::Value* value);
  SlotId slot_of(const graph::Value* value) const;
  SlotId root_of(SlotId slot) const;

  void add_inputs();
  void add_cotangents();
  void lower_nodes(const std::vector<const graph::Node*>& nodes, Program& program);
  void lower_node(const graph::Node& node, Program& program);
  bool reads_open(const graph::Node& node) const;
  void defer(const graph::Node& node, Lower lower, Program& program);
  SlotId add_open(const graph::Value* value);
  bool is_exclusive(const graph::Value* value) const;
  bool is_kept(const Slot& slot) const;
  bool keep_instead(const graph::Node& node);
  bool fold(const graph::Node& node, const Lowering& lowering, const std::vector<SlotId>& inputs);
  void add_instruction(const graph::Node& node, Lowering lowering, std::vector<SlotId> inputs,
                       Program& program);
  SlotId add_output(const Lowering& lowering, std::size_t i, const graph::Value* value);
  void own_memory(const std::vector<SlotId>& slots);
  void define(const graph::Value* value, SlotId slot);
  void define_constant(const graph::Value* value, at::Tensor tensor);

  // One layout for each result.
  void claim_results(Program& program, const std::vector<const graph::Value*>& results,
                     const std::vector<ResultLayout>& layouts);
  SlotId claim_open(Program& program, SlotId result, const ResultLayout& layout);
  void copy_result(Program& program, SlotId& result, const Sizes& strides);
  std::vector<ResultLayout> output_layouts() const;
  std::vector<ResultLayout> gradient_layouts() const;
  void prune();
  void place();
  std::vector<Instruction*> timeline();
  std::vector<std::int32_t> last_uses(const std::vector<Instruction*>& timeline);
  bool may_take_over(std::size_t position, const Instruction& instruction, SlotId input,
                     const std::vector<std::int32_t>& last) const;
  void take_over_memory(std::size_t position, const Instruction& instruction,
                        std::vector<std::int32_t>& last);
  void find_saved();
  // in_backward: slots that the backward writes; seen: those that are in `saved`.
  void find_kept(std::vector<bool> in_backward, std::vector<bool> seen);
  void find_absent();
  std::vector<std::size_t> gradient_ends() const;
  void find_deliveries();
  void release_early();

  const PlanRequest& request_;
  std::shared_ptr<Plan> plan_;
  autodiff::Partition partition_;
  std::unordered_map<const graph::Value*, SlotId> slots_of_values_;
  std::unordered_map<const graph::Value*, SlotId> layouts_of_values_;  // of open ones
  std::unordered_set<SlotId> claimed_;                                 // roots that already are a result
  std::vector<SlotId> buffer_of_;      // per slot: the root whose arena place it shares
  std::unordered_set<SlotId> shared_;  // roots whose arena place another slot shares
  struct Writer {
    Instruction* instruction = nullptr;
    std::int32_t position = 0;  // in the timeline
  };
  std::unordered_map<SlotId, Writer> writer_;
};

}  // namespace rekindle::session

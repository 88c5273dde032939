#include "session/autograd/arrivals.h"

#include <torch/csrc/autograd/graph_task.h>

#include <mutex>
#include <utility>

#include "session/autograd/backward_chain.h"

namespace rekindle::session {

using torch::autograd::variable_list;

namespace {

// Whether the graph task of this thread runs a node, sooner or later.
bool is_to_run(torch::autograd::Node* node) {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr || !nodes->contains(node)) return false;
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (asked == nullptr || asked->empty()) return true;
  const auto known = asked->find(node);
  return known != asked->end() && known->second.needed_;
}

}  // namespace

void Arrivals::add_chain(const std::shared_ptr<BackwardNode>& head) { chains_.push_back(head); }

void Arrivals::add_result(const std::shared_ptr<torch::autograd::Node>& node) { results_.push_back(node); }

Arrivals::Task& Arrivals::task() {
  Task& task = tasks_[torch::autograd::get_current_graph_task_id()];
  task.arrived.resize(results_.size());
  task.begun.resize(chains_.size());
  task.met.resize(chains_.size());
  return task;
}

void Arrivals::arrive(std::size_t result, const at::Tensor& cotangent) {
  const std::lock_guard lock(mutex_);
  Task& now = task();
  now.arrived[result] = true;
  if (cotangent.defined()) now.cotangents.emplace(result, cotangent.getIntrusivePtr());
}

std::optional<Arrivals::Beginning> Arrivals::begin(std::size_t chain, variable_list&& cotangents) {
  std::vector<std::shared_ptr<BackwardNode>> heads;  // as these are let go without the lock
  std::vector<std::shared_ptr<torch::autograd::Node>> results;
  for (const auto& each : chains_) heads.push_back(each.lock());
  for (const auto& each : results_) results.push_back(each.lock());
  const std::lock_guard lock(mutex_);
  Task& now = task();
  std::optional<Beginning> beginning;
  if (!now.begun[chain]) beginning = begin_at(now, chain, std::move(cotangents), heads, results);
  now.met[chain] = true;
  bool ends = true;
  for (std::size_t i = 0; i < heads.size(); ++i) ends = ends && (now.met[i] || !is_to_run(heads[i].get()));
  if (ends) tasks_.erase(torch::autograd::get_current_graph_task_id());
  return beginning;
}

Arrivals::Beginning Arrivals::begin_at(Task& now, std::size_t chain, variable_list&& cotangents,
                                       std::span<const std::shared_ptr<BackwardNode>> heads,
                                       std::span<const std::shared_ptr<torch::autograd::Node>> results) {
  Beginning beginning{{}, std::move(cotangents), {}, true};
  bool is_whole = true;
  for (std::size_t i = 0; i < results.size(); ++i)
    is_whole = is_whole && (now.arrived[i] || !is_to_run(results[i].get()));
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (now.begun[i] || !is_to_run(heads[i].get())) continue;
    if (i != chain && !is_whole) {
      beginning.last = false;
      continue;
    }
    now.begun[i] = true;
    beginning.chains.push_back(i);
    heads[i]->add_wanted(beginning.wanted);
  }
  if (!is_whole) return beginning;
  for (const auto& [result, cotangent] : now.cotangents) {
    at::Tensor& given = beginning.cotangents.at(result);
    if (!given.defined()) given = at::Tensor(cotangent.lock());  // gone where no chain needs it any more
  }
  return beginning;
}

}  // namespace rekindle::session

// Which gradients a graph task asks for of one forward whose results do not all lead to the same inputs.
//
// An example: `return self.a(x), self.b(z)`. A backward of the second result is none of `a` and x: their
// hooks do not run, and nothing upstream of x does. So the gradients of a and x have a chain of nodes of
// their own (backward_chain.h), to which the first result leads, and those of b and z another. A backward of
// both results still is one run: the chain that begins first waits for no other, and begins for all.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/base/mutex.h"

namespace rekindle::session {

class BackwardNode;

class Arrivals {
 public:
  using Flags = std::vector<bool>;

  // One run of a graph task.
  struct Beginning {
    std::vector<std::size_t> chains;            // those that it is for
    torch::autograd::variable_list cotangents;  // undefined where there is none
    Flags wanted;                               // gradients, by place
    bool last = true;                           // no other run of this task follows
  };

  // Notes what begins the chain of the next number.
  void add_chain(const std::shared_ptr<BackwardNode>& head);
  // Notes the node of the result of the next number.
  void add_result(const std::shared_ptr<torch::autograd::Node>& node);

  // Notes what has come to a result in the graph task of this thread, also where that is nothing. Whoever
  // gets it next keeps it alive.
  void arrive(std::size_t result, const at::Tensor& cotangent);
  // Returns the run that a chain with these cotangents has to begin; nothing if another chain has begun it.
  // One run serves all chains of the task, unless something is still to come to one of the results (PyTorch's
  // engine knows no order between nodes that several threads have recorded): then it serves this chain alone.
  std::optional<Beginning> begin(std::size_t chain, torch::autograd::variable_list&& cotangents);

 private:
  struct Task {
    Flags arrived;     // per result
    Flags begun, met;  // per chain: whether it has begun, whether its first node has run
    std::map<std::size_t, c10::weak_intrusive_ptr<c10::TensorImpl>>
        cotangents;  // of results that were given one
  };
  Task& task();
  Beginning begin_at(Task& now, std::size_t chain, torch::autograd::variable_list&& cotangents,
                     std::span<const std::shared_ptr<BackwardNode>> heads,
                     std::span<const std::shared_ptr<torch::autograd::Node>> results);

  std::vector<std::weak_ptr<BackwardNode>> chains_;
  std::vector<std::weak_ptr<torch::autograd::Node>> results_;
  Mutex mutex_;  // guards what is below
  std::map<int, Task> tasks_;
};

}  // namespace rekindle::session

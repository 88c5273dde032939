// Tape: what PyTorch recorded while it ran one operator, for the operator's
// backward. Internal to the session room.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "session/lower/torch_operator.h"

namespace rekindle::session {

// Keeps alive what the recorded derivatives saved, and nothing else: the inputs are edges without tensors.
// Usable any number of times, from any thread; freed with its last owner.
class Tape {
 public:
  // Runs `op` under autograd and returns its results, detached; gradients are recorded for inputs
  // `tracked` (positions). The inputs share their version counters with what is saved, so an edit
  // in place is found as in eager.
  static std::vector<at::Tensor> record(const TorchOperator& op, std::vector<at::Tensor> inputs,
                                        const std::vector<std::int64_t>& tracked,
                                        std::shared_ptr<Tape>& tape);

  // The gradients of the tracked inputs for one cotangent a result, undefined ones absent; undefined where
  // there is none. Runs the one node that most operators have or, where there are several or the backward
  // around it wants some gradients only, the autograd engine, also from within a backward.
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& cotangents) const;

 private:
  void find_node();
  std::vector<at::Tensor> run_node(const std::vector<at::Tensor>& cotangents) const;
  std::vector<at::Tensor> run_engine(const std::vector<at::Tensor>& cotangents) const;

  // The end of the recorded graph: output i is tracked input i.
  std::shared_ptr<torch::autograd::Node> inputs_;
  std::size_t tracked_ = 0;
  torch::autograd::edge_list results_;  // an invalid edge for a result that depends on no tracked input
  // All that lies between results and inputs, which the edges keep alive; null: several nodes, or none.
  torch::autograd::Node* node_ = nullptr;
};

}  // namespace rekindle::session

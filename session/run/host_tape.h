// HostTape: what PyTorch recorded while it ran a host function, for the
// function's backward. Internal to the session room.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/random_state.h"
#include "session/host_function.h"

namespace rekindle::session {

// HostPlace says what a function finds around it, as in eager at its place in the forward.
struct HostPlace {
  std::vector<std::int64_t> tracked;         // positions of inputs whose gradients a tape is to give
  std::vector<std::int64_t> needs;           // of those that require a gradient in eager
  std::vector<std::int64_t> differentiable;  // of the results that do
  bool grad = false;                         // whether autograd records in eager
  std::vector<std::int64_t> lasting;         // of inputs that are the graph's: the caller has them afterwards
  at::DeviceType device = at::kCPU;
  // Holds the dtype of autocast on that device, none where it is off; is null where the caller's autocast
  // holds.
  std::optional<std::optional<at::ScalarType>> autocast;
};

// Owns the recorded backward and with it what the function saved (for a Python Function: its context), or
// what it takes to record it later. Usable any number of times, from any thread; freed with its last owner.
class HostTape {
 public:
  // Runs `function` under autograd, so that the inputs `place.tracked` get gradients, and returns its
  // results, detached. An input that requires a gradient itself is handed over as it is: a parameter stays
  // the object that it is. Where other results than `place.differentiable` require a gradient, the
  // function is told (differs_in_gradients).
  static HostResults record(HostFunction& function, std::vector<at::Tensor> inputs,
                            const std::vector<bool>& own, const std::vector<at::Tensor>& planned,
                            const HostPlace& place, std::shared_ptr<HostTape>& tape);

  // Runs `function` without a tape: no gradient goes through it. The function is told as by record().
  static HostResults run(HostFunction& function, std::vector<at::Tensor> inputs, const std::vector<bool>& own,
                         const std::vector<at::Tensor>& planned, const HostPlace& place);

  // Runs `function`, which writes to no input, without autograd, and returns its results: each backward runs
  // it again, under the settings and from the random states of now, and records that. Keeps the inputs.
  static HostResults postpone(std::shared_ptr<HostFunction> function, std::vector<at::Tensor> inputs,
                              const std::vector<at::Tensor>& planned, const HostPlace& place,
                              std::shared_ptr<HostTape>& tape);

  // The gradients of the tracked inputs for one cotangent a result, undefined where there is none, in either.
  // A backward of one node runs as it is, without the autograd engine; throws what it throws, and c10::Error
  // where an input of a postponed run was written since.
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& cotangents) const;

 private:
  // Holds what it takes to run a function once more as the forward ran it.
  struct Postponed {
    std::shared_ptr<HostFunction> function;
    std::vector<at::Tensor> inputs, planned;
    HostPlace place;
    std::vector<std::int64_t> versions;  // of the inputs; -1 where there is none
    at::ThreadLocalState settings;
    device::RandomStates random_states;
  };

  static HostResults run_recorded(HostFunction& function, std::vector<at::Tensor> inputs,
                                  const std::vector<bool>& own, const std::vector<at::Tensor>& planned,
                                  const HostPlace& place, HostTape& tape);
  std::shared_ptr<HostTape> recorded() const;
  std::vector<std::int64_t> differentiable() const;  // positions of the results that require a gradient
  void find_node(const std::vector<at::Tensor>& inputs, const std::vector<std::int64_t>& tracked);
  std::vector<at::Tensor> run_node(const std::vector<at::Tensor>& cotangents) const;
  std::vector<at::Tensor> run_engine(const std::vector<at::Tensor>& cotangents) const;

  std::unique_ptr<const Postponed> postponed_;  // null: it is recorded
  torch::autograd::edge_list results_;  // an invalid edge for a result that depends on no tracked input
  torch::autograd::edge_list wanted_;   // of the tracked inputs
  std::shared_ptr<torch::autograd::Node> node_;  // null when the results come from several, or lead elsewhere
  std::vector<std::size_t> gradients_;           // per tracked input: which output of node_
};

}  // namespace rekindle::session

// TorchOperator: an operator of PyTorch's dispatcher as a node of the torch domain names it
// (src/graph/torch_node.h). Internal to the session room.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "src/graph/graph.h"

namespace rekindle::session {

// Immutable. Everything that a node from a cache could get wrong is checked when it is made: the operator
// exists, writes to none of its inputs, returns tensors, and its arguments fit its schema.
class TorchOperator {
 public:
  // `device`: where it runs, in the place of the device that the node names, which is that of its export.
  // Throws c10::Error naming the operator and what is wrong.
  TorchOperator(const graph::Node& node, at::Device device);

  // Gives an argument this value instead of the node's. Throws c10::Error where there is none of that name.
  void replace(const std::string& argument, c10::IValue value);

  // The tensors it returns, lists flattened; `inputs` as the node's, absent ones undefined. Runs under the
  // caller's dispatch keys and grad mode. Throws what the operator throws.
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs) const;
  // The same on meta tensors, below autograd. Throws c10::NotImplementedError when the operator cannot tell
  // the layout of its results without data.
  std::vector<at::Tensor> call_meta(const std::vector<at::Tensor>& metas) const;
  // Inputs whose elements are arguments, and which must be known even on meta tensors.
  const std::vector<std::size_t>& number_inputs() const { return number_inputs_; }

 private:
  enum class From { kConstant, kTensor, kTensors, kOptionalTensors, kNumbers };
  // Where an argument comes from: a value known now, or `count` inputs from `first` on.
  struct Argument {
    From from = From::kConstant;
    c10::IValue value = {};
    std::size_t first = 0, count = 0;
    c10::TypePtr type = {};  // of kNumbers
    bool is_device = false;  // where the operator runs
    bool is_optional = false;
  };

  Argument bind(const graph::Node& node, const c10::Argument& formal, std::size_t& next);
  std::vector<at::Tensor> call_on(const std::vector<at::Tensor>& inputs, at::Device device) const;
  c10::IValue gather(const Argument& argument, const std::vector<at::Tensor>& inputs) const;
  void check_schema(const graph::Node& node) const;
  void check_statistics(const graph::Node& node) const;

  std::string name_;
  at::Device device_;
  std::optional<c10::OperatorHandle> handle_;
  std::vector<Argument> arguments_;
  std::vector<std::size_t> number_inputs_;
  std::optional<at::ScalarType> autocast_;  // in which autocast computes what the operator calls
};

}  // namespace rekindle::session

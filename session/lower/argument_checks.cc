#include "session/lower/argument_checks.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace rekindle::session {
namespace {

// A recurrent network reads the state of each layer and direction, however many there are; torch.nn compares
// first (ATen/native/RNN.cpp: hidden states are unbound, then indexed).
void check_states(const std::vector<c10::IValue>& arguments, std::size_t states, std::size_t layers,
                  std::size_t bidirectional) {
  const std::int64_t count = arguments.at(layers).toInt() * (arguments.at(bidirectional).toBool() ? 2 : 1);
  const c10::IValue& given = arguments.at(states);
  const std::vector<at::Tensor> all =
      given.isTensor() ? std::vector<at::Tensor>{given.toTensor()} : given.toTensorVector();
  for (const at::Tensor& state : all) {
    TORCH_CHECK(state.dim() == 3 && state.size(0) == count, "a state of sizes ", state.sizes(),
                " is given to a recurrent network that has ", count, " layers and directions");
  }
}

// (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
void of_padded(const std::vector<c10::IValue>& arguments) { check_states(arguments, 1, 4, 7); }

// (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)
void of_packed(const std::vector<c10::IValue>& arguments) { check_states(arguments, 2, 5, 8); }

constexpr std::array<std::pair<std::string_view, ArgumentCheck>, 8> kChecks{{
    {"aten.lstm.input", of_padded},
    {"aten.gru.input", of_padded},
    {"aten.rnn_tanh.input", of_padded},
    {"aten.rnn_relu.input", of_padded},
    {"aten.lstm.data", of_packed},
    {"aten.gru.data", of_packed},
    {"aten.rnn_tanh.data", of_packed},
    {"aten.rnn_relu.data", of_packed},
}};

}  // namespace

ArgumentCheck argument_check(std::string_view op_type) {
  const auto* found = std::ranges::find(kChecks, op_type, &std::pair<std::string_view, ArgumentCheck>::first);
  return found == kChecks.end() ? nullptr : found->second;
}

}  // namespace rekindle::session

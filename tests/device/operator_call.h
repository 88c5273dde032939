// A call of any operator on the test device: it runs on the CPU, over the device's own memory. Internal to
// tests/device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace rekindle::testing::device {

// The device that is meant: the current one where none is named, or no index.
at::Device wanted(std::optional<at::Device> device);

bool is_here(const at::Tensor& tensor);

// A CPU tensor over the device memory of `tensor`, to be used while a kernel runs; others as they are.
at::Tensor on_host(const at::Tensor& tensor);

// Calls the operator on the arguments at the end of the stack, in whose place its results are then.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace rekindle::testing::device

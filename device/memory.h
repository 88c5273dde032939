// Memory of a device that is shared out to many tensors: the arena of a plan.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstddef>

namespace rekindle::device {

// The alignment in bytes that kernels of the device expect of a tensor: what its allocator gives. cuBLASLt
// takes faster kernels for aligned operands, and CUDA's caching allocator rounds to 512.
std::size_t alignment_of(at::Device device);

// One-dimensional, of bytes, from the allocator that PyTorch has for the device: its limits and statistics
// hold. Throws c10::OutOfMemoryError.
at::Tensor allocate(std::size_t bytes, at::Device device);

// A tensor like `meta`, a meta tensor, over a part of `memory`. Does not own it, and has a storage of its
// own: two such tensors do not count as views of each other.
at::Tensor tensor_over(const at::Tensor& memory, std::size_t offset, const at::Tensor& meta);

// Lets a tensor of tensor_over(), and its views, see another piece of memory on the same device.
void move_over(const at::Tensor& tensor, const at::Tensor& memory, std::size_t offset);

}  // namespace rekindle::device

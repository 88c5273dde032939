// Copies of many tensors at once: on an accelerator, where each copy is a launch, in one launch a dtype.
//
// An example: a step of ResNet-50 writes 159 statistics of two dtypes. Copied one by one they are 159
// launches of 5 us.
#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

namespace rekindle::device {

// New tensors with the contents, sizes and strides of these, or row-major for those that have gaps. All are
// on one device. No autograd graph is recorded. Throws c10::OutOfMemoryError.
std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors);

// Writes from[i] into to[i], which have the same sizes, dtype and device. Counts no version of `to`.
void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

}  // namespace rekindle::device

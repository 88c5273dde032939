// How far two tensors are apart, for elements of each magnitude.
#pragma once

#include <cstdint>
#include <vector>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

struct Octave {
  double above = 0;        // magnitudes of `theirs` from here to less than twice this; 0: zeros
  std::int64_t count = 0;  // elements
  double largest = 0;      // of |ours - theirs| among them
};

struct Difference {
  double norm = 0;              // 2-norm of ours - theirs
  double scale = 0;             // 2-norm of theirs
  bool is_like = true;          // every element that is not finite has the same value in both
  std::vector<Octave> octaves;  // those that have elements, the smallest first
};

// Elements that are not finite count in `is_like` only. ours, theirs: of one floating or complex dtype and
// one shape, on one device; any strides. Computed in float64, in one pass on the CPU, in parts of a fixed
// size on a device, which it waits for. Errors are c10::Error. No autograd graph is recorded.
Difference difference(const at::Tensor& ours, const at::Tensor& theirs);

// The same on the tensors' device, whatever their size.
Difference difference_in_parts(const at::Tensor& ours, const at::Tensor& theirs);
// The same in plain ATen, on the host.
Difference difference_reference(const at::Tensor& ours, const at::Tensor& theirs);

}  // namespace rekindle::kernels

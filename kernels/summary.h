// Sums up the elements of a tensor for statistics: counts, extremes, moments, and a histogram by powers of
// two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace at {
class Tensor;
}

namespace rekindle::kernels {

// Powers that a histogram has; smaller and larger magnitudes count in the first and the last.
inline constexpr int kLowestPower = -64, kHighestPower = 63;
inline constexpr std::size_t kPowers = kHighestPower - kLowestPower + 1;

// Holds what `summary` found. All but `nans` and `infs` counts finite elements only; sums are in double
// precision.
struct Summary {
  std::int64_t finite = 0, nans = 0, infs = 0, zeros = 0;  // elements
  double min = 0, max = 0;                                 // inf and -inf without finite elements
  double mean = 0;
  double deviations = 0;  // sum of the squares of x - mean
  double squares = 0;     // sum of the squares
  // [i]: elements with 2^(kLowestPower + i) <= |x| < twice that
  std::array<std::int64_t, kPowers> negative{}, positive{};
};

// x: float32, bfloat16 or float16, dense, on the CPU, of any shape; read once. The same bits whatever the
// number of threads. Errors are c10::Error.
Summary summary(const at::Tensor& x);

}  // namespace rekindle::kernels

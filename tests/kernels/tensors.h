// Catch beside ATen, random inputs and error measures for kernel tests.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstring>

// c10's logging takes this name, and aborts; Catch's is the one tests mean.
#undef CHECK
#include <catch2/catch.hpp>

namespace rekindle::testing {

inline at::Tensor random_normal(at::IntArrayRef sizes, at::ScalarType dtype = at::kDouble) {
  return at::randn(sizes, at::kDouble).to(dtype);
}

// The largest difference, in units of the largest value of `exact`. Two
// nans, or two equal infinities, are equal.
inline double error(const at::Tensor& actual, const at::Tensor& exact) {
  if (exact.numel() == 0) return actual.sizes() == exact.sizes() ? 0 : INFINITY;
  const auto a = actual.to(at::kCPU, at::kDouble);
  const auto e = exact.to(at::kCPU, at::kDouble);
  const auto same = (a == e) | (a.isnan() & e.isnan());
  const auto difference = (a - e).abs().masked_fill(same, 0);
  if (!difference.isfinite().all().item<bool>()) return INFINITY;
  const auto scale = e.abs().masked_fill(~e.isfinite(), 0).max().item<double>();
  return difference.max().item<double>() / (scale == 0 ? 1 : scale);
}

inline double epsilon(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return 1.2e-7;
    case at::kHalf:
      return 9.8e-4;
    case at::kBFloat16:
      return 7.9e-3;
    default:
      return 2.3e-16;
  }
}

// At most twice eager's error, and two units in the last place for where eager is nearly exact: a build for a
// processor without fused multiply-add rounds once more. In float64 eager is itself the exact result, so more
// units are allowed.
inline bool as_good_as_eager(const at::Tensor& ours, const at::Tensor& eager, const at::Tensor& exact) {
  const double slack = ours.scalar_type() == at::kDouble ? 64 : 2;
  return error(ours, exact) <= 2 * error(eager, exact) + slack * epsilon(ours.scalar_type());
}

inline bool bitwise_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  return std::memcmp(a.contiguous().const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

inline const at::ScalarType kFloatingTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

}  // namespace rekindle::testing

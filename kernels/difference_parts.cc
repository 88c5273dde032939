// The difference of tensors that are not on the host: nothing but a few numbers an octave comes back from the
// device.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/backends.h"

namespace rekindle::kernels {
namespace {

// Elements of a part, of which a few are held in float64 at a time.
constexpr std::int64_t kPart = std::int64_t{1} << 20;
constexpr int kSmallest = -1021;  // the exponent of the smallest double that is not denormal
// Bins: of zeros, of each exponent from kSmallest to 1024, of what is not finite.
constexpr std::int64_t kNotFinite = 1024 - kSmallest + 2, kBins = kNotFinite + 1;

double lower_end(std::size_t bin) {
  return bin == 0 ? 0.0 : std::ldexp(1.0, static_cast<int>(bin) - 1 + kSmallest - 1);
}

struct Sums {
  double norm = 0, scale = 0;  // of squares
  bool is_like = true;
  std::array<Octave, kBins> bins{};
};

// The largest distance in each of `present`, bins that have elements.
std::vector<double> largest_in(const std::vector<std::int64_t>& present, const at::Tensor& bin,
                               const at::Tensor& distance) {
  std::vector<at::Tensor> largest;
  for (const std::int64_t one : present) largest.push_back(at::where(bin == one, distance, 0.0).max());
  const auto found = at::stack(largest).to(at::kCPU);
  const auto* values = found.const_data_ptr<double>();
  return {values, values + found.numel()};
}

void add_part(Sums& sums, const at::Tensor& ours, const at::Tensor& theirs) {
  const auto wide = ours.is_complex() ? at::kComplexDouble : at::kDouble;
  const auto a = ours.to(wide), b = theirs.to(wide);
  const auto finite = at::isfinite(a) & at::isfinite(b);
  const auto is_like = (finite | (a == b) | (at::isnan(a) & at::isnan(b))).all();
  const auto size = at::where(finite, b.abs(), 0.0), distance = at::where(finite, (a - b).abs(), 0.0);
  const auto exponent = std::get<1>(at::frexp(size)).clamp_min(kSmallest);
  const auto bin =
      at::where(size == 0, 0, exponent - (kSmallest - 1)).masked_fill(finite.logical_not(), kNotFinite);
  const auto totals =
      at::stack({(distance * distance).sum(), (size * size).sum(), is_like.to(at::kDouble)}).to(at::kCPU);
  const auto counts = at::bincount(bin, {}, kBins).to(at::kCPU);
  sums.norm += totals[0].item<double>();
  sums.scale += totals[1].item<double>();
  sums.is_like = sums.is_like && totals[2].item<double>() != 0;
  std::vector<std::int64_t> present;
  for (std::int64_t i = 0; i < kNotFinite; ++i) {
    if (counts.const_data_ptr<std::int64_t>()[i] != 0) present.push_back(i);
  }
  if (present.empty()) return;
  const auto largest = largest_in(present, bin, distance);
  for (std::size_t i = 0; i < present.size(); ++i) {
    Octave& octave = sums.bins.at(static_cast<std::size_t>(present[i]));
    octave.count += counts.const_data_ptr<std::int64_t>()[present[i]];
    octave.largest = std::max(octave.largest, largest[i]);
  }
}

}  // namespace

Difference difference_in_parts(const at::Tensor& ours, const at::Tensor& theirs) {
  Sums sums;
  const auto mine = ours.reshape({-1}), other = theirs.reshape({-1});
  for (std::int64_t start = 0; start < mine.numel(); start += kPart) {
    const std::int64_t end = std::min(start + kPart, mine.numel());
    add_part(sums, mine.slice(0, start, end), other.slice(0, start, end));
  }
  Difference found{std::sqrt(sums.norm), std::sqrt(sums.scale), sums.is_like, {}};
  for (std::size_t i = 0; i < sums.bins.size(); ++i) {
    if (sums.bins[i].count != 0)
      found.octaves.push_back({lower_end(i), sums.bins[i].count, sums.bins[i].largest});
  }
  return found;
}

}  // namespace rekindle::kernels

#include "kernels/difference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <span>

#include "kernels/backends.h"

namespace rekindle::kernels {
namespace {

// Elements of a tensor on a device that is compared on the host: a kernel or two for each octave takes
// longer.
constexpr std::int64_t kMostCopied = std::int64_t{1} << 17;

at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble).reshape({-1});
}

}  // namespace

Difference difference(const at::Tensor& ours, const at::Tensor& theirs) {
  TORCH_CHECK(ours.scalar_type() == theirs.scalar_type() && ours.sizes() == theirs.sizes(),
              "difference: tensors of other dtypes or shapes: ", ours.scalar_type(), ours.sizes(), ", ",
              theirs.scalar_type(), theirs.sizes());
  TORCH_CHECK(ours.is_floating_point() || ours.is_complex(), "difference: not of ", ours.scalar_type());
  const at::NoGradGuard no_grad;
  // No dispatch mode of Python sees how results are compared.
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  if (!ours.is_cpu() && ours.numel() > kMostCopied) return difference_in_parts(ours, theirs);
  if (!ours.is_cpu()) return difference(ours.to(at::kCPU), theirs.to(at::kCPU));
  const bool is_alike_dense = ours.strides() == theirs.strides() && ours.is_non_overlapping_and_dense() &&
                              ours.is_conj() == theirs.is_conj() && ours.is_neg() == theirs.is_neg();
  if (is_alike_dense && !ours.is_conj() && !ours.is_neg()) return cpu::difference(ours, theirs);
  return cpu::difference(ours.resolve_conj().resolve_neg().contiguous(),
                         theirs.resolve_conj().resolve_neg().contiguous());
}

Difference difference_reference(const at::Tensor& ours, const at::Tensor& theirs) {
  const at::NoGradGuard no_grad;
  const auto a = widened(ours);
  const auto b = widened(theirs);
  const auto finite = at::isfinite(a) & at::isfinite(b);
  Difference found;
  found.is_like = (finite | (a == b) | (at::isnan(a) & at::isnan(b))).all().item<bool>();
  const auto magnitudes = b.masked_select(finite).abs().to(at::kCPU);
  const auto distances = (a - b).masked_select(finite).abs().to(at::kCPU);
  found.norm = distances.norm().item<double>();
  found.scale = magnitudes.norm().item<double>();
  constexpr int kOfZero = -2000;
  constexpr int kSmallest = -1021;  // of a double that is not denormal
  const auto exponents =
      std::get<1>(at::frexp(magnitudes)).clamp_min(kSmallest).masked_fill(magnitudes == 0, kOfZero);
  const auto present = std::get<0>(at::_unique(exponents)).to(at::kInt);
  for (const int exponent : std::span<const int>(present.const_data_ptr<int>(), present.numel())) {
    const auto chosen = distances.masked_select(exponents == exponent);
    found.octaves.push_back({exponent == kOfZero ? 0 : std::ldexp(1.0, exponent - 1), chosen.numel(),
                             chosen.max().item<double>()});
  }
  return found;
}

}  // namespace rekindle::kernels

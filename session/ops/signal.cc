// Fourier transforms, windows and mel filters. Complex numbers are a last dimension of two reals.
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <numbers>

#include "session/lower/op.h"
#include "session/lower/tensor_types.h"

namespace rekindle::session {
namespace {

constexpr std::int64_t kUnscaled = 0, kByLength = 2;  // how ATen scales a transform

// [..., 1] or [..., 2] as complex [...], in double: sums that cancel leave
// no more than the input's own rounding.
at::Tensor as_complex(const at::Tensor& x) {
  TORCH_CHECK(x.size(-1) == 1 || x.size(-1) == 2, "the last dimension must be 1 or 2, not ", x.size(-1));
  const at::Tensor wide = x.to(at::kDouble);
  return at::view_as_complex(
      (x.size(-1) == 2 ? wide : at::cat({wide, at::zeros_like(wide)}, -1)).contiguous());
}

// The first `length` elements along `axis`, zeros where there are none.
at::Tensor fitted(const at::Tensor& x, std::int64_t axis, std::int64_t length) {
  Sizes from_last(static_cast<std::size_t>(2 * (x.dim() - axis)), 0);
  from_last.back() = length - x.size(axis);
  return at::constant_pad_nd(x, from_last, 0);
}

struct Transform {
  std::int64_t axis, length;
  bool inverse, one_sided;
};

at::Tensor transformed(const at::Tensor& x, const Transform& how) {
  const at::Tensor signal = as_complex(x);
  if (how.inverse && how.one_sided) {
    // The half that is given stands for the whole of a Hermitian spectrum; the result is real.
    const at::Tensor half = fitted(signal, how.axis, how.length / 2 + 1);
    const std::int64_t rest = how.length - half.size(how.axis);
    const at::Tensor mirrored = half.narrow(how.axis, 1, rest).flip({how.axis}).conj();
    const at::Tensor whole = at::cat({half, mirrored}, how.axis);
    return at::view_as_real(at::_fft_c2c(whole, {how.axis}, kByLength, false)).narrow(-1, 0, 1);
  }
  at::Tensor y = at::_fft_c2c(fitted(signal, how.axis, how.length), {how.axis},
                              how.inverse ? kByLength : kUnscaled, !how.inverse);
  if (how.one_sided) y = y.narrow(how.axis, 0, how.length / 2 + 1);
  return at::view_as_real(y);
}

// Inputs: x[..., 1 or 2], length?, axis? (default -2).
Lowering lower_dft(const LowerContext& context) {
  const std::int64_t rank = context.rank(0);
  Transform how{context.axis(context.has(2) ? context.ints(2).at(0) : -2, rank), 0,
                context.int_attribute("inverse", 0) != 0, context.int_attribute("onesided", 0) != 0};
  TORCH_CHECK(how.axis < rank - 1, "DFT along the dimension of complex parts");
  const std::int64_t size = context.meta(0).size(how.axis);
  how.length = context.has(1) ? context.ints(1).at(0) : how.inverse && how.one_sided ? 2 * (size - 1) : size;
  return functional(context, [how, type = context.dtype(0)](const Tensors& in) -> Tensors {
    return {transformed(in[0], how).to(type)};
  });
}

// Inputs: signal[batch, length, 1 or 2], step, window?, frame length?.
Lowering lower_stft(const LowerContext& context) {
  const std::int64_t step = context.ints(1).at(0), length = context.meta(0).size(1);
  const std::int64_t frame = context.has(3)   ? context.ints(3).at(0)
                             : context.has(2) ? context.meta(2).size(0)
                                              : length;
  TORCH_CHECK(step > 0 && frame > 0 && frame <= length, "STFT of ", length, " samples in frames of ", frame,
              " every ", step);
  const Transform how{2, frame, false, context.int_attribute("onesided", 1) != 0};
  return functional(context, [how, step, type = context.dtype(0)](const Tensors& in) -> Tensors {
    at::Tensor frames = in[0].unfold(1, how.length, step).transpose(2, 3);  // [batch, frames, frame, parts]
    if (in.size() > 2 && in[2].defined()) frames = frames.mul(in[2].unsqueeze(1));
    return {transformed(frames, how).to(type)};
  });
}

// a0 - a1 cos(2πn/N) + a2 cos(4πn/N).
Lowering window(const LowerContext& context, double a0, double a1, double a2) {
  const std::int64_t size = context.ints(0).at(0);
  const bool periodic = context.int_attribute("periodic", 1) != 0;
  const at::Tensor angle =
      at::arange(size, at::TensorOptions().dtype(at::kDouble))
          .mul(2 * std::numbers::pi /
               static_cast<double>(std::max<std::int64_t>(periodic ? size : size - 1, 1)));
  Lowering lowering;
  lowering.constants = {
      angle.cos()
          .mul(-a1)
          .add(angle.mul(2).cos().mul(a2))
          .add(a0)
          .to(scalar_type_of(static_cast<graph::DType>(context.int_attribute("output_datatype", 1))))};
  return lowering;
}

Lowering lower_hann(const LowerContext& context) { return window(context, 0.5, 0.5, 0); }
Lowering lower_hamming(const LowerContext& context) { return window(context, 25.0 / 46, 21.0 / 46, 0); }
Lowering lower_blackman(const LowerContext& context) { return window(context, 0.42, 0.5, 0.08); }

// Inputs: number of bands, DFT length, sample rate, lowest and highest frequency. Triangles from one band's
// bin to the next one's.
Lowering lower_mel_weight_matrix(const LowerContext& context) {
  const std::int64_t bands = context.ints(0).at(0), length = context.ints(1).at(0);
  const double rate = context.scalar(2), low = 2595 * std::log10(1 + context.scalar(3) / 700),
               high = 2595 * std::log10(1 + context.scalar(4) / 700);
  TORCH_CHECK(bands > 0 && length > 0 && rate > 0, "MelWeightMatrix of ", bands, " bands, length ", length,
              ", rate ", rate);
  std::vector<std::int64_t> bins;
  for (std::int64_t i = 0; i < bands + 2; ++i) {
    const double mel = low + static_cast<double>(i) * (high - low) / static_cast<double>(bands + 2);
    bins.push_back(static_cast<std::int64_t>(
        std::floor(static_cast<double>(length + 1) * 700 * (std::pow(10, mel / 2595) - 1) / rate)));
  }
  at::Tensor matrix = at::zeros({length / 2 + 1, bands}, at::TensorOptions().dtype(at::kDouble));
  TORCH_CHECK(bins.front() >= 0 && bins.back() <= matrix.size(0),
              "MelWeightMatrix: a frequency is beyond half the sample rate");
  auto weight = matrix.accessor<double, 2>();
  for (std::int64_t band = 0; band < bands; ++band) {
    const auto at = static_cast<std::size_t>(band);
    const std::int64_t left = bins[at], centre = bins[at + 1], right = bins[at + 2];
    for (std::int64_t j = left; j < centre; ++j)
      weight[j][band] = static_cast<double>(j - left) / static_cast<double>(centre - left);
    if (centre < matrix.size(0)) weight[centre][band] = 1;
    for (std::int64_t j = centre + 1; j < right; ++j)
      weight[j][band] = static_cast<double>(right - j) / static_cast<double>(right - centre);
  }
  Lowering lowering;
  lowering.constants = {
      matrix.to(scalar_type_of(static_cast<graph::DType>(context.int_attribute("output_datatype", 1))))};
  return lowering;
}

}  // namespace

REKINDLE_OP("", "BlackmanWindow", lower_blackman);
REKINDLE_OP("", "DFT", lower_dft);
REKINDLE_OP("", "HammingWindow", lower_hamming);
REKINDLE_OP("", "HannWindow", lower_hann);
REKINDLE_OP("", "MelWeightMatrix", lower_mel_weight_matrix);
REKINDLE_OP("", "STFT", lower_stft);

}  // namespace rekindle::session

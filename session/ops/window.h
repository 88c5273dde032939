// Sliding windows over the spatial dimensions of [N, C, d1, d2, ...], as
// ONNX's convolutions and pools describe them.
#pragma once

#include "session/lower/op.h"

namespace rekindle::session {

struct Windows {
  Sizes kernel, strides, dilations;
  Sizes begin, end;  // padding per spatial dimension
  Sizes positions;   // number of windows per spatial dimension

  // Elements that windows reach beyond the padded end (ceil_mode), per spatial dimension.
  Sizes overhang(at::IntArrayRef spatial) const;
};

// From the node's kernel_shape (or `kernel`), strides, dilations, pads, auto_pad and ceil_mode for inputs of
// those spatial sizes.
Windows windows_of(const LowerContext& context, const Sizes& spatial,
                   std::optional<Sizes> kernel = std::nullopt);
// x with `value` around its spatial dimensions; `extra` more at their ends.
at::Tensor pad_spatial(const at::Tensor& x, const Windows& windows, const at::Scalar& value,
                       const Sizes& extra);
// The windows of a padded tensor: [N, C, positions..., kernel...], a view.
at::Tensor slide(const at::Tensor& padded, const Windows& windows);

}  // namespace rekindle::session

#include "session/ops/window.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

namespace rekindle::session {
namespace {

std::int64_t span(std::int64_t kernel, std::int64_t dilation) { return (kernel - 1) * dilation + 1; }

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Sizes Windows::overhang(at::IntArrayRef spatial) const {
  Sizes extra;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const std::int64_t reach = (positions[i] - 1) * strides[i] + span(kernel[i], dilations[i]);
    extra.push_back(std::max<std::int64_t>(0, reach - (spatial[i] + begin[i] + end[i])));
  }
  return extra;
}

Windows windows_of(const LowerContext& context, const Sizes& spatial, std::optional<Sizes> kernel) {
  const graph::Node& node = context.node();
  const std::size_t rank = spatial.size();
  Windows windows;
  windows.kernel = node.ints_attribute("kernel_shape", kernel.value_or(Sizes{}));
  windows.strides = node.ints_attribute("strides", Sizes(rank, 1));
  windows.dilations = node.ints_attribute("dilations", Sizes(rank, 1));
  const Sizes pads = node.ints_attribute("pads", Sizes(2 * rank, 0));
  TORCH_CHECK(windows.kernel.size() == rank && windows.strides.size() == rank &&
                  windows.dilations.size() == rank && pads.size() == 2 * rank,
              "kernel_shape, strides, dilations and pads must be for ", rank, " spatial dimensions");
  const std::string auto_pad = context.string_attribute("auto_pad", "NOTSET");
  const bool ceil_mode = context.int_attribute("ceil_mode", 0) != 0, same = auto_pad.starts_with("SAME");
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t reach = span(windows.kernel[i], windows.dilations[i]), stride = windows.strides[i];
    TORCH_CHECK(stride > 0 && windows.kernel[i] > 0 && windows.dilations[i] > 0,
                "a window needs a size and a stride");
    std::int64_t begin = auto_pad == "NOTSET" ? pads[i] : 0, end = auto_pad == "NOTSET" ? pads[rank + i] : 0,
                 positions = 0;
    if (same) {
      positions = ceil_divide(spatial[i], stride);
      const std::int64_t total = std::max<std::int64_t>(0, (positions - 1) * stride + reach - spatial[i]);
      begin = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    } else {
      const std::int64_t room = spatial[i] + begin + end - reach;
      TORCH_CHECK(room >= 0, "a window of ", reach, " does not fit in ", spatial[i] + begin + end);
      positions = (ceil_mode ? ceil_divide(room, stride) : room / stride) + 1;
      // A window must not begin beyond the input.
      if (ceil_mode && (positions - 1) * stride >= spatial[i] + begin) --positions;
    }
    windows.begin.push_back(begin);
    windows.end.push_back(end);
    windows.positions.push_back(positions);
  }
  return windows;
}

at::Tensor pad_spatial(const at::Tensor& x, const Windows& windows, const at::Scalar& value,
                       const Sizes& extra) {
  Sizes from_last;
  for (std::size_t i = windows.kernel.size(); i-- > 0;) {
    from_last.push_back(windows.begin[i]);
    from_last.push_back(windows.end[i] + extra[i]);
  }
  return at::constant_pad_nd(x, from_last, value);
}

at::Tensor slide(const at::Tensor& padded, const Windows& windows) {
  Sizes sizes{padded.size(0), padded.size(1)}, strides{padded.stride(0), padded.stride(1)};
  for (std::size_t i = 0; i < windows.kernel.size(); ++i) {
    sizes.push_back(windows.positions[i]);
    strides.push_back(padded.stride(static_cast<std::int64_t>(i) + 2) * windows.strides[i]);
  }
  for (std::size_t i = 0; i < windows.kernel.size(); ++i) {
    sizes.push_back(windows.kernel[i]);
    strides.push_back(padded.stride(static_cast<std::int64_t>(i) + 2) * windows.dilations[i]);
  }
  return padded.as_strided(sizes, strides, padded.storage_offset());
}

}  // namespace rekindle::session

#include "session/plan/result_layout.h"

#include <algorithm>
#include <numeric>

namespace rekindle::session {
namespace {

std::vector<std::int64_t> strides_in_order(const std::vector<std::int64_t>& order, at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 0);
  std::vector<bool> seen(sizes.size(), false);
  std::int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const auto at = static_cast<std::size_t>(*dim);
    TORCH_CHECK(*dim >= 0 && at < sizes.size() && !seen[at], "a result of rank ", sizes.size(),
                " cannot lie in the order ", at::IntArrayRef(order));
    seen[at] = true;
    strides[at] = stride;
    stride *= std::max<std::int64_t>(sizes[at], 1);
  }
  return strides;
}

// Whether a dimension has stride 0 in `strides` along which the computed elements need not be one and the
// same.
bool would_drop_elements(at::IntArrayRef strides, at::IntArrayRef computed, at::IntArrayRef sizes) {
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    if (strides[dim] == 0 && computed[dim] != 0 && sizes[dim] > 1) return true;
  }
  return false;
}

}  // namespace

std::optional<std::vector<std::int64_t>> strides_of(const ResultLayout& layout, at::IntArrayRef sizes,
                                                    at::IntArrayRef computed) {
  switch (layout.kind) {
    case ResultLayout::Kind::kAny:
      return std::nullopt;
    case ResultLayout::Kind::kAsComputed:
      return computed.vec();
    case ResultLayout::Kind::kOrder: {
      std::vector<std::int64_t> strides = strides_in_order(layout.numbers, sizes);
      if (!would_drop_elements(strides, computed, sizes)) return strides;
      std::vector<std::int64_t> row_major(sizes.size());
      std::iota(row_major.begin(), row_major.end(), 0);
      return strides_in_order(row_major, sizes);
    }
    case ResultLayout::Kind::kStrides:
      break;
  }
  const auto is_stride = [](std::int64_t number) { return number >= 0; };
  TORCH_CHECK(layout.numbers.size() == sizes.size() && std::ranges::all_of(layout.numbers, is_stride),
              "a result of rank ", sizes.size(), " cannot have the strides ",
              at::IntArrayRef(layout.numbers));
  return layout.numbers;
}

at::Tensor each_once(at::Tensor tensor, at::IntArrayRef strides) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (strides[static_cast<std::size_t>(dim)] == 0 && tensor.size(dim) > 1)
      tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

}  // namespace rekindle::session

#include "src/fusion/access.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace rekindle::fusion {
namespace {

// Whether dimension `outer` goes on where `inner` ends, in each operand.
bool are_one(const Access& access, std::size_t outer, std::size_t inner) {
  return std::ranges::all_of(access.strides, [&](const Numbers& strides) {
    return strides[outer] == strides[inner] * access.sizes[inner];
  });
}

// The dimensions with more than one element, the last operand's largest stride first.
std::vector<std::size_t> order_of(const Access& access) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < access.sizes.size(); ++d) {
    if (access.sizes[d] != 1) order.push_back(d);
  }
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t d) { return access.strides.back()[d]; });
  return order;
}

}  // namespace

std::int64_t Access::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies());
}

Access collapsed(const Access& access) {
  Access made;
  made.strides.resize(access.strides.size());
  std::size_t last = 0;  // dimension of `access`
  for (const std::size_t d : order_of(access)) {
    if (!made.sizes.empty() && are_one(access, last, d)) {
      made.sizes.back() *= access.sizes[d];
      for (std::size_t i = 0; i < made.strides.size(); ++i) made.strides[i].back() = access.strides[i][d];
    } else {
      made.sizes.push_back(access.sizes[d]);
      for (std::size_t i = 0; i < made.strides.size(); ++i) made.strides[i].push_back(access.strides[i][d]);
    }
    last = d;
  }
  if (made.sizes.empty()) {
    made.sizes = {1};
    for (Numbers& strides : made.strides) strides = {0};
    made.strides.back() = {1};
  }
  return made;
}

std::int64_t width_of(const Access& access) {
  for (const std::int64_t width : {4, 2}) {
    if (access.sizes.back() % width == 0) return width;
  }
  return 1;
}

}  // namespace rekindle::fusion

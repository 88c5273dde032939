#include "session/lower/recorded_results.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "session/lower/tensor_types.h"
#include "src/graph/torch_node.h"

namespace rekindle::session {
namespace {

// Whether the inputs have the sizes that they had when the graph was made.
bool inputs_are_recorded(const LowerContext& context) {
  if (context.node().attribute("_computed") != nullptr) return false;  // numbers may differ
  if (context.node().attribute("_sizes") != nullptr) {
    Sizes sizes;
    for (std::size_t i = 0; i < context.num_inputs(); ++i) {
      if (!context.has(i)) continue;
      const Sizes own = context.sizes(i);
      sizes.push_back(context.rank(i));
      sizes.insert(sizes.end(), own.begin(), own.end());
    }
    return sizes == context.node().ints_attribute("_sizes", {});
  }
  for (std::size_t i = 0; i < context.num_inputs(); ++i) {
    if (!context.has(i)) continue;
    const graph::TensorType& type = context.node().input(i)->type();
    if (type.static_sizes() != context.sizes(i) || type.dtype != dtype_of(context.dtype(i))) return false;
  }
  return true;
}

// Reads one layout of the attribute _layouts; nullopt when it is none.
std::optional<at::Tensor> next_result(const Sizes& numbers, std::size_t& next) {
  if (numbers.size() - next < 2 || numbers[next] < 0 || numbers[next] >= graph::kDTypes) return std::nullopt;
  const auto dtype = static_cast<graph::DType>(numbers[next]);
  if (numbers[next + 1] < 0 || (numbers.size() - next - 2) / 2 < static_cast<std::size_t>(numbers[next + 1]))
    return std::nullopt;
  const auto rank = static_cast<std::ptrdiff_t>(numbers[next + 1]);
  const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(next) + 2;
  if (std::any_of(begin, begin + 2 * rank, [](std::int64_t number) { return number < 0; }))
    return std::nullopt;
  next += 2 + 2 * static_cast<std::size_t>(rank);
  const auto options = at::TensorOptions().dtype(scalar_type_of(dtype)).device(at::kMeta);
  return at::empty_strided(Sizes(begin, begin + rank), Sizes(begin + rank, begin + 2 * rank), options);
}

}  // namespace

std::optional<std::vector<at::Tensor>> recorded_results(const LowerContext& context) {
  if (!inputs_are_recorded(context)) return std::nullopt;
  const Sizes numbers = context.node().ints_attribute("_layouts", {});
  std::vector<at::Tensor> results;
  std::size_t next = 0;
  for (std::size_t i = 0; i < graph::torch_results(context.node()); ++i) {
    std::optional<at::Tensor> result = next_result(numbers, next);
    if (!result) return std::nullopt;
    results.push_back(*std::move(result));
  }
  return results;
}

}  // namespace rekindle::session

#include "src/passes/int_tensor.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "src/graph/element.h"
#include "src/graph/op_info.h"

namespace rekindle::passes {
namespace {

using graph::DType;
using graph::Node;
using Inputs = std::span<const IntTensor* const>;
using Maybe = std::optional<IntTensor>;
using Sizes = std::vector<std::int64_t>;

// The numbers of input `i`, when it is there and all are known.
std::optional<Sizes> numbers_of(Inputs in, std::size_t i) {
  return i < in.size() && in[i] != nullptr ? in[i]->numbers() : std::nullopt;
}

std::optional<std::int64_t> number_of(Inputs in, std::size_t i) {
  const auto numbers = numbers_of(in, i);
  return numbers && numbers->size() == 1 ? std::optional(numbers->front()) : std::nullopt;
}

// Tensors of rank 1 have one axis, which has two names.
bool is_only_axis(const IntTensor& tensor, std::int64_t axis) {
  return tensor.sizes.size() == 1 && (axis == 0 || axis == -1);
}

Maybe reshaped(const IntTensor& tensor, Sizes sizes) {
  if (numel_of(sizes) != static_cast<std::int64_t>(tensor.elements.size())) return std::nullopt;
  return IntTensor{tensor.dtype, std::move(sizes), tensor.elements};
}

Maybe same(const Node&, Inputs in) { return in[0] == nullptr ? std::nullopt : Maybe(*in[0]); }

Maybe gather(const Node& node, Inputs in) {
  const auto indices = numbers_of(in, 1);
  if (in[0] == nullptr || !indices || !is_only_axis(*in[0], node.int_attribute("axis", 0)))
    return std::nullopt;
  const auto size = static_cast<std::int64_t>(in[0]->elements.size());
  IntTensor result{in[0]->dtype, in[1]->sizes, {}};
  for (std::int64_t index : *indices) {
    if (index < -size || index >= size) return std::nullopt;
    result.elements.push_back(in[0]->elements[static_cast<std::size_t>(index < 0 ? index + size : index)]);
  }
  return result;
}

Maybe slice(const Node& node, Inputs in) {
  auto start = number_of(in, 1), end = number_of(in, 2);
  const auto axis = node.input(3) == nullptr ? std::optional<std::int64_t>(0) : number_of(in, 3);
  const auto step = node.input(4) == nullptr ? std::optional<std::int64_t>(1) : number_of(in, 4);
  if (in[0] == nullptr || !start || !end || !axis || !step || *step == 0 || !is_only_axis(*in[0], *axis))
    return std::nullopt;
  const auto size = static_cast<std::int64_t>(in[0]->elements.size());
  if (size == 0) return *in[0];
  const auto absolute = [size](std::int64_t at) { return at < 0 ? at + size : at; };
  *start = std::clamp<std::int64_t>(absolute(*start), 0, *step > 0 ? size : size - 1);
  *end = std::clamp<std::int64_t>(absolute(*end), *step > 0 ? 0 : -1, size);
  IntTensor result{in[0]->dtype, {}, {}};
  // Few elements, so that a step beyond them needs no care for overflow.
  const std::int64_t stride = std::clamp<std::int64_t>(*step, -size - 1, size + 1);
  for (std::int64_t i = *start; stride > 0 ? i < *end : i > *end; i += stride) {
    result.elements.push_back(in[0]->elements[static_cast<std::size_t>(i)]);
  }
  result.sizes = {static_cast<std::int64_t>(result.elements.size())};
  return result;
}

Maybe concat(const Node& node, Inputs in) {
  IntTensor result{DType::kInt64, {}, {}};
  for (const IntTensor* input : in) {
    if (input == nullptr || !is_only_axis(*input, node.int_attribute("axis", 0))) return std::nullopt;
    result.dtype = input->dtype;
    result.elements.insert(result.elements.end(), input->elements.begin(), input->elements.end());
  }
  result.sizes = {static_cast<std::int64_t>(result.elements.size())};
  return result.sizes[0] <= kMaxIntElements ? Maybe(result) : std::nullopt;
}

Maybe unsqueeze(const Node&, Inputs in) {
  const auto axes = numbers_of(in, 1);
  if (in[0] == nullptr || !axes) return std::nullopt;
  const std::size_t rank = in[0]->sizes.size() + axes->size();
  Sizes sizes(rank, 0);
  for (std::int64_t axis : *axes) {
    if (axis < 0) axis += static_cast<std::int64_t>(rank);
    if (axis < 0 || axis >= static_cast<std::int64_t>(rank) || sizes[static_cast<std::size_t>(axis)] == 1)
      return std::nullopt;
    sizes[static_cast<std::size_t>(axis)] = 1;
  }
  auto next = in[0]->sizes.begin();
  for (std::int64_t& size : sizes) size = size == 1 ? 1 : *next++;
  return reshaped(*in[0], std::move(sizes));
}

Maybe squeeze(const Node& node, Inputs in) {
  if (in[0] == nullptr) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(in[0]->sizes.size());
  auto axes = numbers_of(in, 1);
  if (node.input(1) != nullptr && !axes) return std::nullopt;
  Sizes sizes;
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::int64_t size = in[0]->sizes[static_cast<std::size_t>(i)];
    const bool listed = !axes || std::ranges::find(*axes, i) != axes->end() ||
                        std::ranges::find(*axes, i - rank) != axes->end();
    if (!listed || size != 1) sizes.push_back(size);
  }
  return reshaped(*in[0], std::move(sizes));
}

Maybe reshape(const Node& node, Inputs in) {
  auto sizes = numbers_of(in, 1);
  if (in[0] == nullptr || !sizes) return std::nullopt;
  std::int64_t known = 1, inferred = -1;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    std::int64_t& size = (*sizes)[i];
    if (size == 0 && node.int_attribute("allowzero", 0) == 0) {
      if (i >= in[0]->sizes.size()) return std::nullopt;
      size = in[0]->sizes[i];
    }
    if (size == -1) {
      if (inferred >= 0) return std::nullopt;
      inferred = static_cast<std::int64_t>(i);
    } else if (size < 0 || size > kMaxIntElements || (known *= size) > kMaxIntElements) {
      return std::nullopt;
    }
  }
  if (inferred >= 0 && known == 0) return std::nullopt;
  if (inferred >= 0)
    (*sizes)[static_cast<std::size_t>(inferred)] = static_cast<std::int64_t>(in[0]->elements.size()) / known;
  return reshaped(*in[0], std::move(*sizes));
}

Maybe constant_of_shape(const Node& node, Inputs in) {
  const auto sizes = numbers_of(in, 0);
  const graph::Attribute* attribute = node.attribute("value");
  if (!sizes || attribute == nullptr || numel_of(*sizes) > kMaxIntElements) return std::nullopt;
  const auto value = int_tensor_of(*std::get<graph::ConstantPtr>(*attribute));
  if (!value || value->elements.size() != 1) return std::nullopt;
  return IntTensor{value->dtype, *sizes,
                   std::vector<IntElement>(static_cast<std::size_t>(numel_of(*sizes)), value->elements[0])};
}

Maybe range(const Node&, Inputs in) {
  const auto start = number_of(in, 0), limit = number_of(in, 1), delta = number_of(in, 2);
  if (!start || !limit || !delta || *delta == 0) return std::nullopt;
  IntTensor result{in[0]->dtype, {}, {}};
  for (std::int64_t i = *start; *delta > 0 ? i < *limit : i > *limit;) {
    result.elements.push_back(IntElement::of(i));
    if (result.elements.size() > static_cast<std::size_t>(kMaxIntElements) ||
        __builtin_add_overflow(i, *delta, &i)) {
      return std::nullopt;
    }
  }
  result.sizes = {static_cast<std::int64_t>(result.elements.size())};
  return result;
}

// Over all elements of a tensor of rank 1; the accumulator starts with the neutral `product`.
Maybe reduce_prod(const Node& node, Inputs in) {
  const auto numbers = numbers_of(in, 0);
  const auto axis = node.input(1) == nullptr ? std::optional<std::int64_t>(0) : number_of(in, 1);
  const bool does_nothing = node.input(1) == nullptr && node.int_attribute("noop_with_empty_axes", 0) != 0;
  if (!numbers || !axis || does_nothing || !is_only_axis(*in[0], *axis) || in[0]->dtype != DType::kInt64)
    return std::nullopt;
  std::int64_t product = 1;
  for (std::int64_t number : *numbers) {
    if (__builtin_mul_overflow(product, number, &product)) return std::nullopt;
  }
  const Sizes sizes = node.int_attribute("keepdims", 1) != 0 ? Sizes{1} : Sizes{};
  return IntTensor{DType::kInt64, sizes, {IntElement::of(product)}};
}

using Evaluate = Maybe (*)(const Node& node, Inputs inputs);

const std::map<std::string_view, Evaluate>& table() {
  static const std::map<std::string_view, Evaluate> ops{
      {"Concat", concat},   {"ConstantOfShape", constant_of_shape},
      {"Gather", gather},   {"Identity", same},
      {"Range", range},     {"ReduceProd", reduce_prod},
      {"Reshape", reshape}, {"Slice", slice},
      {"Squeeze", squeeze}, {"Unsqueeze", unsqueeze},
  };
  return ops;
}

}  // namespace

std::int64_t numel_of(std::span<const std::int64_t> sizes) {
  std::int64_t numel = 1;
  for (std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) return kMaxIntElements + 1;
  }
  return numel;
}

std::optional<std::vector<std::int64_t>> IntTensor::numbers() const {
  Sizes numbers;
  for (const IntElement& element : elements) {
    if (!element.number) return std::nullopt;
    numbers.push_back(*element.number);
  }
  return numbers;
}

graph::ConstantPtr IntTensor::to_constant() const {
  auto constant = std::make_shared<graph::ConstantTensor>();
  constant->dtype = dtype;
  constant->sizes = sizes;
  for (const IntElement& element : elements) graph::append_int64(dtype, *element.number, constant->bytes);
  return constant;
}

std::optional<IntTensor> int_tensor_of(const graph::ConstantTensor& constant) {
  const bool is_int =
      constant.dtype == DType::kInt64 || constant.dtype == DType::kInt32 || constant.dtype == DType::kBool;
  if (!is_int || numel_of(constant.sizes) > kMaxIntElements) return std::nullopt;
  IntTensor tensor{constant.dtype, constant.sizes, {}};
  for (std::int64_t i = 0; i < constant.numel(); ++i) {
    tensor.elements.push_back(IntElement::of(graph::read_int64(constant, i)));
  }
  return tensor;
}

std::optional<IntTensor> evaluate_ints(const Node& node, Inputs inputs) {
  const graph::OpInfo* info = graph::find_op(node.domain(), node.op_type());
  if (info == nullptr || !node.domain().empty() || inputs.size() < info->min_inputs) return std::nullopt;
  const auto position = table().find(node.op_type());
  return position == table().end() ? evaluate_elementwise(node, inputs) : position->second(node, inputs);
}

}  // namespace rekindle::passes

#include "src/passes/int_tensor.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

namespace rekindle::passes {
namespace {

using graph::DType;
using graph::Node;
using Inputs = std::span<const IntTensor* const>;
using Maybe = std::optional<IntTensor>;
using Sizes = std::vector<std::int64_t>;

bool is_int(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kBool; }

std::optional<Sizes> broadcast(const Sizes& a, const Sizes& b) {
  Sizes out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

// The element of `tensor` that lands at position `linear` of `sizes`, to which it is broadcast.
const IntElement& broadcast_element(const IntTensor& tensor, const Sizes& sizes, std::int64_t linear) {
  std::int64_t index = 0, stride = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t size = sizes[sizes.size() - 1 - i], at = size > 0 ? linear % size : 0;
    linear /= std::max<std::int64_t>(size, 1);
    if (i >= tensor.sizes.size()) continue;
    const std::int64_t own = tensor.sizes[tensor.sizes.size() - 1 - i];
    if (own != 1) index += at * stride;
    stride *= own;
  }
  return tensor.elements[static_cast<std::size_t>(index)];
}

using Binary = IntElement (*)(const IntElement& a, const IntElement& b);

// An element that does not fit int32 wraps at run time; it is not known here.
IntElement checked(DType dtype, IntElement element) {
  if (dtype == DType::kInt32 && element.number &&
      *element.number != static_cast<std::int32_t>(*element.number))
    return {};
  return element;
}

Maybe elementwise(const IntTensor& a, const IntTensor& b, DType dtype, Binary op) {
  const auto sizes = broadcast(a.sizes, b.sizes);
  if (!sizes || numel_of(*sizes) > kMaxIntElements) return std::nullopt;
  IntTensor result{dtype, *sizes, {}};
  for (std::int64_t i = 0; i < numel_of(*sizes); ++i) {
    result.elements.push_back(
        checked(dtype, op(broadcast_element(a, *sizes, i), broadcast_element(b, *sizes, i))));
  }
  return result;
}

template <typename Compute>
IntElement both(const IntElement& a, const IntElement& b, Compute compute) {
  std::int64_t result = 0;
  if (!a.number || !b.number || !compute(*a.number, *b.number, &result)) return {};
  return IntElement::of(result);
}

constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

IntElement add(const IntElement& a, const IntElement& b) {
  if (a.number == 0) return b;
  if (b.number == 0) return a;
  return both(a, b, [](auto x, auto y, auto* r) { return !__builtin_add_overflow(x, y, r); });
}
IntElement subtract(const IntElement& a, const IntElement& b) {
  if (b.number == 0) return a;
  if (a.equals(b)) return IntElement::of(0);
  return both(a, b, [](auto x, auto y, auto* r) { return !__builtin_sub_overflow(x, y, r); });
}
IntElement multiply(const IntElement& a, const IntElement& b) {
  if (a.number == 1) return b;
  if (b.number == 1) return a;
  if (a.number == 0 || b.number == 0) return IntElement::of(0);
  return both(a, b, [](auto x, auto y, auto* r) { return !__builtin_mul_overflow(x, y, r); });
}
// Towards zero, as ONNX says for integers.
IntElement divide(const IntElement& a, const IntElement& b) {
  if (b.number == 1) return a;
  return both(a, b, [](auto x, auto y, auto* r) {
    if (y == 0 || (x == kSmallest && y == -1)) return false;
    *r = x / y;
    return true;
  });
}
// With the sign of the divisor, as ONNX says for fmod = 0.
IntElement modulo(const IntElement& a, const IntElement& b) {
  return both(a, b, [](auto x, auto y, auto* r) {
    if (y == 0 || y == -1) return y == -1 ? (*r = 0, true) : false;
    *r = x % y;
    if (*r != 0 && (*r < 0) != (y < 0)) *r += y;
    return true;
  });
}
IntElement minimum(const IntElement& a, const IntElement& b) {
  if (a.equals(b)) return a;
  return both(a, b, [](auto x, auto y, auto* r) { return *r = std::min(x, y), true; });
}
IntElement maximum(const IntElement& a, const IntElement& b) {
  if (a.equals(b)) return a;
  return both(a, b, [](auto x, auto y, auto* r) { return *r = std::max(x, y), true; });
}
IntElement equal(const IntElement& a, const IntElement& b) {
  if (a.equals(b)) return IntElement::of(1);
  // A dimension is never negative: exporters compare shapes with -1.
  if ((!a.symbol.empty() && b.number && *b.number < 0) || (!b.symbol.empty() && a.number && *a.number < 0)) {
    return IntElement::of(0);
  }
  return both(a, b, [](auto x, auto y, auto* r) { return *r = x == y, true; });
}
IntElement less(const IntElement& a, const IntElement& b) {
  if (!a.symbol.empty() && b.number && *b.number <= 0) return IntElement::of(0);
  if (!b.symbol.empty() && a.number && *a.number < 0) return IntElement::of(1);
  return both(a, b, [](auto x, auto y, auto* r) { return *r = x < y, true; });
}
IntElement negated(const IntElement& a) {
  return a.number ? IntElement::of(*a.number == 0 ? 1 : 0) : IntElement{};
}
IntElement greater(const IntElement& a, const IntElement& b) { return less(b, a); }
IntElement less_or_equal(const IntElement& a, const IntElement& b) { return negated(less(b, a)); }
IntElement greater_or_equal(const IntElement& a, const IntElement& b) { return negated(less(a, b)); }
IntElement logical_and(const IntElement& a, const IntElement& b) {
  if (a.number == 0 || b.number == 0) return IntElement::of(0);
  return both(a, b, [](auto x, auto y, auto* r) { return *r = x != 0 && y != 0, true; });
}
IntElement logical_or(const IntElement& a, const IntElement& b) {
  return negated(logical_and(negated(a), negated(b)));
}

Maybe arithmetic(const Node& node, Inputs in, Binary op) {
  if (in.size() == 1 && in[0] != nullptr) return *in[0];  // Min and Max of one
  if (in.size() != 2 || in[0] == nullptr || in[1] == nullptr || in[0]->dtype != in[1]->dtype)
    return std::nullopt;
  if (in[0]->dtype == DType::kBool || node.int_attribute("fmod", 0) != 0) return std::nullopt;
  return elementwise(*in[0], *in[1], in[0]->dtype, op);
}
Maybe logical(Inputs in, Binary op) {
  if (in[0] == nullptr || in[1] == nullptr || in[0]->dtype != in[1]->dtype) return std::nullopt;
  return elementwise(*in[0], *in[1], DType::kBool, op);
}
template <Binary op>
Maybe arithmetic_of(const Node& node, Inputs in) {
  return arithmetic(node, in, op);
}
template <Binary op>
Maybe logical_of(const Node&, Inputs in) {
  return logical(in, op);
}

Maybe invert(const Node&, Inputs in) {
  if (in[0] == nullptr || in[0]->dtype != DType::kBool) return std::nullopt;
  IntTensor result = *in[0];
  for (IntElement& element : result.elements) element = negated(element);
  return result;
}

Maybe where(const Node&, Inputs in) {
  if (in[0] == nullptr || in[1] == nullptr || in[2] == nullptr || in[1]->dtype != in[2]->dtype)
    return std::nullopt;
  const auto two = broadcast(in[1]->sizes, in[2]->sizes);
  const auto sizes = two ? broadcast(in[0]->sizes, *two) : std::nullopt;
  if (!sizes || numel_of(*sizes) > kMaxIntElements) return std::nullopt;
  IntTensor result{in[1]->dtype, *sizes, {}};
  for (std::int64_t i = 0; i < numel_of(*sizes); ++i) {
    const IntElement& condition = broadcast_element(*in[0], *sizes, i);
    const IntElement& yes = broadcast_element(*in[1], *sizes, i);
    const IntElement& no = broadcast_element(*in[2], *sizes, i);
    if (condition.number)
      result.elements.push_back(*condition.number != 0 ? yes : no);
    else
      result.elements.push_back(yes.equals(no) ? yes : IntElement{});
  }
  return result;
}

Maybe cast(const Node& node, Inputs in) {
  const std::int64_t number = node.int_attribute("to", 0);
  const auto to = number >= 0 && number < 256 ? static_cast<DType>(number) : DType::kUndefined;
  if (in[0] == nullptr || !is_int(to)) return std::nullopt;
  IntTensor result{to, in[0]->sizes, in[0]->elements};
  for (IntElement& element : result.elements) {
    if (to == DType::kBool && element.number) element = IntElement::of(*element.number != 0 ? 1 : 0);
    if (to != DType::kInt64 && !element.symbol.empty()) element = {};  // its value may change
    element = checked(to, element);
  }
  return result;
}

using Evaluate = Maybe (*)(const Node& node, Inputs inputs);

const std::map<std::string_view, Evaluate>& table() {
  static const std::map<std::string_view, Evaluate> ops{
      {"Add", arithmetic_of<add>},
      {"And", logical_of<logical_and>},
      {"Cast", cast},
      {"Div", arithmetic_of<divide>},
      {"Equal", logical_of<equal>},
      {"Greater", logical_of<greater>},
      {"GreaterOrEqual", logical_of<greater_or_equal>},
      {"Less", logical_of<less>},
      {"LessOrEqual", logical_of<less_or_equal>},
      {"Max", arithmetic_of<maximum>},
      {"Min", arithmetic_of<minimum>},
      {"Mod", arithmetic_of<modulo>},
      {"Mul", arithmetic_of<multiply>},
      {"Not", invert},
      {"Or", logical_of<logical_or>},
      {"Sub", arithmetic_of<subtract>},
      {"Where", where},
  };
  return ops;
}

}  // namespace

std::optional<IntTensor> evaluate_elementwise(const Node& node, Inputs inputs) {
  const auto position = table().find(node.op_type());
  return position == table().end() ? std::nullopt : position->second(node, inputs);
}

}  // namespace rekindle::passes

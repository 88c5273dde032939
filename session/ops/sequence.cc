// Ops on sequences and optional values.
#include <ATen/ops/cat.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include "session/lower/op.h"
#include "session/run/interpreter.h"

namespace rekindle::session {
namespace {

Tensors list_of(const RunValue& value) {
  TORCH_CHECK(value.isTensorList(), "input must be a sequence");
  return value.toTensorVector();
}

// `position` counts from the end when it is negative; `extra` more positions than elements are allowed.
std::ptrdiff_t position_in(const RunValue& position, std::size_t length, std::int64_t extra = 0) {
  const auto size = static_cast<std::int64_t>(length);
  const std::int64_t given = position.toTensor().item().toLong(), at = given < 0 ? given + size : given;
  TORCH_CHECK_INDEX(at >= 0 && at < size + extra, "position ", given, " is out of range for a sequence of ",
                    size);
  return static_cast<std::ptrdiff_t>(at);
}

bool given(const RunValues& inputs, std::size_t i) { return i < inputs.size() && !inputs[i].isNone(); }

RunValues sequence_empty(const graph::Node&, const RunValues&) { return {Tensors{}}; }

RunValues sequence_construct(const graph::Node&, const RunValues& inputs) {
  Tensors list;
  for (const RunValue& input : inputs) list.push_back(input.toTensor());
  return {list};
}

RunValues sequence_at(const graph::Node&, const RunValues& inputs) {
  const Tensors list = list_of(inputs[0]);
  return {list[static_cast<std::size_t>(position_in(inputs[1], list.size()))]};
}

RunValues sequence_insert(const graph::Node&, const RunValues& inputs) {
  Tensors list = list_of(inputs[0]);
  const auto at =
      given(inputs, 2) ? position_in(inputs[2], list.size(), 1) : static_cast<std::ptrdiff_t>(list.size());
  list.insert(list.begin() + at, inputs[1].toTensor());
  return {list};
}

RunValues sequence_erase(const graph::Node&, const RunValues& inputs) {
  Tensors list = list_of(inputs[0]);
  TORCH_CHECK(!list.empty(), "SequenceErase of an empty sequence");
  list.erase(list.begin() + (given(inputs, 1) ? position_in(inputs[1], list.size())
                                              : static_cast<std::ptrdiff_t>(list.size()) - 1));
  return {list};
}

RunValues sequence_length(const graph::Node&, const RunValues& inputs) {
  return {at::scalar_tensor(static_cast<std::int64_t>(list_of(inputs[0]).size()), at::kLong)};
}

RunValues split_to_sequence(const graph::Node& node, const RunValues& inputs) {
  const at::Tensor x = inputs[0].toTensor();
  const std::int64_t axis = node.int_attribute("axis", 0);
  if (!given(inputs, 1)) {
    Tensors parts = x.split(1, axis);
    if (node.int_attribute("keepdims", 1) == 0) {
      for (at::Tensor& part : parts) part = part.squeeze(axis);
    }
    return {parts};
  }
  const at::Tensor split = inputs[1].toTensor().cpu().to(at::kLong).contiguous();
  if (split.dim() == 0) return {x.split(split.item().toLong(), axis)};
  const auto* lengths = split.const_data_ptr<std::int64_t>();
  return {x.split_with_sizes(Sizes(lengths, lengths + split.numel()), axis)};
}

RunValues concat_from_sequence(const graph::Node& node, const RunValues& inputs) {
  const Tensors list = list_of(inputs[0]);
  TORCH_CHECK(!list.empty(), "ConcatFromSequence of an empty sequence");
  const std::int64_t axis = node.int_attribute("axis", 0);
  return {node.int_attribute("new_axis", 0) != 0 ? at::stack(list, axis) : at::cat(list, axis)};
}

RunValues optional(const graph::Node&, const RunValues& inputs) {
  return {inputs.empty() ? RunValue() : inputs[0]};
}

RunValues optional_has_element(const graph::Node&, const RunValues& inputs) {
  return {at::scalar_tensor(given(inputs, 0), at::kBool)};
}

RunValues optional_get_element(const graph::Node&, const RunValues& inputs) {
  TORCH_CHECK(given(inputs, 0), "OptionalGetElement of an empty optional value");
  return {inputs[0]};
}

RunValues identity(const graph::Node&, const RunValues& inputs) { return inputs; }

}  // namespace

REKINDLE_INTERPRETED("", "ConcatFromSequence", concat_from_sequence);
REKINDLE_INTERPRETED("", "Identity", identity);
REKINDLE_INTERPRETED("", "Optional", optional);
REKINDLE_INTERPRETED("", "OptionalGetElement", optional_get_element);
REKINDLE_INTERPRETED("", "OptionalHasElement", optional_has_element);
REKINDLE_INTERPRETED("", "SequenceAt", sequence_at);
REKINDLE_INTERPRETED("", "SequenceConstruct", sequence_construct);
REKINDLE_INTERPRETED("", "SequenceEmpty", sequence_empty);
REKINDLE_INTERPRETED("", "SequenceErase", sequence_erase);
REKINDLE_INTERPRETED("", "SequenceInsert", sequence_insert);
REKINDLE_INTERPRETED("", "SequenceLength", sequence_length);
REKINDLE_INTERPRETED("", "SplitToSequence", split_to_sequence);

}  // namespace rekindle::session

// Nodes that own graphs (src/graph/control_flow.h): their bodies are interpreted.
#include "src/graph/control_flow.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <limits>

#include "session/lower/op.h"
#include "session/lower/tensor_types.h"
#include "session/run/interpreter.h"

namespace rekindle::session {
namespace {

using Scanned = std::vector<Tensors>;  // per scanned output, one tensor an iteration

bool truth(const RunValue& value) { return value.toTensor().item().toBool(); }

RunValues slice(const RunValues& values, std::size_t begin, std::size_t count) {
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

void append(RunValues& to, const RunValues& values) { to.insert(to.end(), values.begin(), values.end()); }

// No iteration ran: only the body's types can tell the layout.
at::Tensor nothing_like(const graph::Value& element) {
  auto sizes = element.type().static_sizes();
  TORCH_CHECK(sizes && element.type().dtype != graph::DType::kUndefined,
              "no iteration ran, and the type of '", element.name(), "' is not known");
  sizes->insert(sizes->begin(), 0);
  return at::empty(*sizes, at::TensorOptions().dtype(scalar_type_of(element.type().dtype)));
}

void collect(const RunValues& results, std::size_t first, Scanned& scanned) {
  for (std::size_t i = 0; i < scanned.size(); ++i) scanned[i].push_back(results[first + i].toTensor());
}

RunValues run_if(const graph::Node& node, const RunValues& inputs) {
  const graph::Graph &then_branch = graph::body_of(node, "then_branch"),
                     &else_branch = graph::body_of(node, "else_branch");
  if (truth(inputs[0])) return interpret(then_branch, slice(inputs, 1, then_branch.inputs().size()));
  return interpret(else_branch, slice(inputs, 1 + then_branch.inputs().size(), else_branch.inputs().size()));
}

RunValues run_loop(const graph::Node& node, const RunValues& inputs) {
  const graph::Graph& body = graph::body_of(node, "body");
  const auto carried = static_cast<std::size_t>(node.int_attribute("carried", 0));
  const bool counted = !inputs.empty() && !inputs[0].isNone();
  const std::int64_t trips =
      counted ? inputs[0].toTensor().item().toLong() : std::numeric_limits<std::int64_t>::max();
  bool go = inputs.size() < 2 || inputs[1].isNone() || truth(inputs[1]);
  RunValues state = body.inputs().size() > 2 ? slice(inputs, 2, carried) : RunValues();
  const RunValues read =
      body.inputs().size() > 2 ? slice(inputs, 2 + carried, inputs.size() - 2 - carried) : RunValues();
  Scanned scanned(body.outputs().size() - 1 - carried);
  for (std::int64_t i = 0; i < trips && go; ++i) {
    RunValues given{at::scalar_tensor(i, at::kLong), at::scalar_tensor(go, at::kBool)};
    append(given, state);
    append(given, read);
    const RunValues results = interpret(body, std::move(given));
    go = truth(results[0]);
    state = slice(results, 1, carried);
    collect(results, 1 + carried, scanned);
  }
  for (std::size_t i = 0; i < scanned.size(); ++i) {
    state.emplace_back(scanned[i].empty() ? nothing_like(*body.outputs()[1 + carried + i])
                                          : at::stack(scanned[i]));
  }
  return state;
}

std::int64_t entry(const Sizes& list, std::size_t i) { return i < list.size() ? list[i] : 0; }

RunValues run_scan(const graph::Node& node, const RunValues& inputs) {
  const graph::Graph& body = graph::body_of(node, "body");
  const auto carried = static_cast<std::size_t>(node.int_attribute("carried", 0));
  const auto elements = static_cast<std::size_t>(node.int_attribute("num_scan_inputs", 1));
  const Sizes axes = node.ints_attribute("scan_input_axes", {}),
              directions = node.ints_attribute("scan_input_directions", {});
  const Sizes out_axes = node.ints_attribute("scan_output_axes", {}),
              out_directions = node.ints_attribute("scan_output_directions", {});
  RunValues state = slice(inputs, 0, carried);
  const RunValues read = slice(inputs, carried + elements, inputs.size() - carried - elements);
  const std::int64_t length = inputs[carried].toTensor().size(entry(axes, 0));
  Scanned scanned(body.outputs().size() - carried);
  for (std::int64_t i = 0; i < length; ++i) {
    RunValues given = state;
    for (std::size_t e = 0; e < elements; ++e) {
      const at::Tensor sequence = inputs[carried + e].toTensor();
      TORCH_CHECK(sequence.size(entry(axes, e)) == length, "the sequences of a Scan differ in length");
      given.emplace_back(sequence.select(entry(axes, e), entry(directions, e) != 0 ? length - 1 - i : i));
    }
    append(given, read);
    const RunValues results = interpret(body, std::move(given));
    state = slice(results, 0, carried);
    collect(results, carried, scanned);
  }
  for (std::size_t i = 0; i < scanned.size(); ++i) {
    if (entry(out_directions, i) != 0) std::ranges::reverse(scanned[i]);
    state.emplace_back(scanned[i].empty() ? nothing_like(*body.outputs()[carried + i])
                                          : at::stack(scanned[i], entry(out_axes, i)));
  }
  return state;
}

RunValues run_sequence_map(const graph::Node& node, const RunValues& inputs) {
  const graph::Graph& body = graph::body_of(node, "body");
  const auto mapped = static_cast<std::size_t>(node.int_attribute("carried", 1));
  TORCH_CHECK(inputs[0].isTensorList(), "input 0 must be a sequence");
  const std::size_t length = inputs[0].toTensorVector().size();
  Scanned scanned(body.outputs().size());
  for (std::size_t at = 0; at < length; ++at) {
    RunValues given;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool element = i < mapped && inputs[i].isTensorList();
      given.push_back(element ? RunValue(inputs[i].toTensorVector().at(at)) : inputs[i]);
    }
    collect(interpret(body, std::move(given)), 0, scanned);
  }
  RunValues results;
  for (Tensors& sequence : scanned) results.emplace_back(std::move(sequence));
  return results;
}

}  // namespace

REKINDLE_INTERPRETED("rekindle", "If", run_if);
REKINDLE_INTERPRETED("rekindle", "Loop", run_loop);
REKINDLE_INTERPRETED("rekindle", "Scan", run_scan);
REKINDLE_INTERPRETED("rekindle", "SequenceMap", run_sequence_map);

}  // namespace rekindle::session

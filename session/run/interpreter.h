// Runs graphs that have no plan: control flow, sequences, optional values, sizes that depend on data.
//
// Each node is lowered for the values that its inputs have just got, by the same lowerings that plans use,
// and run at once. Slower than a plan by what lowering costs; without gradients.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/base/concat.h"
#include "src/graph/graph.h"

namespace rekindle::session {

// A tensor, a list of tensors (an ONNX sequence) or None (an absent input, an empty optional value).
using RunValue = c10::IValue;
using RunValues = std::vector<RunValue>;

// One value per output. `inputs`: one per graph input. Throws c10::Error
// naming the node, its op and its source.
RunValues interpret(const graph::Graph& graph, RunValues inputs);

// Ops on values that are no tensors, and control flow: they have no lowering, only this.
using Interpret = RunValues (*)(const graph::Node& node, const RunValues& inputs);
// Null when the op is lowered instead (or not known).
Interpret find_interpretation(std::string_view domain, std::string_view op_type);

// Their names, as supported_ops() gives those that are lowered.
std::vector<std::string> interpreted_ops();

struct InterpretRegistrar {
  InterpretRegistrar(std::string_view domain, std::string_view op_type, Interpret interpret);
};

// REKINDLE_INTERPRETED("", "SequenceAt", sequence_at);
#define REKINDLE_INTERPRETED(domain, op_type, interpret)                                                   \
  static const ::rekindle::session::InterpretRegistrar REKINDLE_CONCAT(interpret_registrar_, __COUNTER__)( \
      domain, op_type, interpret)

}  // namespace rekindle::session

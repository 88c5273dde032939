// OpInfo: the facts about an op that hold without running it. One table for ONNX's ops and Rekindle's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "src/graph/graph.h"

namespace rekindle::graph {

// Domain of onnxruntime's own ops, of which a few are known.
inline constexpr std::string_view kMicrosoftDomain = "com.microsoft";

inline constexpr std::size_t kVariadic = std::numeric_limits<std::size_t>::max();

// What may be true of an op; the bits of OpInfo::facts.
enum OpFact : unsigned {
  kRandom = 1,         // draws from the generator: never folded, merged, dropped or reordered
  kAbsentInputs = 2,   // any input may be absent
  kShapeOnlyTail = 4,  // every input after the last one in shape_only is shape-only too
  kView = 8,           // outputs may lie in the memory of input 0 (is_view() knows more of a node)
  kCheap = 16,         // computes little with each element: worth doing again rather than saving
  kAddsToLast = 32,    // the result is added to the last input, if that is there
};

struct OpInfo {
  std::string_view domain, name;
  std::size_t min_inputs = 1, max_inputs = 1;  // max kVariadic: any number
  std::size_t min_outputs = 1, max_outputs = 1;
  // Inputs of which only shape and dtype are used (docs/ir.md, `*`).
  std::vector<std::size_t> shape_only = {};
  unsigned facts = 0;

  bool is(OpFact fact) const { return (facts & fact) != 0; }
};

// Null for an op that Rekindle does not know. Every op of the torch domain has the same facts.
const OpInfo* find_op(std::string_view domain, std::string_view name);
// True when `node` uses only the shape of its input `index`.
bool is_shape_only(const Node& node, std::size_t index);
// True when outputs of the node may lie in the memory of its input 0: what is written to one is seen in both.
bool is_view(const Node& node);
// The value in whose memory `value` may lie: itself, or what it is a view of.
const Value* base_of(const Value* value);
// The input that the result is added to, of an op that does so, whether or not it is there.
std::optional<std::size_t> sum_input(const Node& node);
// True when the node draws random numbers as configured (a Dropout whose training_mode is absent or the
// constant false does not).
bool is_random(const Node& node);
// Every known op, ordered by domain and name.
const std::vector<OpInfo>& all_ops();

// "MatMul", or "com.microsoft::Gelu": a name for tables of ops.
std::string qualified_name(std::string_view domain, std::string_view op_type);

}  // namespace rekindle::graph

// OpInfo: the facts about an op that hold without running it. One table for ONNX's ops and Rekindle's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "src/graph/graph.h"

namespace rekindle::graph {

// Domain of onnxruntime's own ops, of which a few are known.
inline constexpr std::string_view kMicrosoftDomain = "com.microsoft";

inline constexpr std::size_t kVariadic = std::numeric_limits<std::size_t>::max();

struct OpInfo {
  std::string_view domain, name;
  std::size_t min_inputs = 1, max_inputs = 1;  // max kVariadic: any number
  std::size_t min_outputs = 1, max_outputs = 1;
  // Inputs of which only shape and dtype are used (docs/ir.md, `*`).
  std::vector<std::size_t> shape_only = {};
  bool shape_only_tail = false;  // every input after the last one in shape_only is shape-only too
  bool random = false;           // draws from the generator: never folded, merged, dropped or reordered
  bool absent_inputs = false;    // any input may be absent
};

// Null for an op that Rekindle does not know. Every op of the torch domain has the same facts.
const OpInfo* find_op(std::string_view domain, std::string_view name);
// True when `node` uses only the shape of its input `index`.
bool is_shape_only(const Node& node, std::size_t index);
// True when the node draws random numbers as configured (a Dropout whose training_mode is absent or the
// constant false does not).
bool is_random(const Node& node);
// Every known op, ordered by domain and name.
const std::vector<OpInfo>& all_ops();

}  // namespace rekindle::graph

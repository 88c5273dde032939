// infer_types(): what each op's lowering says of its outputs, before there is a plan. Gradient
// rules receive it as a callback, for they need to know ranks. answer_from_sizes(): what a graph
// says that is known without data.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/graph/graph.h"

namespace rekindle::session {

// Sets the type of every value that follows from inputs of known types. Dimensions of inputs may be symbols,
// whose sizes where the graph was made are `sizes`: lowerings then run there and for other, smaller and
// larger sizes. A dimension that is the same in all these runs has that size, one that is always a symbol's
// size is that symbol; every other is left unknown. Values that cannot be told (an op without a lowering, a
// symbol that `sizes` lacks) are left as they are.
void infer_types(graph::Graph& graph, const std::map<std::string, std::int64_t>& sizes = {});

// The sizes of every value that follows from inputs of known types, where dimensions that are symbols have
// these sizes. What depends on data, or is an error, is not in.
std::unordered_map<const graph::Value*, std::vector<std::int64_t>> value_sizes(
    const graph::Graph& graph, const std::map<std::string, std::int64_t>& symbols);

// The elements of the graph's one output, integers that depend on the sizes of inputs only; nothing else is
// computed, and no random number is drawn. Throws c10::Error when the graph is not for these sizes, or the
// output needs data.
std::vector<std::int64_t> answer_from_sizes(const graph::Graph& graph, const std::vector<at::Tensor>& inputs);

}  // namespace rekindle::session

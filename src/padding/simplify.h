// What is done to a graph before pack_rows(), so that it sees rows where an export hides them. No number
// changes.
#pragma once

#include "src/graph/graph.h"
#include "src/padding/token_sizes.h"

namespace rekindle::padding {

// A Reshape of what has been reshaped reads what was there before: an exported `contiguous()` is a Reshape to
// one dimension and back, in which no row is seen.
void join_reshapes(graph::Graph& graph);

// Dimensions that are the batch or the length of the tokens are asked of the tokens, input number `tokens`,
// not of what has been computed from them.
void ask_tokens_for_sizes(graph::Graph& graph, std::size_t tokens, const TokenSizes& sizes);

}  // namespace rekindle::padding

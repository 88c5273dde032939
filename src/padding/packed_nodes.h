// pack_nodes(): the rewriting of pack_rows(), once it is known which values may leave rows out.
#pragma once

#include "src/base/result.h"
#include "src/padding/pack_rows.h"
#include "src/padding/row_needs.h"

namespace rekindle::padding {

// MatMul, Linear and the like: what makes it worth leaving rows out.
bool is_product(const graph::Node& node);

// Sets packed.graph and packed.row_results; packed.tokens is given. kUnsupported, naming the node that needs
// all rows, when no product leaves rows out.
Status pack_nodes(const graph::Graph& forward, const TokenSizes& sizes, const RowStates& states,
                  const RowNeeds& needs, PackedGraph& packed);

}  // namespace rekindle::padding

// Where a node came from, as the doc_string of an ONNX node has it: the source, and in an activation
// checkpoint a line more.
//
//   model.py:12 in forward
//   in checkpoint 3
#pragma once

#include <string>
#include <string_view>

#include "src/graph/graph.h"

namespace rekindle::graph {

std::string origin_text(const Node& node);
// Sets the node's source and checkpoint. A last line that is no number of a checkpoint is part of the source.
void read_origin(std::string_view text, Node& node);

}  // namespace rekindle::graph

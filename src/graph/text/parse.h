// The text form of docs/ir.md, read. Meant for tests, tools and people; stored graphs are ONNX.
#pragma once

#include <memory>
#include <string_view>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace rekindle::graph {

// kInvalidArgument with line and column when `text` is not one graph, or names a value that is not defined
// above its use. Does not check ops, arities or types: verify() does.
Result<std::unique_ptr<Graph>> parse(std::string_view text);

}  // namespace rekindle::graph

// Removes nodes that no output needs. Random nodes stay: what comes after them must draw the same numbers.
#include "src/graph/dead_nodes.h"
#include "src/passes/pass.h"

namespace rekindle::passes {
namespace {

Result<bool> run(graph::Graph& graph, const PassContext&) { return graph::erase_dead_nodes(graph); }

REKINDLE_PASS("eliminate_dead_nodes", "Removes nodes whose results nobody uses", run);

}  // namespace
}  // namespace rekindle::passes

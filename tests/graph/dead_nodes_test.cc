#include "src/graph/dead_nodes.h"

#include "tests/support/graph_text.h"

using namespace rekindle::graph;

namespace {

constexpr const char* kText = R"(graph g(%x) {
  opset 20
  %a = Neg(%x)
  %b = Relu(%x)
  %c = Exp(%b)
  %y = Abs(%x)
  return %y
}
)";

}  // namespace

TEST_CASE("nodes that nobody needs are erased, with what only they needed", "[graph]") {
  const auto graph = rekindle::testing::graph_from(kText);
  CHECK(erase_dead_nodes(*graph));
  CHECK(graph->nodes().size() == 1);
  CHECK_FALSE(erase_dead_nodes(*graph));
}

TEST_CASE("a node that is to stay does, with those before it", "[graph]") {
  const auto graph = rekindle::testing::graph_from(kText);
  CHECK(erase_dead_nodes(*graph, graph->find_value("b")->producer()));
  CHECK(graph->nodes().size() == 3);
  CHECK(graph->find_value("c") == nullptr);
}

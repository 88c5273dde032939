#include "src/passes/pass_manager.h"

#include "tests/passes/pass_test.h"

using namespace rekindle;

namespace {

constexpr const char* kText =
    "graph g(%x) { opset 20 %a = Identity(%x) %b = Identity(%x) %c = Neg(%a) %y = Neg(%b) return %y }";

}  // namespace

TEST_CASE("every pass has a name and a line of documentation", "[passes]") {
  CHECK(passes::all_passes().names().size() >= 5);
  for (const auto& [name, pass] : passes::all_passes()) {
    CHECK(pass.name == name);
    CHECK(pass.doc.size() > 10);
  }
}

TEST_CASE("an unknown pass is an error before anything runs", "[passes]") {
  const auto graph = testing::graph_from(kText);
  const std::vector<std::string_view> names{"eliminate_identity", "nope"};
  const auto result = passes::run_passes(*graph, names);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == ErrorCode::kNotFound);
  CHECK(result.error().message == "there is no pass named 'nope'");
  CHECK(graph->nodes().size() == 4);
}

TEST_CASE("passes run in order, and until nothing changes", "[passes]") {
  const std::vector<std::string_view> names{"eliminate_dead_nodes", "eliminate_common_subexpressions",
                                            "eliminate_identity"};
  const auto once = testing::graph_from(kText);
  REQUIRE(passes::run_passes(*once, names).ok());
  const auto stable = testing::graph_from(kText);
  CHECK(*passes::run_passes_until_stable(*stable, names));
  CHECK(graph::print(*stable) == "graph g(%x) {\n  opset 20\n  %y = Neg(%x)\n  return %y\n}\n");
  CHECK_FALSE(*passes::run_passes_until_stable(*stable, names));
}
